//! gRPC beside a bare tonic server.

use std::time::Instant;

use tidegate_proto::{Code, Entry, RateLimitDescriptor, RateLimitRequest, RateLimitServiceClient};
use tonic::transport::Endpoint;

use super::{Child, Length, Measured, next, print, take_turns};

/// As an Envoy with a few workers: connections, and requests in flight on each.
const CONNECTIONS: usize = 4;
const IN_FLIGHT: usize = 8;

pub(super) fn run(length: Length) {
    for keys in length.keys() {
        let servers =
            [("bare tonic", Child::serve("tonic")), ("tidegate", Child::serve("tidegate-grpc"))];
        let rows = take_turns(length, &servers, |_, child| {
            load(&child.address, *keys, length.requests(), || child.cpu_seconds())
        });
        let title =
            format!("gRPC, {CONNECTIONS} connections with {IN_FLIGHT} in flight, {keys} keys");
        print(&title, &rows);
    }
}

/// Sends requests and waits for all answers.
pub(super) fn load(
    address: &str,
    keys: usize,
    requests: usize,
    cpu_seconds: impl Fn() -> f64,
) -> Measured {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let each = requests / (CONNECTIONS * IN_FLIGHT);
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            let endpoint = Endpoint::from_shared(format!("http://{address}")).expect("an address");
            let channel = endpoint.tcp_nodelay(true).connect().await.expect("a connection");
            clients.push(RateLimitServiceClient::new(channel));
        }
        let (began, cpu) = (Instant::now(), cpu_seconds());
        let tasks = (0..CONNECTIONS * IN_FLIGHT).map(|task| {
            let client = clients[task % CONNECTIONS].clone();
            tokio::spawn(ask(client, task as u64 + 1, keys, each))
        });
        let mut latencies = Vec::with_capacity(requests);
        for task in tasks.collect::<Vec<_>>() {
            latencies.extend(task.await.expect("the load does not fail"));
        }
        let (seconds, cpu) = (began.elapsed().as_secs_f64(), cpu_seconds() - cpu);
        Measured::new(latencies.len(), seconds, cpu, &mut latencies)
    })
}

async fn ask(
    mut client: RateLimitServiceClient<tonic::transport::Channel>,
    mut seed: u64,
    keys: usize,
    requests: usize,
) -> Vec<u64> {
    let mut latencies = Vec::with_capacity(requests);
    for _ in 0..requests {
        let key = next(&mut seed) % keys as u64;
        let entry = Entry { key: "user".into(), value: format!("user{key:012}") };
        let descriptor = RateLimitDescriptor { entries: vec![entry], ..Default::default() };
        let request = RateLimitRequest {
            domain: "bench".into(),
            descriptors: vec![descriptor],
            hits_addend: 1,
        };
        let began = Instant::now();
        let answer = client.should_rate_limit(request).await.expect("an answer");
        latencies.push(began.elapsed().as_nanos() as u64);
        assert_eq!(answer.get_ref().overall_code, i32::from(Code::Ok));
    }
    latencies
}
