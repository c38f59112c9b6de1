//! The access log: a line of JSON for each request, written by a thread of its own.

use std::cell::Cell;
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use http::StatusCode;
use http::request::Parts;
use tidegate::Verdict;

use crate::config::{AccessLog, LogTo};

/// How many lines may wait to be written; more are left out and counted.
const LINES_MAX: usize = 4096;

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Forwarded,
    Delayed,
    Refused,
    Failed,
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Forwarded => "forwarded",
            Self::Delayed => "delayed",
            Self::Refused => "refused",
            Self::Failed => "failed",
        }
    }
}

/// What is written of a request.
pub(crate) struct Line {
    began: Instant,
    client: Option<IpAddr>,
    method: String,
    host: String,
    target: String,
    pub(crate) status: StatusCode,
    pub(crate) is_head: bool,
    pub(crate) outcome: Outcome,
    rule: Option<String>,
    upstream: Option<String>,
}

impl Line {
    pub(crate) fn begin(began: Instant) -> Box<Self> {
        Box::new(Self {
            began,
            client: None,
            method: String::new(),
            host: String::new(),
            target: String::new(),
            status: StatusCode::OK,
            is_head: false,
            outcome: Outcome::Forwarded,
            rule: None,
            upstream: None,
        })
    }

    pub(crate) fn set_request(&mut self, parts: &Parts, client: Option<IpAddr>) {
        self.client = client;
        self.method = parts.method.as_str().to_owned();
        let host = parts.headers.get(http::header::HOST);
        self.host = host.and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned();
        self.target = parts.uri.to_string();
    }

    pub(crate) fn set_verdict(&mut self, verdict: &Verdict) {
        if !verdict.allowed {
            self.outcome = Outcome::Refused;
            let reported = verdict.reported();
            self.rule = reported.map(|reported| verdict.rule_id(reported).into_owned());
        }
    }

    pub(crate) fn set_upstream(&mut self, upstream: &str) {
        self.upstream = Some(upstream.to_owned());
    }
}

/// One thread's way to the log.
pub(crate) struct Log {
    lines: SyncSender<String>,
    lost: Arc<AtomicU64>,
    refusals_one_in: u32,
    refusals: Cell<u32>,
}

impl Log {
    /// Writes a line, unless too many are waiting.
    pub(crate) fn write(&self, line: &Line, bytes: u64, is_whole: bool) {
        if line.outcome == Outcome::Refused && self.refusals_one_in > 1 {
            let count = self.refusals.get();
            self.refusals.set(count.wrapping_add(1));
            if !count.is_multiple_of(self.refusals_one_in) {
                return;
            }
        }
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let micros = u64::try_from(line.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let text = serde_json::json!({
            "time_ms": u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
            "client": line.client.map(|client| client.to_string()),
            "method": line.method,
            "host": line.host,
            "target": line.target,
            "status": line.status.as_u16(),
            "outcome": line.outcome.as_str(),
            "rule": line.rule,
            "upstream": line.upstream,
            "bytes": bytes,
            "whole": is_whole || line.is_head,
            "duration_us": micros,
        });
        match self.lines.try_send(text.to_string()) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.lost.fetch_add(1, Relaxed);
            }
        }
    }
}

/// The log of a gateway.
#[derive(Clone)]
pub(crate) struct Logs {
    lines: SyncSender<String>,
    lost: Arc<AtomicU64>,
    refusals_one_in: u32,
}

impl Logs {
    /// Begins to write; `None` if nothing is to be written.
    pub(crate) fn start(config: &AccessLog) -> io::Result<Option<Self>> {
        let out: Box<dyn Write + Send> = match &config.to {
            None => return Ok(None),
            Some(LogTo::Stdout) => Box::new(io::stdout()),
            Some(LogTo::File(path)) => {
                Box::new(OpenOptions::new().create(true).append(true).open(path)?)
            }
        };
        let (lines, waiting) = sync_channel(LINES_MAX);
        let write = move || write_all(&waiting, BufWriter::new(out));
        std::thread::Builder::new().name("access-log".into()).spawn(write)?;
        let lost = Arc::new(AtomicU64::new(0));
        Ok(Some(Self { lines, lost, refusals_one_in: config.refusals_one_in.max(1) }))
    }

    /// One thread's way to it.
    pub(crate) fn of_thread(&self) -> Log {
        Log {
            lines: self.lines.clone(),
            lost: Arc::clone(&self.lost),
            refusals_one_in: self.refusals_one_in,
            refusals: Cell::new(0),
        }
    }

    /// How many lines found no room.
    pub(crate) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

/// Writes lines until nobody sends any more. What comes together is written together.
fn write_all(lines: &Receiver<String>, mut out: impl Write) {
    while let Ok(first) = lines.recv() {
        let mut next = Some(first);
        while let Some(line) = next {
            if let Err(error) = writeln!(out, "{line}") {
                tracing::warn!(%error, "cannot write the access log");
                return;
            }
            next = lines.try_recv().ok();
        }
        if let Err(error) = out.flush() {
            tracing::warn!(%error, "cannot write the access log");
            return;
        }
    }
}
