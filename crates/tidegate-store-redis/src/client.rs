//! Connections to Redis: commands go out in one order and replies come back in the same.
//!
//! Each thread that asks has a connection of its own to each master ([`here`], [`link`]), driven by
//! a task on the thread's runtime ([`driver`]), so that a command wakes nobody on another thread.
//! What has failed is known to all threads ([`node`], [`breaker`]): a node that does not work is
//! not asked until a probe says that it works again. Who is master of what is learnt from
//! Sentinels ([`sentinel`]) or from the cluster ([`cluster`]).
//!
//! A command is sent once. Only if the server says that it did nothing, because it has not got the
//! script or not the slot, the same command goes out again, within its deadline ([`retry`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::stats::Stats;
use crate::target::{Address, Shape, Target};
use crate::tls::{TlsError, TlsFiles, connector};

mod breaker;
mod cluster;
mod dial;
mod driver;
mod here;
mod link;
mod node;
mod queue;
mod resp;
mod retry;
mod sentinel;
#[cfg(test)]
mod tests;
mod view;

use dial::Dialer;
use here::Post;
use link::Waiting;
use node::{Common, Node};
use sentinel::Sentinels;
use view::View;

/// The commands that connections need by themselves, for an ACL: `AUTH` is always allowed; `SELECT`
/// is used with a database other than 0, `ROLE` with Sentinels, `ASKING` and `CLUSTER SLOTS` in a
/// cluster. At Sentinels: `AUTH`, `CLIENT SETNAME`, `SENTINEL GET-MASTER-ADDR-BY-NAME`.
#[cfg(test)]
pub(crate) const COMMANDS: &[&str] =
    &["auth", "select", "client|setname", "role", "script|load", "cluster|slots", "asking"];

/// Nobody waits longer, whatever is asked for.
const DEADLINE_MAX: Duration = Duration::from_secs(3_600);
/// How often [`Client::wait_ready`] looks.
const READY_LOOK: Duration = Duration::from_millis(10);

/// How connections behave.
#[derive(Clone, Debug)]
pub(crate) struct ClientOptions {
    /// How long a command may take, from being asked for to its reply.
    pub(crate) deadline: Duration,
    /// How many commands may wait for replies at once, on one connection.
    pub(crate) in_flight_max: usize,
    /// The text of the script, for servers that do not have it.
    pub(crate) script: &'static str,
    /// A command that does what the others do, writing included: what tells that a node that has
    /// failed works again. One for each slot that is asked for.
    pub(crate) probe: fn(prefix: &str, slot: u16) -> Command,
    pub(crate) prefix: String,
    /// Files for TLS, where it is spoken.
    pub(crate) tls: TlsFiles,
    /// Who to be to Sentinels.
    pub(crate) sentinel_username: Option<String>,
    pub(crate) sentinel_password: Option<String>,
}

/// A command, encoded as it goes over the wire.
#[derive(Clone, Debug)]
pub(crate) struct Command {
    /// The slot of its keys, all of which are in the same; without a cluster nobody looks at it.
    pub(crate) slot: u16,
    pub(crate) bytes: Vec<u8>,
}

/// What a server replied. Errors are [`ClientError::Reply`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// A string, also a simple one.
    Bulk(Bytes),
    Integer(i64),
    Array(Vec<Reply>),
    Null,
}

/// Why there is no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// It took too long. The command may still be executed.
    #[error("Redis did not answer in time")]
    Deadline,
    /// Too many commands wait for their replies already. It was not sent.
    #[error("too many commands are waiting for Redis")]
    Full,
    /// The node has failed lately, or is not connected. It was not sent.
    #[error("Redis is not asked because it has failed")]
    Down,
    /// The connection broke. The command may have been executed.
    #[error("the connection to Redis broke: {0}")]
    Lost(String),
    /// The server replied with an error, and did nothing.
    #[error("Redis says: {0}")]
    Reply(String),
}

/// One of the masters.
pub(crate) struct Master(Arc<Node>);

/// All connections of a store. Opening does not wait for a server to be there.
pub(crate) struct Client {
    id: u64,
    target: Target,
    common: Arc<Common>,
    /// Who is master, and how often that has changed.
    view: Mutex<Arc<View>>,
    version: AtomicU64,
    /// Nodes that are no masters yet, while slots move to them.
    guests: Mutex<Vec<Weak<Node>>>,
}

impl Client {
    /// To be called within a tokio runtime, which outlives it and does its work in the background.
    pub(crate) fn open(
        target: Target,
        mut options: ClientOptions,
        stats: Arc<Stats>,
    ) -> Result<Arc<Self>, TlsError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        options.deadline = options.deadline.min(DEADLINE_MAX);
        options.in_flight_max = options.in_flight_max.max(1);
        let dialer = Dialer {
            tls: target.tls.then(|| connector(&options.tls)).transpose()?,
            username: target.username.clone(),
            password: target.password.clone(),
            database: target.database,
            masters_only: matches!(target.shape, Shape::Sentinel { .. }),
        };
        let client = Arc::new(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            target,
            common: Arc::new(Common {
                options,
                stats,
                dialer,
                background: Handle::current(),
                look_again: Notify::new(),
                hint: Mutex::default(),
                trouble: Mutex::default(),
            }),
            view: Mutex::default(),
            version: AtomicU64::new(0),
            guests: Mutex::default(),
        });
        client.begin();
        Ok(client)
    }

    /// Begins to find out who is master.
    fn begin(self: &Arc<Self>) {
        let (weak, common) = (Arc::downgrade(self), Arc::clone(&self.common));
        let addresses = self.target.addresses.clone();
        match &self.target.shape {
            Shape::Single => {
                let node = addresses.first().map(|address| self.new_node(address, 0));
                self.change_view(|_| node.map(View::of_one));
            }
            Shape::Sentinel { master } => {
                let options = &common.options;
                let dialer = Dialer {
                    tls: common.dialer.tls.clone(),
                    username: options.sentinel_username.clone(),
                    password: options.sentinel_password.clone(),
                    database: 0,
                    masters_only: false,
                };
                let sentinels = Sentinels { addresses, dialer, master: master.clone() };
                self.common.background.spawn(sentinel::follow(weak, common, sentinels));
            }
            Shape::Cluster => {
                self.common.background.spawn(cluster::follow(weak, common, addresses));
            }
        }
    }

    /// Whether commands have to be for keys of one slot each.
    pub(crate) fn is_cluster(&self) -> bool {
        self.target.shape == Shape::Cluster
    }

    /// Sends a command and waits for its reply, until its deadline at the longest. Whoever stops
    /// waiting does not undo it.
    pub(crate) fn run(
        &self,
        command: Command,
    ) -> impl Future<Output = Result<Reply, ClientError>> + Send {
        self.run_by(command, self.deadline())
    }

    /// The same for one of several commands that have to be over together.
    pub(crate) async fn run_by(
        &self,
        command: Command,
        deadline: Instant,
    ) -> Result<Reply, ClientError> {
        let post = Post { bytes: &command.bytes, deadline, before: None };
        let mut waiting = here::post(self, command.slot, &post)?;
        self.hear(&mut waiting, &post).await
    }

    /// The masters that are known, in the order of their addresses.
    pub(crate) fn masters(&self) -> Vec<Master> {
        let (_, view) = self.view();
        view.masters.iter().map(|node| Master(Arc::clone(node))).collect()
    }

    /// Sends a command to one master, whatever its slot.
    pub(crate) async fn run_at(&self, to: &Master, bytes: &[u8]) -> Result<Reply, ClientError> {
        let post = Post { bytes, deadline: self.deadline(), before: None };
        let mut waiting = here::post_to(self, &to.0, &post)?;
        self.hear(&mut waiting, &post).await
    }

    /// Waits for the reply, and for another one if that says that the command has to go elsewhere.
    async fn hear(&self, waiting: &mut Waiting, post: &Post<'_>) -> Result<Reply, ClientError> {
        match (&mut *waiting).await {
            Err(ClientError::Reply(text)) if retry::is_worth(&text) => {
                Box::pin(self.run_again(post, waiting, text)).await
            }
            result => result,
        }
    }

    /// Waits until all masters are known and answer, for so long at the most. Whether they do.
    pub(crate) async fn wait_ready(&self, at_most: Duration) -> bool {
        let end = Instant::now() + at_most.min(DEADLINE_MAX);
        loop {
            if self.is_ready().await {
                return true;
            }
            if Instant::now() >= end {
                return false;
            }
            sleep(READY_LOOK).await;
        }
    }

    async fn is_ready(&self) -> bool {
        let (_, view) = self.view();
        if !view.is_whole() {
            return false;
        }
        let options = &self.common.options;
        for master in &view.masters {
            let probe = (options.probe)(&options.prefix, master.slot());
            if self.run(probe).await.is_err() {
                return false;
            }
        }
        true
    }

    /// What is wrong, if anything is known to be.
    pub(crate) fn why_down(&self) -> Option<String> {
        let (_, view) = self.view();
        let why = |node: &Arc<Node>| Some(format!("{}: {}", node.address, node.why_down()?));
        match view.masters.is_empty() {
            true => {
                let trouble = self.common.trouble.lock().clone();
                Some(trouble.unwrap_or_else(|| "it is not known yet who is master".to_owned()))
            }
            false => view.masters.iter().find_map(why),
        }
    }

    /// When what begins now has to be over.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.common.options.deadline
    }

    /// Who is master at present, and the version of that.
    fn view(&self) -> (u64, Arc<View>) {
        let view = self.view.lock();
        (self.version(), Arc::clone(&view))
    }

    fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Others are masters from now on, if `change` says so of those who are. It is called under a
    /// lock, so that of two who learn something at once neither undoes what the other one did.
    fn change_view(&self, change: impl FnOnce(&View) -> Option<View>) {
        let mut place = self.view.lock();
        let Some(new) = change(&place) else { return };
        let new = Arc::new(new);
        let old = std::mem::replace(&mut *place, Arc::clone(&new));
        self.version.fetch_add(1, Ordering::AcqRel);
        drop(place);
        for node in &old.masters {
            if !new.masters.iter().any(|master| master.id == node.id) {
                node.retire();
            }
        }
    }

    fn new_node(&self, address: &Address, slot: u16) -> Arc<Node> {
        Node::new(address.clone(), &self.common, slot)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.view.get_mut().masters.iter().for_each(|node| node.retire());
        self.guests.get_mut().iter().filter_map(Weak::upgrade).for_each(|node| node.retire());
        self.common.look_again.notify_one();
        here::forget(self.id);
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("target", &self.target).finish_non_exhaustive()
    }
}
