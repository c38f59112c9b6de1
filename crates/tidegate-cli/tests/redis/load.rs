//! Clients by the hundred: each keeps a connection to a service open, asks one thing after the
//! other, and remembers what came of it and how long that took.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{MissedTickBehavior, interval_at};

use crate::servers::wait_for;
use crate::support::serving::PATIENCE;

/// Who decided, as the answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Store,
    DenialCache,
    Fallback,
}

/// What a client saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Allowed(Source),
    Refused(Source),
    /// Another status, or a connection that broke (0).
    Failed(u16),
}

impl Seen {
    pub(crate) fn is_allowed(self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// Whether it was decided without the store.
    pub(crate) fn is_degraded(self) -> bool {
        matches!(self, Self::Allowed(Source::Fallback) | Self::Refused(Source::Fallback))
    }
}

/// One request and its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) sent: Instant,
    pub(crate) wait: Duration,
    /// Which of the questions.
    pub(crate) ask: usize,
    pub(crate) seen: Seen,
}

impl Event {
    pub(crate) fn answered(&self) -> Instant {
        self.sent + self.wait
    }
}

/// Who asks what, how often.
#[derive(Clone)]
pub(crate) struct Plan {
    /// Where services speak HTTP.
    pub(crate) services: Vec<String>,
    /// Bodies of checks; every client asks them in turn, each beginning with another.
    pub(crate) asks: Vec<String>,
    /// How many clients there are, spread over the services.
    pub(crate) clients: usize,
    /// How many requests all of them send in a second; as many as they can without it.
    pub(crate) per_second: Option<u32>,
    /// How many requests each of them sends; without it until they are told to stop.
    pub(crate) each: Option<usize>,
}

/// A load that is under way.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    answers: Arc<AtomicU64>,
    thread: JoinHandle<Vec<Event>>,
}

impl Load {
    pub(crate) fn start(plan: Plan) -> Self {
        let (stop, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (told, counted) = (Arc::clone(&stop), Arc::clone(&answers));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(run(plan, &told, &counted))
        });
        Self { stop, answers, thread }
    }

    /// Waits until so many more answers have come.
    pub(crate) fn wait_for_answers(&self, more: u64) {
        let goal = self.answers.load(Ordering::SeqCst) + more;
        wait_for("the load gets on", || {
            (self.answers.load(Ordering::SeqCst) >= goal).then_some(())
        });
    }

    /// Ends it; all answers, in the order in which they were asked for.
    pub(crate) fn stop(self) -> Vec<Event> {
        self.stop.store(true, Ordering::SeqCst);
        self.finish()
    }

    /// Waits until all have asked as often as they were to.
    pub(crate) fn finish(self) -> Vec<Event> {
        self.thread.join().unwrap()
    }
}

async fn run(plan: Plan, stop: &Arc<AtomicBool>, answers: &Arc<AtomicU64>) -> Vec<Event> {
    let plan = Arc::new(plan);
    let clients: Vec<_> = (0..plan.clients)
        .map(|index| {
            let (plan, stop, answers) = (Arc::clone(&plan), Arc::clone(stop), Arc::clone(answers));
            tokio::spawn(async move { client(index, &plan, &stop, &answers).await })
        })
        .collect();
    let mut events = Vec::new();
    for client in clients {
        events.extend(client.await.unwrap());
    }
    events.sort_by_key(|event| event.sent);
    events
}

async fn client(index: usize, plan: &Plan, stop: &AtomicBool, answers: &AtomicU64) -> Vec<Event> {
    let address = &plan.services[index % plan.services.len()];
    let mut pace = plan.per_second.map(|per_second| {
        let every = Duration::from_secs(1) * u32::try_from(plan.clients).unwrap() / per_second;
        let first = every * u32::try_from(index).unwrap() / u32::try_from(plan.clients).unwrap();
        let mut pace = interval_at(tokio::time::Instant::now() + first, every);
        pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
        pace
    });
    let (mut events, mut stream, mut buffer) = (Vec::new(), None, Vec::with_capacity(4096));
    while plan.each.is_none_or(|each| events.len() < each) && !stop.load(Ordering::SeqCst) {
        if let Some(pace) = &mut pace {
            pace.tick().await;
        }
        let ask = (index + events.len()) % plan.asks.len();
        let open = match stream.take() {
            Some(stream) => stream,
            None => connect(address).await,
        };
        let sent = Instant::now();
        let (seen, open) = check(open, &plan.asks[ask], &mut buffer).await;
        events.push(Event { sent, wait: sent.elapsed(), ask, seen });
        answers.fetch_add(1, Ordering::SeqCst);
        stream = open;
    }
    events
}

async fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// Asks, and gives the connection back if it is still good.
async fn check(
    mut stream: TcpStream,
    body: &str,
    buffer: &mut Vec<u8>,
) -> (Seen, Option<TcpStream>) {
    let length = body.len();
    let request = format!(
        "POST /v1/check HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    let talk = async {
        stream.write_all(request.as_bytes()).await.ok()?;
        read_answer(&mut stream, buffer).await
    };
    let answer = tokio::time::timeout(PATIENCE, talk).await.expect("everybody gets an answer");
    match answer {
        Some((status, body)) => (seen(status, &body), Some(stream)),
        None => (Seen::Failed(0), None),
    }
}

async fn read_answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<(u16, Vec<u8>)> {
    buffer.clear();
    loop {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
        let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&buffer[..end]).to_lowercase();
        let length = head.split("content-length: ").nth(1)?.split('\r').next()?;
        let (start, length) = (end + 4, length.parse::<usize>().ok()?);
        if buffer.len() >= start + length {
            let status = head.split(' ').nth(1)?.parse().ok()?;
            return Some((status, buffer[start..start + length].to_vec()));
        }
    }
}

fn seen(status: u16, body: &[u8]) -> Seen {
    // What `on_store_error: deny` is by HTTP.
    if status == 503 {
        return Seen::Refused(Source::Fallback);
    }
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let source = match body["source"].as_str() {
        Some("store") => Source::Store,
        Some("denial_cache") => Source::DenialCache,
        Some("fallback") => Source::Fallback,
        _ => return Seen::Failed(status),
    };
    match body["allowed"].as_bool() {
        Some(true) => Seen::Allowed(source),
        Some(false) => Seen::Refused(source),
        None => Seen::Failed(status),
    }
}
