//! The service on loopback: CPU per request, requests per second and latency, beside servers that
//! only answer, and beside Redis.
//!
//! Every server is a process of its own, so that its CPU time is its own. Rivals take turns within
//! each round; read the ratios of the medians.

pub(crate) mod child;
mod grpc;
mod http;
mod resp;
mod servers;
mod tower;

pub(crate) use self::child::Child;
pub(crate) use self::resp::SCRIPT as GCRA_SCRIPT;

/// A front end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Grpc,
    Http,
    Resp,
    Tower,
}

impl Part {
    pub(crate) const ALL: [Self; 4] = [Self::Grpc, Self::Http, Self::Resp, Self::Tower];

    pub(crate) fn named(name: &str) -> Self {
        match name {
            "grpc" => Self::Grpc,
            "http" => Self::Http,
            "resp" => Self::Resp,
            "tower" => Self::Tower,
            _ => panic!("there is no front end {name}"),
        }
    }
}

/// How long to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    Full,
    Smoke,
}

impl Length {
    pub(crate) fn rounds(self) -> usize {
        if self == Self::Full { 9 } else { 1 }
    }

    /// Requests of one measurement.
    pub(crate) fn requests(self) -> usize {
        if self == Self::Full { 100_000 } else { 500 }
    }

    fn keys(self) -> &'static [usize] {
        if self == Self::Full { &[1, 100_000, 1_000_000] } else { &[1] }
    }
}

/// What one load did to one server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) cpu_us: f64,
    pub(crate) per_second: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

impl Measured {
    fn new(requests: usize, seconds: f64, cpu_seconds: f64, latencies_ns: &mut [u64]) -> Self {
        latencies_ns.sort_unstable();
        let at = |share: f64| {
            let index = (latencies_ns.len().saturating_sub(1) as f64 * share) as usize;
            latencies_ns.get(index).map_or(0.0, |ns| *ns as f64 / 1e3)
        };
        Self {
            cpu_us: cpu_seconds * 1e6 / requests as f64,
            per_second: requests as f64 / seconds,
            p50_us: at(0.5),
            p99_us: at(0.99),
        }
    }
}

/// Measures the front ends and prints their tables.
pub(crate) fn run(length: Length, parts: &[Part]) {
    for part in parts {
        match part {
            Part::Grpc => grpc::run(length),
            Part::Http => http::run(length),
            Part::Resp => resp::run(length),
            Part::Tower => tower::run(length),
        }
    }
}

/// Serves until it is killed.
pub(crate) fn serve(server: &str, store: Option<&str>) {
    servers::serve(server, store);
}

/// Loads a server that somebody else has started, for a profiler to look at.
pub(crate) fn load(part: Part, address: &str, keys: usize, seconds: usize) {
    let began = std::time::Instant::now();
    while began.elapsed().as_secs() < seconds as u64 {
        let measured = match part {
            Part::Grpc => grpc::load(address, keys, 50_000, || 0.0),
            Part::Http => http::load(address, keys, 50_000, || 0.0),
            Part::Resp => resp::load(address, "throttle", keys, 200_000, 1, || 0.0),
            Part::Tower => tower::load(address, keys, 50_000, || 0.0),
        };
        println!("{:.0} per second", measured.per_second);
    }
}

/// What a rival was measured at, in each round.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) rounds: Vec<Measured>,
}

/// Prints a table; the first row is what the others are compared with.
pub(crate) fn print(title: &str, rows: &[Row]) {
    println!("\n### {title}\n");
    println!("| server | CPU per request | ratio | requests per second | ratio | p50 | p99 |");
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let Some(first) = rows.first() else { return };
    let (base_cpu, base_rate) =
        (median(&first.rounds, |it| it.cpu_us), median(&first.rounds, |it| it.per_second));
    for row in rows {
        let cpu = median(&row.rounds, |it| it.cpu_us);
        let rate = median(&row.rounds, |it| it.per_second);
        let spread = |of: fn(&Measured) -> f64| {
            let all = row.rounds.iter().map(of);
            let (low, high) =
                all.fold((f64::MAX, 0.0_f64), |(low, high), it| (low.min(it), high.max(it)));
            format!("{low:.1}-{high:.1}")
        };
        println!(
            "| {} | {cpu:.1} us [{}] | {:.2}x | {rate:.0} | {:.2}x | {:.0} us | {:.0} us |",
            row.name,
            spread(|it| it.cpu_us),
            cpu / base_cpu,
            rate / base_rate,
            median(&row.rounds, |it| it.p50_us),
            median(&row.rounds, |it| it.p99_us),
        );
    }
}

fn median(rounds: &[Measured], of: impl Fn(&Measured) -> f64) -> f64 {
    let mut all: Vec<f64> = rounds.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(0.0)
}

/// Lets the rivals take turns. `load` says what one of them did, given its process.
fn take_turns(
    length: Length,
    servers: &[(&str, Child)],
    mut load: impl FnMut(&str, &Child) -> Measured,
) -> Vec<Row> {
    let mut rows: Vec<Row> = servers
        .iter()
        .map(|(name, _)| Row { name: (*name).to_owned(), rounds: Vec::new() })
        .collect();
    for _ in 0..length.rounds() {
        for (row, (name, child)) in rows.iter_mut().zip(servers) {
            row.rounds.push(load(name, child));
        }
    }
    rows
}

/// A number that looks drawn, from the one before.
pub(crate) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}
