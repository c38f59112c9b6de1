//! What is admitted of a client that asks without a pause, beside what was configured.

use std::collections::HashSet;
use std::time::Duration;

use super::Plan;
use super::client::{Answers, Target, saturate};
use super::servers::{NGINX_PASS, Setting, nginx, nginx_upstream, tidegate, upstream};
use crate::service::child::Child;

/// A limit that is measured. None of them sets a burst.
#[derive(Clone, Copy, Debug)]
struct Limit {
    units: u64,
    per: Duration,
    /// What a request takes of it.
    cost: u64,
}

const SECOND: Duration = Duration::from_secs(1);

/// Those that take their time, all at once.
const SLOW: [Limit; 2] = [
    Limit { units: 1, per: Duration::from_secs(60), cost: 1 },
    Limit { units: 10, per: SECOND, cost: 1 },
];

/// Those that have the machine to themselves, one after the other.
const FAST: [Limit; 4] = [
    Limit { units: 600, per: SECOND, cost: 1 },
    Limit { units: 10_000, per: SECOND, cost: 1 },
    // Where no machine can send so many, fewer that cost more show the same.
    Limit { units: 100_000, per: SECOND, cost: 10 },
    Limit { units: 100_000, per: SECOND, cost: 1 },
];

/// How a limit is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Bucket,
    Window,
    Nginx,
}

impl Way {
    const ALL: [Self; 3] = [Self::Bucket, Self::Window, Self::Nginx];

    fn name(self) -> &'static str {
        match self {
            Self::Bucket => "tidegate `token_bucket`",
            Self::Window => "tidegate `fixed_window`",
            Self::Nginx => "nginx `limit_req`",
        }
    }

    fn algorithm(self) -> &'static str {
        if self == Self::Window { "fixed_window" } else { "token_bucket" }
    }
}

impl Limit {
    /// Where its requests go.
    fn path(self, way: Way) -> String {
        format!("/{way:?}-{}-{}-{}", self.units, self.per.as_secs(), self.cost).to_lowercase()
    }

    fn name(self) -> String {
        let unit = if self.per == SECOND { "s" } else { "min" };
        let cost = match self.cost {
            1 => String::new(),
            cost => format!(", a request costs {cost}"),
        };
        format!("{}/{unit}{cost}", self.units)
    }

    /// Requests in a period.
    fn requests(self) -> f64 {
        self.units as f64 / self.cost as f64
    }

    fn per_second(self) -> f64 {
        self.requests() / self.per.as_secs_f64()
    }
}

/// Measures and prints the table.
pub(super) fn run(plan: &Plan) {
    let setting = Setting::ONE_THREAD;
    let upstream = upstream(setting);
    let ours = tidegate(Setting::TWO_THREADS, &rules(), &upstream.address);
    let nginx = nginx_with_limits(setting, &upstream.address);
    println!("\n### Admitted of a client that asks without a pause, no burst set\n");
    println!(
        "Buckets are counted from their first request to their last refusal, less what was in \
         them at first; windows\nfrom end to end. Slow ones run at the same time, fast ones alone.\n"
    );
    println!(
        "| configured | kept by | offered per second | admitted, counted over | rate | error |"
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    let target = |limit: Limit, way: Way, connections: usize| Target {
        address: if way == Way::Nginx { &nginx } else { &ours }.address.clone(),
        path: limit.path(way),
        connections,
    };
    if let Some(lasting) = plan.slow_rates {
        let all: Vec<(Limit, Way)> =
            SLOW.iter().flat_map(|limit| Way::ALL.map(|way| (*limit, way))).collect();
        let targets: Vec<Target> = all.iter().map(|(limit, way)| target(*limit, *way, 4)).collect();
        for ((limit, way), answers) in all.iter().zip(saturate(&targets, lasting)) {
            print(*limit, *way, &answers);
        }
    }
    for limit in &FAST[..plan.fast_rates] {
        for way in Way::ALL {
            // nginx knows no costs.
            if way != Way::Nginx || limit.cost == 1 {
                let answers = saturate(&[target(*limit, way, 64)], plan.fast_rates_for);
                print(*limit, way, &answers[0]);
            }
        }
    }
}

fn rules() -> String {
    let (mut http, mut limits) = (String::new(), String::new());
    for limit in SLOW.iter().chain(&FAST) {
        for way in [Way::Bucket, Way::Window] {
            let (path, cost, algorithm) = (limit.path(way), limit.cost, way.algorithm());
            http.push_str(&format!(
                "  - {{ match: {{ path: \"{path}\" }}, descriptors: [ {{ path: \"{path}\" }} ], \
                 cost: {cost} }}\n"
            ));
            limits.push_str(&format!(
                "  - {{ key: path, value: \"{path}\", rate_limit: {{ requests_per_unit: {}, \
                 per: {}s, algorithm: {algorithm} }} }}\n",
                limit.units,
                limit.per.as_secs(),
            ));
        }
    }
    format!("domain: bench\nhttp:\n{http}descriptors:\n{limits}")
}

fn nginx_with_limits(setting: Setting, upstream: &str) -> Child {
    let (mut zones, mut places) = (String::new(), String::new());
    for (at, limit) in SLOW.iter().chain(&FAST).enumerate() {
        let unit = if limit.per == SECOND { "s" } else { "m" };
        let (path, rate) = (limit.path(Way::Nginx), limit.units);
        zones.push_str(&format!(
            "limit_req_zone $binary_remote_addr zone=z{at}:1m rate={rate}r/{unit};\n"
        ));
        places.push_str(&format!("location {path} {{ limit_req zone=z{at}; {NGINX_PASS} }}\n"));
    }
    nginx(setting, |address| {
        format!(
            "limit_req_status 429; {}\n{zones} server {{ listen {address}; {places} }}",
            nginx_upstream(upstream)
        )
    })
}

/// What was admitted, as it is to be counted.
struct Counted {
    text: String,
    per_second: f64,
}

fn print(limit: Limit, way: Way, answers: &Answers) {
    let counted = match way {
        Way::Window => count_windows(limit, answers),
        _ => count_earned(limit, way, answers),
    };
    let (name, way, offered) = (limit.name(), way.name(), answers.offered_per_second());
    match counted {
        None => println!(
            "| {name} | {way} | {offered:.0} | {} in {:.3} s | - | too little was offered |",
            answers.admitted.len(),
            answers.lasted.as_secs_f64(),
        ),
        Some(Counted { text, per_second }) => {
            let error = (per_second / limit.per_second() - 1.0) * 100.0;
            let shown = per_second * limit.cost as f64 * limit.per.as_secs_f64();
            println!("| {name} | {way} | {offered:.0} | {text} | {shown:.3} | **{error:+.2} %** |");
        }
    }
}

/// A bucket is full when the first request comes, and earns from then on, unless it is full. It is
/// empty when it refuses: what was admitted until then, less what was there at first, was earned
/// since. nginx has nothing in advance but the one request.
fn count_earned(limit: Limit, way: Way, answers: &Answers) -> Option<Counted> {
    let burst = if way == Way::Nginx { 1 } else { limit.requests() as usize };
    let empty = answers.refused.last()?;
    let until = answers.admitted.partition_point(|time| time <= empty);
    let earned = until.checked_sub(burst).filter(|earned| *earned > 0)?;
    let full = if way == Way::Bucket { was_full(limit, answers) } else { 0.0 };
    let lasted = (answers.admitted[until - 1] - answers.admitted[0]).as_secs_f64() - full;
    let text = format!("{earned} in {lasted:.3} s, after {burst} at first");
    Some(Counted { text, per_second: earned as f64 / lasted })
}

/// The seconds before the first refusal in which less was asked for than a bucket earns, so that it
/// was full. Later there is no such excuse.
fn was_full(limit: Limit, answers: &Answers) -> f64 {
    let most = limit.requests();
    let until = answers.refused.first().copied().unwrap_or_default();
    let (mut level, mut before, mut lost) = (most, Duration::ZERO, 0.0);
    for time in answers.admitted.iter().take_while(|time| **time < until) {
        level += (*time - before).as_secs_f64() * limit.per_second();
        // What was earned until the first request does not count either way.
        lost += if before.is_zero() { 0.0 } else { (level - most).max(0.0) };
        (level, before) = (level.min(most) - 1.0, *time);
    }
    lost / limit.per_second()
}

/// Windows begin at whole multiples of their length since 1970. Those are counted that were seen
/// from end to end, or all if that is none; and of them those that still refused towards their end,
/// for others were not offered enough, and behind others of that kind, for otherwise answers of the
/// one before are among theirs.
fn count_windows(limit: Limit, answers: &Answers) -> Option<Counted> {
    let length = limit.per.as_nanos();
    let since_1970 = |time: Duration| answers.wall(time).as_nanos();
    let window = |time: Duration| since_1970(time) / length;
    let (first, last) = (window(Duration::ZERO), window(answers.lasted));
    let (seen, kind) = match last - first {
        0 | 1 => (first..=last, "windows, not seen from end to end"),
        _ => (first + 1..=last - 1, "whole windows"),
    };
    let is_late = |time: &Duration| since_1970(*time) % length > length / 2;
    let refused: HashSet<u128> =
        answers.refused.iter().copied().filter(is_late).map(window).collect();
    let is_full = |window: &u128| {
        refused.contains(window) && (*window == first || refused.contains(&(window - 1)))
    };
    let full: HashSet<u128> = seen.filter(is_full).collect();
    if full.is_empty() {
        return None;
    }
    let count = answers.admitted.iter().filter(|time| full.contains(&window(**time))).count();
    let text = format!("{count} in {} {kind}", full.len());
    let per_second = count as f64 / full.len() as f64 / limit.per.as_secs_f64();
    Some(Counted { text, per_second })
}
