//! What a request takes in instructions of user space, as callgrind counts them: the same on a busy
//! machine as on a quiet one, and where they are. What the kernel does is not in it.

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Plan;
use super::client::{ask_all, get};
use super::servers::{
    Case, Setting, bare, callgrind_file, floor_proxy, nginx_proxy, nginx_saying_all,
    tidegate_proxy, upstream, version,
};
use crate::service::child::Child;

const CASES: [Case; 3] = [Case::NoLimit, Case::Allowed, Case::AllRefused];
const CONNECTIONS: usize = 8;
/// How many functions are named.
const NAMED: usize = 15;
/// Everything is some fifty times slower there.
const PATIENCE: Duration = Duration::from_secs(30);

/// What one request takes.
struct Counted {
    all: f64,
    /// By function, those with the most first.
    functions: Vec<(String, f64)>,
}

/// Counts and prints the tables.
pub(super) fn run(plan: &Plan) {
    if version("valgrind", "--version").is_none() {
        println!("\n**valgrind is not installed: no instructions are counted.**");
        return;
    }
    let upstream = upstream(Setting::CALLGRIND);
    let address = &upstream.address;
    println!("\n### Instructions of user space per request\n");
    println!(
        "| case | nginx | nginx that says as much | bare hyper | hyper alone | tidegate | to nginx |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let mut tops = Vec::new();
    for case in CASES {
        let nginx = count(nginx_proxy(Setting::CALLGRIND, case, address), plan.counted);
        let saying = count(nginx_saying_all(Setting::CALLGRIND, case, address), plan.counted);
        let floor = count(floor_proxy(Setting::CALLGRIND, case, address), plan.counted);
        let bare = match case {
            Case::NoLimit => {
                let bare = count(bare(Setting::CALLGRIND, address), plan.counted);
                format!("{:.0}", bare.all)
            }
            _ => String::new(),
        };
        let ours = count(tidegate_proxy(Setting::CALLGRIND, case, address), plan.counted);
        println!(
            "| {} | {:.0} | {:.0} | {bare} | {:.0} | {:.0} | **{:.2}x** |",
            case.name(),
            nginx.all,
            saying.all,
            floor.all,
            ours.all,
            ours.all / nginx.all
        );
        tops.push((case, ours));
    }
    for (case, counted) in tops {
        println!("\nMost of tidegate with {}, by function:\n", case.name());
        println!("| instructions | function |");
        println!("| --- | --- |");
        for (name, cost) in counted.functions.iter().take(NAMED) {
            println!("| {cost:.0} | `{name}` |");
        }
    }
}

fn count(child: Child, requests: u64) -> Counted {
    let ask = |requests: u64| {
        let tally = ask_all(&child.address, CONNECTIONS, requests, PATIENCE, |_| get("/"));
        (tally.admitted + tally.refused) as f64
    };
    ask(requests / 10);
    control(&child, "--zero");
    let asked = ask(requests);
    control(&child, "--dump");
    let file = callgrind_file(&format!("{}.1", child.id()));
    let text = std::fs::read_to_string(&file).expect("what callgrind has written");
    let counted = read(&text, asked);
    let id = child.id();
    drop(child);
    for file in [file, callgrind_file(&id.to_string())] {
        // It writes the second one only if it is ended gently.
        let _ = std::fs::remove_file(file);
    }
    counted
}

fn control(child: &Child, what: &str) {
    let mut command = Command::new("callgrind_control");
    command.arg(what).arg(child.id().to_string()).stdout(Stdio::null()).stderr(Stdio::null());
    let status = command.status().expect("callgrind_control comes with valgrind");
    assert!(status.success(), "{command:?} failed");
}

/// Adds up a file of callgrind. Names stand in full only where they come first; a line behind
/// `calls=` tells what the called function took, which is counted there.
fn read(text: &str, requests: f64) -> Counted {
    let (mut names, mut costs) = (HashMap::new(), HashMap::<&str, f64>::new());
    let (mut function, mut is_call) = ("", false);
    for line in text.lines() {
        if let Some((kind, rest)) = line.split_once("fn=") {
            let (id, name) = rest.split_once(' ').unwrap_or((rest, ""));
            if !name.is_empty() {
                names.insert(id, name);
            }
            if kind.is_empty() {
                function = id;
            }
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '*')) {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<f64>().ok());
            if !std::mem::take(&mut is_call) {
                *costs.entry(function).or_default() += cost.unwrap_or(0.0);
            }
        }
    }
    let all = costs.values().sum::<f64>() / requests;
    let mut by_name = HashMap::<&str, f64>::new();
    for (id, cost) in costs {
        // Levels of recursion have a number behind the name.
        let name = names.get(id).copied().unwrap_or("unknown");
        *by_name.entry(name.split('\'').next().unwrap_or(name)).or_default() += cost / requests;
    }
    let mut functions: Vec<_> =
        by_name.into_iter().map(|(name, cost)| (name.to_owned(), cost)).collect();
    functions.sort_by(|one, other| other.1.total_cmp(&one.1));
    Counted { all, functions }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_callgrind_writes_is_added_up() {
        let text = "events: Ir\n\nfn=(1) main\n10 5\n+2 6\ncfn=(2) leaf\ncalls=3 20\n+1 30\n\n\
                    fn=(2)\n20 30\nfn=(3) leaf'2\n* 4\n";
        let counted = read(text, 1.0);
        assert_eq!(counted.all, 45.0);
        assert_eq!(counted.functions, [("leaf".to_owned(), 34.0), ("main".to_owned(), 11.0)]);
    }
}
