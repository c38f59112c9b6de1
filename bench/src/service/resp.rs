//! RESP beside Redis: counting alone, and GCRA as a script.

use std::process::Command;

use super::{Child, Length, Measured, Row, print};

const CONNECTIONS: &str = "50";

/// GCRA as people write it for Redis: one key, times in microseconds.
pub(crate) const SCRIPT: &str = "
local now = redis.call('TIME')
now = now[1] * 1000000 + now[2]
local interval, capacity = tonumber(ARGV[1]), tonumber(ARGV[2])
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
local after = tat + interval
if after - now > interval * capacity then
    return {1, capacity, 0, math.ceil((after - now - interval * capacity) / 1000000), 0}
end
redis.call('SET', KEYS[1], string.format('%.0f', after), 'PX', math.ceil((after - now) / 1000))
local left = math.floor((interval * capacity - (after - now)) / interval)
return {0, capacity, left, -1, math.ceil((after - now) / 1000000)}
";

pub(super) fn run(length: Length) {
    let (ours, redis) = (Child::serve("tidegate-resp"), Child::redis());
    let loaded = cli(&redis, &["SCRIPT", "LOAD", SCRIPT]);
    let script = format!("evalsha {}", loaded.trim());
    let rivals = [
        ("Redis INCR", &redis, "incr"),
        ("Redis EVALSHA GCRA", &redis, &*script),
        ("tidegate CL.THROTTLE", &ours, "throttle"),
        ("tidegate TIDEGATE.CHECK", &ours, "check"),
        ("tidegate PING", &ours, "ping"),
    ];
    for pipeline in [1, 16] {
        for keys in length.keys() {
            let mut rows: Vec<Row> = rivals
                .iter()
                .map(|(name, ..)| Row { name: (*name).to_owned(), rounds: Vec::new() })
                .collect();
            for _ in 0..length.rounds() {
                for (row, (_, child, what)) in rows.iter_mut().zip(rivals) {
                    let requests = length.requests();
                    let cpu = || child.cpu_seconds();
                    row.rounds.push(load(&child.address, what, *keys, requests, pipeline, cpu));
                }
            }
            let title =
                format!("RESP, {CONNECTIONS} connections, pipeline {pipeline}, {keys} keys");
            print(&title, &rows);
        }
    }
}

fn cli(child: &Child, arguments: &[&str]) -> String {
    let output = Command::new("redis-cli").args(["-p", child.port()]).args(arguments).output();
    String::from_utf8(output.expect("redis-cli is installed").stdout).expect("text")
}

/// Lets redis-benchmark send requests.
pub(super) fn load(
    address: &str,
    what: &str,
    keys: usize,
    requests: usize,
    pipeline: usize,
    cpu_seconds: impl Fn() -> f64,
) -> Measured {
    let (host, port) = address.rsplit_once(':').expect("an address with a port");
    let key = "key:__rand_int__";
    let command: Vec<&str> = match what.split_once(' ') {
        Some((_, script)) => vec!["EVALSHA", script, "1", key, "1", "1000000000"],
        None if what == "incr" => vec!["INCR", key],
        None if what == "throttle" => vec!["CL.THROTTLE", key, "1000000000", "1000000000", "1000"],
        None if what == "check" => vec!["TIDEGATE.CHECK", "bench", "user", key],
        None => vec!["PING"],
    };
    let mut program = Command::new("redis-benchmark");
    program.args(["-h", host, "-p", port, "-c", CONNECTIONS, "--csv"]);
    program.args(["-n", &requests.to_string(), "-r", &keys.to_string()]);
    program.args(["-P", &pipeline.to_string()]).args(command);
    let cpu = cpu_seconds();
    let output = program.output().expect("redis-benchmark is installed");
    let cpu = cpu_seconds() - cpu;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = text.lines().last().unwrap_or_default();
    // "test","rps","avg","min","p50","p95","p99","max", with commas in the first one too.
    let fields: Vec<f64> = line
        .rsplit("\",\"")
        .take(7)
        .filter_map(|field| field.trim_matches('"').parse().ok())
        .collect();
    let [_max, p99, _p95, p50, _min, _average, per_second] = fields[..] else {
        panic!("redis-benchmark said {text:?} {}", String::from_utf8_lossy(&output.stderr));
    };
    Measured {
        cpu_us: cpu * 1e6 / requests as f64,
        per_second,
        p50_us: p50 * 1e3,
        p99_us: p99 * 1e3,
    }
}
