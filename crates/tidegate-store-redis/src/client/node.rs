//! A server, as all threads see it: whether it is asked at all, and what happens when it is not.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Duration, Instant, sleep};

use super::breaker::Breaker;
use super::dial::{Conversation, Dialer};
use super::link::Link;
use super::resp::encoded;
use super::{ClientError, ClientOptions};
use crate::stats::Stats;
use crate::target::Address;

/// How long a node that has failed is left alone between two probes.
const PROBE_EVERY: Duration = Duration::from_millis(50);
/// A node that fails again so soon after it was found to work is not probed at once.
const SOON: Duration = Duration::from_secs(1);

/// What all nodes of a client share.
pub(super) struct Common {
    pub(super) options: ClientOptions,
    pub(super) stats: Arc<Stats>,
    pub(super) dialer: Dialer,
    /// Where probes run.
    pub(super) background: Handle,
    /// Whoever keeps the list of masters is woken by this.
    pub(super) look_again: Notify,
    /// Who is sure to know something new about the cluster.
    pub(super) hint: Mutex<Option<Address>>,
    /// Why it cannot be learnt who is master.
    pub(super) trouble: Mutex<Option<String>>,
}

impl Common {
    pub(super) fn take_hint(&self) -> Option<Address> {
        self.hint.lock().take()
    }

    /// Says so when it begins and when it is over, not in between.
    pub(super) fn set_trouble(&self, why: Option<String>) {
        let before = std::mem::replace(&mut *self.trouble.lock(), why.clone());
        match (before, why) {
            (None, Some(why)) => tracing::warn!(why, "cannot learn who is master in Redis"),
            (Some(_), None) => tracing::info!("it is known again who is master in Redis"),
            _ => {}
        }
    }
}

/// A server.
pub(super) struct Node {
    pub(super) id: u64,
    pub(super) address: Address,
    pub(super) common: Arc<Common>,
    breaker: Breaker,
    /// How often all connections were cut off (upper half) and how often it was found to work
    /// again (lower half).
    marks: AtomicU64,
    /// One of its slots, for probes.
    slot: AtomicU16,
    links: Mutex<Vec<Weak<Link>>>,
    failed: Mutex<Failed>,
}

/// What is known of the latest failure.
#[derive(Default)]
struct Failed {
    why: Option<String>,
    opened: Option<Instant>,
    closed: Option<Instant>,
}

/// How a node fails.
#[derive(Debug)]
pub(super) enum Failure {
    /// A connection broke.
    Lost(String),
    /// There is no connection to be had.
    Refused(String),
    /// Replies take too long.
    Slow,
    /// It says so.
    Reply(String),
}

/// What an error reply says about the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// Nothing: the command has to go elsewhere, or once more.
    Fine,
    /// Nothing yet.
    Odd,
    /// That it does not work at present.
    Down,
    /// That these connections are of no use any more.
    Cut,
}

impl Verdict {
    fn of(text: &str) -> Self {
        match code(text) {
            "MOVED" | "ASK" | "TRYAGAIN" | "NOSCRIPT" => Self::Fine,
            "LOADING" | "CLUSTERDOWN" | "OOM" | "BUSY" | "MISCONF" | "NOREPLICAS" => Self::Down,
            "READONLY" | "MASTERDOWN" | "NOAUTH" | "WRONGPASS" | "NOPERM" => Self::Cut,
            _ => Self::Odd,
        }
    }
}

/// The first word of an error. Servers before 7.0 wrap those of commands within scripts.
fn code(text: &str) -> &str {
    let first = |text: &str| text.len().min(text.find(' ').unwrap_or(text.len()));
    if text.starts_with("ERR Error running script")
        && let Some((_, inner)) = text.split_once(": -")
    {
        return inner.get(..first(inner)).unwrap_or_default();
    }
    text.get(..first(text)).unwrap_or_default()
}

impl Node {
    pub(super) fn new(address: Address, common: &Arc<Common>, slot: u16) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Arc::new(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            address,
            common: Arc::clone(common),
            breaker: Breaker::default(),
            marks: AtomicU64::new(0),
            slot: AtomicU16::new(slot),
            links: Mutex::default(),
            failed: Mutex::default(),
        })
    }

    /// Whether it is not asked, because it has failed.
    pub(super) fn is_down(&self) -> bool {
        self.breaker.is_open()
    }

    /// Whether it is not a master any more, as far as is known.
    pub(super) fn is_gone(&self) -> bool {
        self.breaker.is_gone()
    }

    /// Why it is down, if it is.
    pub(super) fn why_down(&self) -> Option<String> {
        self.failed.lock().why.clone().filter(|_| self.is_down())
    }

    pub(super) fn marks(&self) -> u64 {
        self.marks.load(Ordering::Acquire)
    }

    /// One of its slots.
    pub(super) fn slot(&self) -> u16 {
        self.slot.load(Ordering::Relaxed)
    }

    pub(super) fn set_slot(&self, slot: u16) {
        self.slot.store(slot, Ordering::Relaxed);
    }

    /// Makes a connection that is ready for commands.
    pub(super) async fn connect(&self) -> Result<Conversation, String> {
        self.common.dialer.connect(&self.address).await
    }

    /// A link to it has been made.
    pub(super) fn adopt(&self, link: &Arc<Link>) {
        let mut links = self.links.lock();
        links.retain(|link| link.strong_count() > 0);
        links.push(Arc::downgrade(link));
        drop(links);
        if self.is_gone() {
            link.close();
        }
    }

    /// It is not asked any more, for good. What is in flight is still waited for.
    pub(super) fn retire(&self) {
        if self.breaker.go() {
            self.common.stats.breakers_open.sub(1);
        }
        let links = std::mem::take(&mut *self.links.lock());
        links.iter().filter_map(Weak::upgrade).for_each(|link| link.close());
    }

    /// A reply came in time.
    pub(super) fn succeeded(&self) {
        self.breaker.succeeded();
    }

    /// So many commands missed their deadlines.
    pub(super) fn missed(self: &Arc<Self>, count: usize, now: Instant) {
        if self.breaker.missed(count, now) {
            self.fail(Failure::Slow);
        }
    }

    /// It replied with an error.
    pub(super) fn hear_error(self: &Arc<Self>, text: &str) {
        match Verdict::of(text) {
            Verdict::Fine => {}
            Verdict::Odd => {
                if self.breaker.failed() {
                    self.fail(Failure::Reply(text.to_owned()));
                }
            }
            Verdict::Down => self.fail(Failure::Reply(text.to_owned())),
            Verdict::Cut => {
                if !self.is_down() {
                    self.marks.fetch_add(1 << 32, Ordering::AcqRel);
                }
                self.fail(Failure::Reply(text.to_owned()));
            }
        }
    }

    /// It is not asked any more until a probe succeeds.
    pub(super) fn fail(self: &Arc<Self>, failure: Failure) {
        let why = match failure {
            Failure::Lost(why) => format!("the connection broke: {why}"),
            Failure::Refused(why) => format!("cannot connect: {why}"),
            Failure::Slow => "replies take too long".to_owned(),
            Failure::Reply(text) => text,
        };
        if !self.breaker.open() {
            return;
        }
        tracing::warn!(redis = %self.address, why, "Redis has failed and is not asked any more");
        self.common.stats.breakers_open.add(1);
        self.common.stats.breakers_opened.add(1);
        let now = Instant::now();
        let mut failed = self.failed.lock();
        (failed.why, failed.opened) = (Some(why), Some(now));
        let again = failed.closed.is_some_and(|closed| now.duration_since(closed) < SOON);
        drop(failed);
        self.common.look_again.notify_one();
        let first = if again { PROBE_EVERY } else { Duration::ZERO };
        self.common.background.spawn(probe_until_it_works(Arc::downgrade(self), first));
    }

    fn works_again(&self) {
        // Links look at this before the next command, so it comes first.
        self.marks.fetch_add(1, Ordering::AcqRel);
        if !self.breaker.close() {
            return;
        }
        self.common.stats.breakers_open.sub(1);
        let now = Instant::now();
        let mut failed = self.failed.lock();
        failed.closed = Some(now);
        let after = failed.opened.map(|opened| now.duration_since(opened));
        drop(failed);
        tracing::info!(redis = %self.address, ?after, "Redis works again");
    }

    /// Asks what only a node that works can answer.
    async fn probe(&self, kept: &mut Option<Conversation>) -> Result<(), String> {
        let options = &self.common.options;
        let mut conversation = match kept.take() {
            Some(conversation) => conversation,
            None => self.connect().await?,
        };
        let lost = |error: std::io::Error| error.to_string();
        let probe = (options.probe)(&options.prefix, self.slot());
        let mut reply = conversation.ask(&probe.bytes, options.deadline).await.map_err(lost)?;
        if matches!(&reply, Err(ClientError::Reply(text)) if code(text) == "NOSCRIPT") {
            let load = encoded(&[b"SCRIPT", b"LOAD", options.script.as_bytes()]);
            conversation.ask(&load, PROBE_EVERY).await.map_err(lost)?.map_err(text_of)?;
            self.common.stats.scripts_loaded.add(1);
            reply = conversation.ask(&probe.bytes, options.deadline).await.map_err(lost)?;
        }
        match reply {
            Ok(_) => Ok(()),
            Err(ClientError::Reply(text)) => {
                match Verdict::of(&text) {
                    // The same connection is as good as another one.
                    Verdict::Down => *kept = Some(conversation),
                    Verdict::Fine => self.common.look_again.notify_one(),
                    Verdict::Odd | Verdict::Cut => {}
                }
                Err(text)
            }
            Err(other) => Err(other.to_string()),
        }
    }
}

fn text_of(error: ClientError) -> String {
    match error {
        ClientError::Reply(text) => text,
        other => other.to_string(),
    }
}

/// One that nobody asks any more has not failed either: nodes that were only passed through, while
/// slots moved to them, are not retired.
impl Drop for Node {
    fn drop(&mut self) {
        if self.breaker.go() {
            self.common.stats.breakers_open.sub(1);
        }
    }
}

/// Probes a node that has failed, one probe after the other, as long as anybody cares about it.
async fn probe_until_it_works(node: Weak<Node>, first: Duration) {
    let mut conversation = None;
    let mut pause = first;
    loop {
        sleep(pause).await;
        let Some(node) = node.upgrade().filter(|node| node.is_down()) else { return };
        match Box::pin(node.probe(&mut conversation)).await {
            Ok(()) => return node.works_again(),
            Err(why) => node.failed.lock().why = Some(why),
        }
        // Those who share the server do not ask at the same moment.
        let jitter_us = getrandom::u32().unwrap_or_default() % 25_000;
        pause = PROBE_EVERY + Duration::from_micros(jitter_us.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_told_apart() {
        for (text, verdict) in [
            ("MOVED 1 127.0.0.1:7000", Verdict::Fine),
            ("NOSCRIPT No matching script. Please use EVAL.", Verdict::Fine),
            ("LOADING Redis is loading the dataset in memory", Verdict::Down),
            ("OOM command not allowed when used memory > 'maxmemory'.", Verdict::Down),
            ("READONLY You can't write against a read only replica.", Verdict::Cut),
            ("NOAUTH Authentication required.", Verdict::Cut),
            ("ERR unknown command", Verdict::Odd),
            ("WRONGTYPE Operation against a key", Verdict::Odd),
            ("", Verdict::Odd),
            (
                "ERR Error running script (call to f_ab): @user_script:3: -OOM command not allowed",
                Verdict::Down,
            ),
            (
                "ERR Error running script (call to f_ab): @user_script:3: user_script:3: oops",
                Verdict::Odd,
            ),
        ] {
            assert_eq!(Verdict::of(text), verdict, "{text}");
        }
    }
}
