//! What a request costs the service where the counters are in Redis, and how much there is of it for
//! several processes and several limits.

use std::time::Instant;

use tidegate_proto::{Code, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitServiceClient};
use tonic::transport::{Channel, Endpoint};

use super::middle;
use super::wire::{ask, cpu_us};
use crate::service::{Child, Length, next};

/// As an Envoy with a few workers: connections, and requests in flight on each.
const CONNECTIONS: usize = 4;
const IN_FLIGHT: usize = 8;
const KEYS: u64 = 100_000;

/// What one load did.
#[derive(Default)]
struct Seen {
    per_second: Vec<f64>,
    p50_us: Vec<f64>,
    p99_us: Vec<f64>,
    service_us: Vec<f64>,
    redis_us: Vec<f64>,
}

impl Seen {
    /// Loads services, which may share a Redis.
    fn measure(&mut self, services: &[Child], redis: Option<&Child>, limits: usize, total: usize) {
        let service_cpu = || services.iter().map(Child::cpu_seconds).sum::<f64>() * 1e6;
        let redis_cpu = || redis.map_or(0.0, |redis| cpu_us(&redis.address));
        let before = (service_cpu(), redis_cpu());
        let (mut latencies, seconds) = load(services, limits, total);
        let requests = latencies.len() as f64;
        self.service_us.push((service_cpu() - before.0) / requests);
        self.redis_us.push((redis_cpu() - before.1) / requests);
        self.per_second.push(requests / seconds);
        latencies.sort_unstable();
        let at = |share: f64| latencies[((requests - 1.0) * share) as usize] as f64 / 1e3;
        self.p50_us.push(at(0.5));
        self.p99_us.push(at(0.99));
    }
}

/// The store in Redis beside the one in memory.
pub(super) fn run(length: Length) {
    let redis = Child::redis();
    let servers = [
        ("memory", vec![Child::fleet("memory")]),
        ("Redis", vec![Child::fleet(&format!("redis://{}", redis.address))]),
    ];
    println!(
        "\n### gRPC, {CONNECTIONS} connections with {IN_FLIGHT} in flight, {KEYS} keys, one limit\n"
    );
    println!(
        "| store | CPU of the service per request | ratio | CPU of Redis | requests per second | p50 | p99 |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let mut seen = [Seen::default(), Seen::default()];
    for _ in 0..length.rounds() {
        for ((_, services), seen) in servers.iter().zip(&mut seen) {
            seen.measure(services, Some(&redis), 1, length.requests());
        }
    }
    let base = middle(&mut seen[0].service_us.clone()).0;
    for ((name, _), seen) in servers.iter().zip(&mut seen) {
        let (cpu, low, high) = middle(&mut seen.service_us);
        println!(
            "| {name} | {cpu:.1} us [{low:.1}-{high:.1}] | {:.2}x | {:.1} us | {:.0} | {:.0} us | {:.0} us |",
            cpu / base,
            middle(&mut seen.redis_us).0,
            middle(&mut seen.per_second).0,
            middle(&mut seen.p50_us).0,
            middle(&mut seen.p99_us).0,
        );
    }
}

/// Several processes, several limits.
pub(super) fn processes(length: Length) {
    println!("\n### Processes on one Redis, gRPC, {KEYS} keys\n");
    println!(
        "| processes | limits of a request | requests per second | p50 | p99 | CPU of the services per request | CPU of Redis |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    let redis = Child::redis();
    let url = format!("redis://{}", redis.address);
    let fleets: Vec<Vec<Child>> =
        [1, 2, 4].map(|count| (0..count).map(|_| Child::fleet(&url)).collect()).into();
    let limits = [1, 2, 5];
    let mut seen: Vec<Seen> = Vec::new();
    seen.resize_with(fleets.len() * limits.len(), Seen::default);
    for _ in 0..length.rounds() {
        for (fleet, seen) in fleets.iter().zip(seen.chunks_mut(limits.len())) {
            for (limits, seen) in limits.iter().zip(seen) {
                seen.measure(fleet, Some(&redis), *limits, length.requests() / 2);
            }
        }
    }
    for (fleet, seen) in fleets.iter().zip(seen.chunks_mut(limits.len())) {
        for (limits, seen) in limits.iter().zip(seen) {
            let (rate, low, high) = middle(&mut seen.per_second);
            println!(
                "| {} | {limits} | {rate:.0} [{low:.0}-{high:.0}] | {:.0} us | {:.0} us | {:.1} us | {:.1} us |",
                fleet.len(),
                middle(&mut seen.p50_us).0,
                middle(&mut seen.p99_us).0,
                middle(&mut seen.service_us).0,
                middle(&mut seen.redis_us).0,
            );
        }
    }
}

/// How often Redis is asked.
pub(super) fn calls(length: Length) {
    let redis = Child::redis();
    let fleet = [Child::fleet(&format!("redis://{}", redis.address))];
    println!("\n### Commands of the service to Redis, per request\n");
    println!("| limits of a request | `EVALSHA` per request |\n| --- | --- |");
    for limits in [1, 2, 5] {
        load(&fleet, limits, CONNECTIONS * IN_FLIGHT);
        let before = evalsha(&redis);
        let requests = load(&fleet, limits, length.requests() / 5).0.len();
        println!("| {limits} | {:.4} |", (evalsha(&redis) - before) / requests as f64);
    }
}

fn evalsha(redis: &Child) -> f64 {
    let info = ask(&redis.address, &["INFO", "commandstats"]);
    let line = info.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls="));
    line.and_then(|line| line.split(',').next()?.parse().ok()).unwrap_or(0.0)
}

/// Requests over all services; how long each took, and all together in seconds.
fn load(services: &[Child], limits: usize, total: usize) -> (Vec<u64>, f64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut channels = Vec::new();
        for index in 0..CONNECTIONS.max(services.len()) {
            let address = &services[index % services.len()].address;
            let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
            channels.push(endpoint.connect().await.expect("a connection"));
        }
        let began = Instant::now();
        let each = total / (channels.len() * IN_FLIGHT);
        let tasks: Vec<_> = (0..channels.len() * IN_FLIGHT)
            .map(|task| {
                let channel = channels[task % channels.len()].clone();
                tokio::spawn(requests(channel, task as u64 + 1, limits, each))
            })
            .collect();
        let mut latencies = Vec::with_capacity(total);
        for task in tasks {
            latencies.extend(task.await.expect("the load does not fail"));
        }
        (latencies, began.elapsed().as_secs_f64())
    })
}

async fn requests(channel: Channel, mut seed: u64, limits: usize, count: usize) -> Vec<u64> {
    let mut client = RateLimitServiceClient::new(channel);
    let mut latencies = Vec::with_capacity(count);
    for _ in 0..count {
        // Each limit counts something else of the request: the user, the address, the plan...
        let descriptors = ["user", "ip", "plan", "path", "host"].iter().take(limits).map(|key| {
            let value = format!("{key}{:012}", next(&mut seed) % KEYS);
            let entry = Entry { key: (*key).into(), value };
            RateLimitDescriptor { entries: vec![entry], ..Default::default() }
        });
        let request = RateLimitRequest {
            domain: "bench".into(),
            descriptors: descriptors.collect(),
            hits_addend: 1,
        };
        let began = Instant::now();
        let answer = client.should_rate_limit(request).await.expect("an answer");
        latencies.push(began.elapsed().as_nanos() as u64);
        assert_eq!(answer.get_ref().overall_code, i32::from(Code::Ok));
    }
    latencies
}
