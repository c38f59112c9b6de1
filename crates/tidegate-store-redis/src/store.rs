//! The store that others share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use tidegate_core::{Decision, Inherit, Limit, Source, Taken, Timestamp};
use tidegate_store::{
    Answer, Call, Holding, Item, Mode, OnError, Op, Outcome, RegisterError, Registered, Store,
};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};

use crate::client::{Client, ClientError, ClientOptions};
use crate::denial::{Denials, has_to_be_asked, may_be_remembered};
use crate::engine::{Engine, Seen};
use crate::fallback::Fallback;
use crate::fleet::{Board, Member, Note};
use crate::handles::{Handles, serial_of};
use crate::script::{SCRIPT, probe};
use crate::stats::{RedisStats, Stats};
use crate::target::Target;
use crate::tls::TlsFiles;

/// How many bytes a prefix may have: every key has them.
const PREFIX_BYTES_MAX: usize = 128;

/// How a store in Redis behaves.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RedisOptions {
    /// Where Redis is.
    pub target: Target,
    /// What all keys begin with: one for each environment that shares a Redis.
    pub prefix: String,
    /// How long a decision may take before it is made without Redis.
    pub deadline: Duration,
    /// How many commands may wait for replies at once, on one connection.
    pub in_flight_max: usize,
    /// Whose time counts.
    pub time: TimeSource,
    /// Whether calls fail where Redis does, instead of being answered without it.
    pub strict: bool,
    /// How long a refusal is believed without asking Redis again; zero for not at all.
    pub denial_max_age: Duration,
    /// Of how many keys refusals are remembered.
    pub denial_keys_max: usize,
    /// A file with the certificates of those who may sign Redis's, instead of the system's.
    pub tls_ca: Option<std::path::PathBuf>,
    /// Files with the certificate and key to show to Redis.
    pub tls_certificate: Option<(std::path::PathBuf, std::path::PathBuf)>,
    /// Who to be to Sentinels, if not the same as to Redis.
    pub sentinel_username: Option<String>,
    /// The password for Sentinels.
    pub sentinel_password: Option<String>,
}

impl RedisOptions {
    /// A store there, with the usual numbers.
    pub fn new(target: Target) -> Self {
        Self {
            target,
            prefix: "tg".to_owned(),
            deadline: Duration::from_millis(10),
            in_flight_max: 10_000,
            time: TimeSource::Redis,
            strict: false,
            denial_max_age: Duration::from_secs(1),
            denial_keys_max: 100_000,
            tls_ca: None,
            tls_certificate: None,
            sentinel_username: None,
            sentinel_password: None,
        }
    }
}

/// Whose time counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TimeSource {
    /// That of Redis, which is the same for all.
    #[default]
    Redis,
    /// The caller's, in whole microseconds. Nothing expires; for tests and replays.
    Caller,
}

/// A store in Redis cannot be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The prefix cannot be one.
    #[error(
        "`{0}` cannot be a prefix of keys: it may not hold braces, blanks or control characters"
    )]
    Prefix(String),
    /// The files for TLS cannot be used.
    #[error("TLS to Redis cannot be set up: {0}")]
    Tls(String),
}

/// Redis could not answer, and the store is to say so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedisError {
    /// There is no reply.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The reply is not one of the script's.
    #[error("the reply of Redis cannot be understood: {0}")]
    Garbled(&'static str),
    /// A key was written by a version that this one does not know.
    #[error("a key was written by a newer version of this program (format {0})")]
    Newer(u8),
    /// The limit was registered with another store.
    #[error("the limit `{0}` is not this store's")]
    Foreign(String),
    /// A call counts more keys than a script can look at.
    #[error("the request is counted by {keys} keys; the most is {max}")]
    TooManyKeys {
        /// How many there are.
        keys: usize,
        /// How many there may be.
        max: usize,
    },
    /// Others kept changing the same key.
    #[error("a key changed too often to be carried over to its new limit")]
    Contended,
}

/// Counters in Redis or Valkey, shared with everybody who uses the same prefix. A clone is another
/// handle of the same store.
#[derive(Clone, Debug)]
pub struct RedisStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    client: Arc<Client>,
    engine: Engine,
    handles: Handles,
    denials: Denials,
    fallback: Fallback,
    board: Arc<Board>,
    changes: watch::Receiver<u64>,
    stats: Arc<Stats>,
    is_strict: bool,
    /// Where work goes on that nobody waits for, and how much of it there may be.
    home: Handle,
    in_background: Arc<Semaphore>,
}

/// How many settlements may go on in the background at once; more are given up.
const BACKGROUND_MAX: usize = 10_000;

impl RedisStore {
    /// Opens a store within a tokio runtime, which has to outlive it. Does not wait for Redis: as
    /// long as it is not there, calls are answered without it.
    ///
    /// # Errors
    /// If the options make no sense.
    pub async fn open(options: RedisOptions) -> Result<Self, OpenError> {
        check_prefix(&options.prefix)?;
        let stats = Arc::new(Stats::default());
        let client_options = ClientOptions {
            deadline: options.deadline,
            in_flight_max: options.in_flight_max,
            script: SCRIPT,
            probe,
            prefix: options.prefix.clone(),
            tls: TlsFiles { ca: options.tls_ca, certificate: options.tls_certificate },
            sentinel_username: options.sentinel_username,
            sentinel_password: options.sentinel_password,
        };
        let client = Client::open(options.target, client_options, Arc::clone(&stats))
            .map_err(|error| OpenError::Tls(error.to_string()))?;
        let home = Handle::current();
        let board = Arc::new(Board::new(&options.prefix));
        let (changed, changes) = watch::channel(0);
        if options.time == TimeSource::Redis {
            let member = Member::new(&client, Arc::clone(&stats), Arc::clone(&board), changed);
            home.spawn(member.live());
        }
        // What was refused at one time says nothing of another that the caller makes up.
        let denial_max_age = match options.time {
            TimeSource::Redis => options.denial_max_age,
            TimeSource::Caller => Duration::ZERO,
        };
        let engine =
            Engine::new(Arc::clone(&client), options.prefix, options.time, Arc::clone(&stats));
        let inner = Inner {
            client,
            engine,
            handles: Handles::default(),
            denials: Denials::new(options.denial_keys_max, denial_max_age),
            fallback: Fallback::new(Arc::clone(&stats)),
            board,
            changes,
            stats,
            is_strict: options.strict,
            home,
            in_background: Arc::new(Semaphore::new(BACKGROUND_MAX)),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// What there is to see of it.
    pub fn stats(&self) -> RedisStats {
        self.inner.stats.denial_entries.set(self.inner.denials.len() as u64);
        RedisStats { down_because: self.inner.client.why_down(), ..self.inner.stats.read() }
    }

    /// Waits until Redis answers, for so long at the most. Whether it does.
    pub async fn wait_ready(&self, at_most: Duration) -> bool {
        self.inner.client.wait_ready(at_most).await
    }

    /// Lets all processes of this store know something for a while: they find it in
    /// [`notes`](Self::notes) within about a second. One of the same name is replaced. Whether
    /// there was room for it.
    ///
    /// # Errors
    /// If Redis could not answer.
    pub async fn put_note(
        &self,
        name: &[u8],
        text: &[u8],
        ttl: Duration,
    ) -> Result<bool, RedisError> {
        self.inner.board.put(&self.inner.client, name, text, ttl).await
    }

    /// Takes a note back. Whether it was there.
    ///
    /// # Errors
    /// If Redis could not answer.
    pub async fn remove_note(&self, name: &[u8]) -> Result<bool, RedisError> {
        self.inner.board.remove(&self.inner.client, name).await
    }

    /// All notes that hold.
    ///
    /// # Errors
    /// If Redis could not answer.
    pub async fn notes(&self) -> Result<Vec<Note>, RedisError> {
        self.inner.board.all(&self.inner.client).await
    }

    /// A number that changes when notes do, as far as is known here.
    pub fn notes_changed(&self) -> watch::Receiver<u64> {
        self.inner.changes.clone()
    }

    /// Removes all keys that begin with the prefix: for replays and tests, which have one of their
    /// own.
    ///
    /// # Errors
    /// If Redis could not answer.
    pub async fn remove_all(&self) -> Result<u64, RedisError> {
        self.inner.engine.remove_all().await
    }
}

fn check_prefix(prefix: &str) -> Result<(), OpenError> {
    let is_odd = |c: char| matches!(c, '{' | '}') || c.is_whitespace() || c.is_control();
    match prefix.contains(is_odd) || prefix.len() > PREFIX_BYTES_MAX {
        true => Err(OpenError::Prefix(prefix.to_owned())),
        false => Ok(()),
    }
}

impl Inner {
    /// Asks Redis, and learns from its answers.
    async fn ask(&self, call: &Call<'_>, answers: &mut [Answer]) -> Result<Outcome, RedisError> {
        let sent = Instant::now();
        let mut seen = SmallVec::new();
        let asked = self.engine.apply(call, answers, &mut seen).await;
        match &asked {
            Ok(_) => {
                self.stats.seconds[op_index(call.op)].add(sent.elapsed());
                self.learn(call, answers, seen, sent);
            }
            Err(error) => self.stats.errors.add(error),
        }
        asked
    }

    /// Remembers what refuses, and what to go on from if Redis should fail.
    fn learn(&self, call: &Call<'_>, answers: &[Answer], seen: SmallVec<[Seen; 4]>, sent: Instant) {
        for Seen { item, state, now } in seen {
            let (item, answer) = (&call.items[item], &answers[item]);
            let Some(serial) = serial_of(item.limit) else { continue };
            let is_refusal = call.op == Op::Check && !answer.decision.allowed;
            if is_refusal && self.denials.is_on() && may_be_remembered(item) {
                self.denials.remember(serial, item.key, state.clone(), now, sent);
            }
            if item.on_error == OnError::Local {
                self.fallback.saw(serial, item.key, state, now, sent);
            }
        }
    }

    /// The answer to a request that is known to be refused.
    fn denied(&self, call: &Call<'_>, answers: &mut [Answer]) -> Option<Outcome> {
        if call.op != Op::Check || !self.denials.is_on() {
            return None;
        }
        let is_alone = call.items.len() == 1;
        let mut at = None;
        let mut is_denied = false;
        for (index, item) in call.items.iter().enumerate() {
            if has_to_be_asked(item.limit, is_alone) {
                return None;
            }
            let units = call.cost.saturating_mul(item.factor);
            let known = serial_of(item.limit).filter(|_| units > 0 && may_be_remembered(item));
            let known = known.and_then(|serial| {
                let at = *at.get_or_insert_with(Instant::now);
                self.denials.find(serial, item, units, at)
            });
            is_denied |= known.is_some();
            let decision = known.unwrap_or(Decision::unasked(item.limit.limit().limit()));
            let rule = u32::try_from(index).unwrap_or(u32::MAX);
            let decision = match item.mode {
                Mode::Shadow => Decision { source: Source::Shadow, rule, ..decision },
                Mode::Enforce | Mode::Quota(_) => Decision { rule, ..decision },
            };
            answers[index] = Answer { decision, taken: Taken::default() };
        }
        if !is_denied {
            return None;
        }
        self.stats.denial_hits.add(1);
        Some(Outcome { allowed: false, granted: 0 })
    }

    /// Something is given back to these keys, so that refusals of them do not hold any more.
    fn forget_denials(&self, call: &Call<'_>) {
        let gives_back = matches!(call.op, Op::Refund | Op::GiveBack(_) | Op::Reset);
        if !gives_back || !self.denials.is_on() {
            return;
        }
        for item in call.items {
            if let Some(serial) = serial_of(item.limit) {
                self.denials.forget(serial, item.key);
            }
        }
    }

    /// What is answered when Redis could not.
    fn without_redis(
        &self,
        call: &Call<'_>,
        answers: &mut [Answer],
        error: RedisError,
    ) -> Result<Outcome, RedisError> {
        // A call that cannot be asked at all is no reason to let it pass.
        let is_callers = matches!(error, RedisError::TooManyKeys { .. } | RedisError::Foreign(_));
        if self.is_strict || is_callers {
            return Err(error);
        }
        let serial_of = |limit: &Registered| serial_of(limit).unwrap_or(u64::MAX);
        let outcome = match error {
            // Redis works, and others use the key: to let it pass would be one too many.
            RedisError::Contended => {
                let mut items: SmallVec<[Item<'_>; 4]> = call.items.into();
                items.iter_mut().for_each(|item| item.on_error = OnError::Deny);
                self.fallback.answer(&Call { items: &items, ..*call }, answers, serial_of)
            }
            _ => self.fallback.answer(call, answers, serial_of),
        };
        match call.op {
            Op::Refund | Op::GiveBack(_) | Op::Reset => {
                // It was done here at the most, and whoever asked for it may ask again.
                self.stats.given_up.add(1);
                Err(error)
            }
            _ => Ok(outcome),
        }
    }
}

/// Under which kind a call is counted: see [`OPS`](crate::stats::OPS).
fn op_index(op: Op<'_>) -> usize {
    match op {
        Op::Check | Op::UpTo | Op::Force => 0,
        Op::Peek => 1,
        Op::Refund | Op::GiveBack(_) | Op::Reset => 2,
    }
}

const RESERVE: usize = 3;
const SETTLE: usize = 4;

impl Store for RedisStore {
    type Error = RedisError;

    fn register(
        &self,
        id: &str,
        limit: Limit,
        inherit: Inherit,
    ) -> Result<Arc<Registered>, RegisterError> {
        self.inner.handles.register(id, limit, inherit)
    }

    fn forget_unused(&self, limits: Vec<Arc<Registered>>) -> Vec<Arc<Registered>> {
        self.inner.handles.forget_unused(limits)
    }

    async fn apply(&self, call: &Call<'_>, answers: &mut [Answer]) -> Result<Outcome, RedisError> {
        let inner = &*self.inner;
        if let Some(outcome) = inner.denied(call, answers) {
            return Ok(outcome);
        }
        let asked = inner.ask(call, answers).await;
        inner.forget_denials(call);
        asked.or_else(|error| inner.without_redis(call, answers, error))
    }

    async fn reserve(
        &self,
        call: &Call<'_>,
        answers: &mut [Answer],
        id: u128,
        ttl: Duration,
    ) -> Result<Outcome, RedisError> {
        let inner = &*self.inner;
        let sent = Instant::now();
        let call = &Call { op: Op::Check, ..*call };
        match inner.engine.reserve(call, answers, id, ttl).await {
            Ok(outcome) => {
                inner.stats.seconds[RESERVE].add(sent.elapsed());
                Ok(outcome)
            }
            Err(error) => {
                inner.stats.errors.add(&error);
                // Nobody will remember it: what it takes stays taken.
                inner.without_redis(call, answers, error)
            }
        }
    }

    async fn settle(&self, id: u128, cost: u64, now: Timestamp) -> Result<bool, RedisError> {
        let inner = &*self.inner;
        let sent = Instant::now();
        let settled = inner.engine.settle(id, cost, now).await;
        match &settled {
            Ok(keys) => {
                inner.stats.seconds[SETTLE].add(sent.elapsed());
                for (id, key) in keys.iter().flatten() {
                    inner.handles.serials(id).for_each(|serial| inner.denials.forget(serial, key));
                }
            }
            Err(error) => inner.stats.errors.add(error),
        }
        settled.map(|keys| keys.is_some())
    }

    fn settle_soon(&self, holding: Holding, cost: u64, now: Timestamp) {
        let Ok(place) = Arc::clone(&self.inner.in_background).try_acquire_owned() else {
            self.inner.stats.given_up.add(1);
            return;
        };
        let inner = Arc::clone(&self.inner);
        self.inner.home.spawn(async move {
            let sent = Instant::now();
            match inner.engine.settle_holding(&holding, cost, now).await {
                Ok(()) => inner.stats.seconds[SETTLE].add(sent.elapsed()),
                // What could not be given back has been counted.
                Err(error) => inner.stats.errors.add(&error),
            }
            for part in &holding.parts {
                if let Some(serial) = serial_of(&part.limit) {
                    inner.denials.forget(serial, &part.key);
                }
            }
            drop(place);
        });
    }
}
