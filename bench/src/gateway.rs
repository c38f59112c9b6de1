//! The gateway as users run it, beside nginx, haproxy and a bare proxy of hyper, in one run.
//!
//! ```console
//! $ cargo run --profile lto -p tidegate-bench -- gateway            # everything, below 10 minutes
//! $ cargo run --profile lto -p tidegate-bench -- gateway cost       # a part, see PARTS
//! $ cargo run -p tidegate-bench -- gateway --smoke                  # whether it all works, seconds
//! ```
//!
//! Everything is a process of its own on loopback. CPU time is that of the proxy alone, with its
//! threads and workers, as the scheduler counts it.

mod bare;
mod client;
mod cost;
mod delay;
mod floor;
mod instructions;
mod keys;
mod rates;
mod servers;
mod spread;
mod usage;
mod wrk;

use std::time::{Duration, Instant};

use self::servers::{Case, Setting};
use self::usage::Others;
use crate::service::Length;

/// Seconds that wrk loads one of them before it is another's turn.
const ONE_RUN: usize = 1;

/// A piece of the whole.
struct Part {
    name: &'static str,
    measure: fn(&Plan),
    /// What it takes at most.
    seconds: u64,
}

const PARTS: [Part; 6] = [
    Part { name: "cost", measure: cost::run, seconds: 280 },
    Part { name: "limits", measure: cost::limits, seconds: 56 },
    Part { name: "keys", measure: keys::run, seconds: 95 },
    Part { name: "rates", measure: rates::run, seconds: 102 },
    Part { name: "delay", measure: delay::run, seconds: 28 },
    // Only when asked for: it needs valgrind.
    Part { name: INSTRUCTIONS, measure: instructions::run, seconds: 90 },
];
const INSTRUCTIONS: &str = "instructions";

/// How much is measured.
struct Plan {
    settings: &'static [Setting],
    cases: &'static [Case],
    rounds: usize,
    limits_settings: &'static [Setting],
    limits_rounds: usize,
    keys: u64,
    /// A minute has to pass for one request a minute; of nginx, 62.5 seconds.
    slow_rates: Option<Duration>,
    fast_rates: usize,
    fast_rates_for: Duration,
    delays: usize,
    delay_for: Duration,
    /// Requests of which instructions are counted.
    counted: u64,
}

impl Plan {
    const FULL: Self = Self {
        settings: &[Setting::ONE_CORE, Setting::ONE_THREAD, Setting::TWO_THREADS],
        cases: &Case::ALL,
        rounds: 6,
        limits_settings: &[Setting::ONE_CORE, Setting::ONE_THREAD],
        limits_rounds: 8,
        keys: 1_000_000,
        slow_rates: Some(Duration::from_secs(63)),
        fast_rates: 4,
        fast_rates_for: Duration::from_secs(3),
        delays: 5,
        delay_for: Duration::from_secs(2),
        counted: 4_000,
    };
    const SMOKE: Self = Self {
        settings: &[Setting::ONE_THREAD],
        cases: &[Case::Refused],
        rounds: 1,
        limits_settings: &[Setting::ONE_CORE],
        limits_rounds: 1,
        keys: 2_000,
        slow_rates: None,
        fast_rates: 1,
        fast_rates_for: Duration::from_millis(500),
        delays: 1,
        delay_for: Duration::from_millis(300),
        counted: 100,
    };
}

/// Measures all of it, or one part, and prints the tables.
pub(crate) fn run(length: Length, part: Option<&str>) {
    let plan = if length == Length::Full { Plan::FULL } else { Plan::SMOKE };
    let is_wanted = |it: &&Part| part.map_or(it.name != INSTRUCTIONS, |part| part == it.name);
    let parts: Vec<&Part> = PARTS.iter().filter(is_wanted).collect();
    assert!(!parts.is_empty(), "there is no such part: {part:?}");
    if length == Length::Full {
        let seconds: u64 = parts.iter().map(|part| part.seconds).sum();
        eprintln!("this takes {seconds} seconds at most, once everything is built");
    }
    println!("\n## The gateway\n\n{}", machine());
    servers::prepare();
    for Part { name, measure, .. } in parts {
        let (before, began) = (Others::now(), Instant::now());
        measure(&plan);
        println!(
            "\n`{name}` took {:.0} s; other processes took {:.0} % of the machine meanwhile.",
            began.elapsed().as_secs_f64(),
            Others::now().share_since(&before) * 100.0
        );
    }
}

/// Where and with what it is measured.
fn machine() -> String {
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let versions = [("nginx", "-v"), ("haproxy", "-v"), ("wrk", "-v")].map(|(program, flag)| {
        servers::version(program, flag).unwrap_or_else(|| format!("no {program}"))
    });
    format!("{cores} cores, {}; {}.", model.unwrap_or("unknown"), versions.join("; "))
}

/// Serves until the process is killed. The server is a name and a number of threads.
pub(crate) fn serve(server: &str, upstream: &str) {
    let (server, threads) = server.split_once(':').unwrap_or((server, "1"));
    let threads = threads.parse().expect("a number of threads");
    match server {
        "bare" => bare::serve(threads, upstream),
        "floor" => floor::serve(Case::NoLimit, threads, upstream),
        "floor-untold" => floor::serve(Case::Untold, threads, upstream),
        "floor-admitting" => floor::serve(Case::Allowed, threads, upstream),
        "floor-refusing" => floor::serve(Case::Refused, threads, upstream),
        "floor-refusing-all" => floor::serve(Case::AllRefused, threads, upstream),
        _ => panic!("there is no server {server}"),
    }
}
