//! Requests that are held back: how evenly the upstream gets them, in which order, and how often.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::Plan;
use super::client::{Conn, get, on_runtime};
use super::servers::{NGINX_PASS, Setting, nginx, nginx_upstream, reuse_port, tidegate};
use super::spread::at;
use crate::service::child::Child;

/// How many requests of a key are under way at any time.
const IN_FLIGHT: usize = 64;
/// More than that can wait.
const QUEUE: usize = 100;

/// What opening the ways to the upstream takes.
const OPENING: Duration = Duration::from_millis(100);

/// What a client's first requests are apart, so that it is certain which was first.
const APART: Duration = Duration::from_millis(2);

/// A load.
#[derive(Clone, Copy, Debug)]
struct Load {
    /// How many requests a second of each key are let out.
    rate: u64,
    keys: usize,
    setting: Setting,
}

const LOADS: [Load; 5] = [
    Load { rate: 100, keys: 1, setting: Setting::ONE_THREAD },
    Load { rate: 100, keys: 8, setting: Setting::ONE_THREAD },
    Load { rate: 100, keys: 8, setting: Setting::TWO_THREADS },
    Load { rate: 600, keys: 1, setting: Setting::ONE_THREAD },
    Load { rate: 1000, keys: 1, setting: Setting::ONE_THREAD },
];

/// A request that arrived at the upstream.
#[derive(Clone, Copy, Debug)]
struct Arrival {
    key: usize,
    number: u64,
    at: Instant,
}

/// An upstream that writes down what arrives, and answers by the number of the request.
struct Upstream {
    address: SocketAddr,
    arrivals: Arc<Mutex<Vec<Arrival>>>,
}

impl Upstream {
    /// Starts one that lasts as long as this program, on a thread of its own.
    fn start() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a listener that does not block");
        let address = listener.local_addr().expect("its address");
        let arrivals = Arc::new(Mutex::new(Vec::with_capacity(1 << 16)));
        let noted = Arc::clone(&arrivals);
        std::thread::spawn(move || {
            on_runtime(async {
                let listener = TcpListener::from_std(listener).expect("a listener");
                loop {
                    let (stream, _) = listener.accept().await.expect("a connection");
                    tokio::spawn(answer(stream, Arc::clone(&noted)));
                }
            });
        });
        Self { address, arrivals }
    }

    /// What arrived since the last time.
    fn take(&self) -> Vec<Arrival> {
        std::mem::take(&mut *self.arrivals.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn answer(mut stream: TcpStream, noted: Arc<Mutex<Vec<Arrival>>>) {
    // Not worth a request.
    let _ = stream.set_nodelay(true);
    let mut buffer = Vec::with_capacity(4096);
    loop {
        match stream.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let now = Instant::now();
        if !buffer.ends_with(b"\r\n\r\n") {
            continue;
        }
        let body = match read_path(&buffer) {
            Some((key, number)) => {
                let mut noted = noted.lock().unwrap_or_else(PoisonError::into_inner);
                noted.push(Arrival { key, number, at: now });
                number.to_string()
            }
            // One that only opens the way: it takes so long that others have to find their own.
            None => {
                tokio::time::sleep(OPENING).await;
                String::new()
            }
        };
        buffer.clear();
        let text = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// The key and the number in `GET /key/number HTTP/1.1`.
fn read_path(request: &[u8]) -> Option<(usize, u64)> {
    let line = std::str::from_utf8(request).ok()?.lines().next()?;
    let (key, number) = line.split(' ').nth(1)?.strip_prefix('/')?.split_once('/')?;
    Some((key.parse().ok()?, number.parse().ok()?))
}

/// Measures and prints the table.
pub(super) fn run(plan: &Plan) {
    println!("\n### Requests that are held back, as the upstream gets them\n");
    println!(
        "{IN_FLIGHT} requests of each key are under way at any time, numbered as they leave the \
         client; what two threads\nof a proxy take at the same time has no order.\n"
    );
    println!(
        "| configured | by | requests | rate of a key | off the exact spacing: mean | p50 | p99 \
         | most | overtaken, by at most | seen twice or never | wrong answers |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let upstream = Upstream::start();
    let address = upstream.address.to_string();
    for load in &LOADS[..plan.delays] {
        let ours = tidegate(load.setting, &rules(load.rate), &address);
        measure("tidegate", &ours, &upstream, *load, plan.delay_for);
        drop(ours);
        let nginx = nginx_that_delays(*load, &address);
        measure("nginx", &nginx, &upstream, *load, plan.delay_for);
    }
}

fn rules(rate: u64) -> String {
    format!(
        "domain: bench\n\
         http: [ {{ match: {{ path: \"/{{key}}/{{number}}\" }}, \
         descriptors: [ {{ key: \"${{path.key}}\" }} ] }} ]\n\
         descriptors:\n  - {{ key: key, rate_limit: {{ requests_per_unit: {rate}, unit: second, \
         algorithm: leaky_bucket, queue: {{ size: {QUEUE}, max_delay: 30s }}, excess: delay }} }}\n"
    )
}

fn nginx_that_delays(load: Load, upstream: &str) -> Child {
    let rate = load.rate;
    nginx(load.setting, |address| {
        format!(
            "map $uri $first {{ \"~^/(?<key>[0-9]+)/\" $key; }}\n\
             limit_req_zone $first zone=keys:1m rate={rate}r/s; limit_req_status 429; {}\n\
             server {{ listen {address}{}; location / {{ limit_req zone=keys burst={QUEUE}; \
             {NGINX_PASS} }} }}",
            nginx_upstream(upstream),
            reuse_port(load.setting),
        )
    })
}

/// What a client saw.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    answers: u64,
    /// Answers that were not the one to the request.
    wrong: u64,
}

/// What came of one load.
#[derive(Debug, Default)]
struct Outflow {
    /// How far each two arrivals were off the exact spacing, in microseconds.
    off: Vec<f64>,
    /// All spacings together.
    lasted: f64,
    overtaken: usize,
    /// By how much, at most, in microseconds.
    overtaken_by: f64,
    /// Requests that arrived twice, or never though later ones did.
    amiss: u64,
}

impl Outflow {
    fn of(arrivals: &[Arrival], load: Load) -> Self {
        let mut this = Self::default();
        for key in 0..load.keys {
            this.add(
                &arrivals.iter().copied().filter(|it| it.key == key).collect::<Vec<_>>(),
                load,
            );
        }
        this.off.sort_by(f64::total_cmp);
        this
    }

    /// Those of one key, as they arrived.
    fn add(&mut self, arrivals: &[Arrival], load: Load) {
        let micros = |from: Instant, to: Instant| to.duration_since(from).as_secs_f64() * 1e6;
        for two in arrivals.windows(2) {
            let apart = micros(two[0].at, two[1].at);
            self.off.push((apart - 1e6 / load.rate as f64).abs());
            self.lasted += apart;
        }
        let mut latest: Option<Arrival> = None;
        for arrival in arrivals {
            match latest {
                Some(latest) if latest.number > arrival.number => {
                    let by = micros(latest.at, arrival.at);
                    self.overtaken += 1;
                    self.overtaken_by = self.overtaken_by.max(by);
                }
                _ => latest = Some(*arrival),
            }
        }
        let mut numbers: Vec<u64> = arrivals.iter().map(|arrival| arrival.number).collect();
        numbers.sort_unstable();
        let twice = numbers.windows(2).filter(|two| two[0] == two[1]).count() as u64;
        let last = numbers.last().map_or(0, |last| last + 1);
        let never = last - (numbers.len() as u64 - twice);
        self.amiss += twice + never;
    }
}

fn measure(name: &str, child: &Child, upstream: &Upstream, load: Load, lasting: Duration) {
    upstream.take();
    let seen = on_runtime(ask_all(&child.address, load.keys, lasting));
    let arrivals = upstream.take();
    let outflow = Outflow::of(&arrivals, load);
    let off = &outflow.off;
    println!(
        "| {}/s, {} keys, {} threads | {name} | {} | {:.2}/s | {:.0} us | {:.0} us | {:.0} us \
         | {:.0} us | {}, {:.0} us | {} | {} |",
        load.rate,
        load.keys,
        load.setting.threads,
        arrivals.len(),
        off.len() as f64 * 1e6 / outflow.lasted,
        off.iter().sum::<f64>() / off.len().max(1) as f64,
        at(off, 0.5),
        at(off, 0.99),
        at(off, 1.0),
        outflow.overtaken,
        outflow.overtaken_by,
        outflow.amiss + (arrivals.len() as u64).abs_diff(seen.answers),
        seen.wrong,
    );
}

/// Keeps so many requests of each key under way, for a while; then waits for the last ones.
async fn ask_all(address: &str, keys: usize, lasting: Duration) -> Seen {
    // Connecting would let a request fall behind those that need not.
    let mut opening = Vec::new();
    for place in 0..IN_FLIGHT * keys {
        let mut conn = Conn::open(address).await;
        opening.push(tokio::spawn(async move {
            conn.ask(&get("/")).await;
            (place % keys, conn)
        }));
    }
    let mut conns = Vec::new();
    for conn in opening {
        conns.push(conn.await.expect("a way that opens"));
    }
    let next: Vec<_> = (0..keys).map(|_| Arc::new(AtomicU64::new(0))).collect();
    let ends = Instant::now() + lasting;
    let mut tasks = Vec::new();
    for (key, conn) in conns {
        tasks.push(tokio::spawn(ask_on(conn, key, Arc::clone(&next[key]), ends)));
        if key + 1 == keys {
            tokio::time::sleep(APART).await;
        }
    }
    let mut all = Seen::default();
    for task in tasks {
        let seen = task.await.expect("the load does not fail");
        (all.answers, all.wrong) = (all.answers + seen.answers, all.wrong + seen.wrong);
    }
    all
}

async fn ask_on(mut conn: Conn, key: usize, next: Arc<AtomicU64>, ends: Instant) -> Seen {
    let mut seen = Seen::default();
    while Instant::now() < ends {
        // The number is drawn and the request written in one go: as all of this is one thread,
        // requests leave in the order of their numbers.
        let number = next.fetch_add(1, Relaxed);
        let status = conn.ask(&get(&format!("/{key}/{number}"))).await;
        assert_eq!(status, 200, "a request that was to wait");
        seen.answers += 1;
        seen.wrong += u64::from(conn.body() != number.to_string().as_bytes());
    }
    seen
}
