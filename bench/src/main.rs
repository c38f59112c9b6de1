//! Speed and memory of the limiter and of the service beside their peers, in one run.
//!
//! `cargo run --release -p tidegate-bench` prints the tables of `bench/RESULTS.md`. Rivals take
//! turns within each round, so that a disturbed moment disturbs them all; read the ratios.

mod fleet;
mod gateway;
mod matching;
mod memory;
mod rivals;
mod service;
mod speed;
mod workload;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            speed::run(speed::Length::Full);
            matching::run(9, 200_000);
            memory::run();
        }
        ["smoke"] => {
            speed::run(speed::Length::Smoke);
            matching::run(1, 1_000);
            service::run(service::Length::Smoke, &service::Part::ALL);
            fleet::run(service::Length::Smoke, None);
            gateway::run(service::Length::Smoke, None);
        }
        // The service on loopback beside bare servers and Redis.
        ["service"] => service::run(service::Length::Full, &service::Part::ALL),
        ["service", part] => service::run(service::Length::Full, &[service::Part::named(part)]),
        // A fleet on Redis: what it costs Redis and the service.
        ["fleet"] => fleet::run(service::Length::Full, None),
        ["fleet", part] => fleet::run(service::Length::Full, Some(part)),
        // One server in a process of its own, until it is killed; one load on an address.
        ["serve", server] => service::serve(server, None),
        ["serve", server, store] if server.starts_with("tidegate-") => {
            service::serve(server, Some(store));
        }
        ["serve", proxy, upstream] => gateway::serve(proxy, upstream),
        // The gateway beside nginx and haproxy; build it with `--profile lto`.
        ["gateway"] => gateway::run(service::Length::Full, None),
        ["gateway", "--smoke"] => gateway::run(service::Length::Smoke, None),
        ["gateway", part] => gateway::run(service::Length::Full, Some(part)),
        ["gateway", part, "--smoke"] => gateway::run(service::Length::Smoke, Some(part)),
        ["load", part, address, keys, seconds] => {
            service::load(service::Part::named(part), address, number(keys), number(seconds));
        }
        ["matching"] => matching::run(9, 200_000),
        // Finding or deciding alone, for a profiler to look at.
        ["matching", what, rules] => matching::only(what, number(rules)),
        ["quick"] => speed::run(speed::Length::Quick),
        ["speed"] => speed::run(speed::Length::Full),
        ["memory"] => memory::run(),
        // All rivals under one workload: a piece of the tables, with rounds to choose.
        ["case", workload, threads, rounds] => {
            speed::case(workload, number(threads), number(rounds));
        }
        // One rival alone, for a profiler to look at.
        ["only", rival, workload] => speed::only(rival, workload, 1),
        ["only", rival, workload, threads] => speed::only(rival, workload, number(threads)),
        // One rival in a process of its own, so that nothing else is in its memory.
        ["fill", rival, keys] => memory::fill(rival, keys.parse().expect("a number of keys")),
        _ => {
            eprintln!(
                "usage: tidegate-bench [smoke | quick | speed | matching | memory | \
                 service [grpc | http | resp | tower] | gateway [cost | limits | keys | rates | delay | instructions] [--smoke] | \
                  fleet [script | service | processes | calls] | \
                 serve SERVER [STORE | UPSTREAM [RULES]] | load PART ADDRESS KEYS SECONDS | \
                 case WORKLOAD THREADS ROUNDS | only RIVAL WORKLOAD [THREADS]]"
            );
            std::process::exit(2);
        }
    }
}

fn number(text: &str) -> usize {
    text.parse().expect("a number")
}
