//! What is answered when Redis cannot: by each limit's policy, all or nothing as ever.

mod share;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use smallvec::SmallVec;
use tidegate_core::{Ask, Decision, Inherit, Limit, Moment, Rate, Source, State, Taken, Timestamp};
use tidegate_store::{
    Answer, Call, Item, LocalStore as _, MemoryStore, Mode, OnError, Op, Outcome, Registered,
    Store as _,
};

use self::share::{Part, share_of, used_of_share};
use crate::keyed::Keyed;
use crate::stats::Stats;

/// Of how many keys the last state is remembered, for limits that go on locally.
const SEEN_MAX: usize = 100_000;
/// How many keys are counted locally at the most.
const KEYS_MAX: usize = 1_000_000;
/// How many shares of limits are known at the most; beyond that they are worked out anew.
const SHARES_MAX: usize = 100_000;
/// A pause after which what was counted locally is over: the next outage begins afresh.
const OUTAGE_PAUSE: Duration = Duration::from_secs(10);

/// The limits of this process alone.
#[derive(Debug)]
pub(crate) struct Fallback {
    stats: Arc<Stats>,
    seen: Keyed<Sight>,
    outage: RwLock<(Arc<Outage>, Instant)>,
}

/// What a key was when Redis last told.
#[derive(Debug)]
struct Sight {
    state: Option<State>,
    now: Timestamp,
    at: Instant,
}

/// What is counted while Redis is away.
#[derive(Debug)]
struct Outage {
    store: MemoryStore,
    shares: Mutex<HashMap<(u64, Part), Arc<Registered>>>,
    /// A limit that refuses everything, and one that is only there to be asked for nothing.
    deny: Arc<Registered>,
    allow: Arc<Registered>,
}

impl Outage {
    fn new() -> Arc<Self> {
        let store = MemoryStore::builder().max_keys(KEYS_MAX).build();
        let fixed = |id: &str, units: u64| {
            let limit = Limit::fixed_window(Rate::per_second(units)).build();
            let limit = limit.expect("a plain limit can be built");
            store.register(id, limit, Inherit::Used).expect("an empty store has room for a limit")
        };
        let (deny, allow) = (fixed("deny", 0), fixed("allow", 1));
        Arc::new(Self { shares: Mutex::default(), deny, allow, store })
    }

    /// This node's share of a limit; `None` if the store knows too many.
    fn share(&self, serial: u64, limit: &Registered, part: Part) -> Option<Arc<Registered>> {
        let mut shares = self.shares.lock();
        if let Some(known) = shares.get(&(serial, part)) {
            return Some(Arc::clone(known));
        }
        if shares.len() >= SHARES_MAX {
            shares.clear();
        }
        // By their number too, so that a limit which changes meanwhile begins anew.
        let id = format!("{serial}/{}", limit.id());
        let share = share_of(limit.limit(), part);
        let share = self.store.register(&id, share, Inherit::Proportional).ok()?;
        shares.insert((serial, part), Arc::clone(&share));
        Some(share)
    }
}

impl Fallback {
    pub(crate) fn new(stats: Arc<Stats>) -> Self {
        let outage = RwLock::new((Outage::new(), Instant::now()));
        Self { stats, seen: Keyed::new(SEEN_MAX), outage }
    }

    /// Remembers what Redis told of a key whose limit goes on locally if need be.
    pub(crate) fn saw(
        &self,
        serial: u64,
        key: &[u8],
        state: Option<State>,
        now: Timestamp,
        at: Instant,
    ) {
        // Any may go: what is not known begins full.
        self.seen.insert(serial, key, Sight { state, now, at }, |_| true);
    }

    /// Answers a call without Redis. Nothing of it can be given back later.
    pub(crate) fn answer(
        &self,
        call: &Call<'_>,
        answers: &mut [Answer],
        serial_of: impl Fn(&Registered) -> u64,
    ) -> Outcome {
        let outage = self.outage();
        let part = Part { nodes: self.stats.live_nodes.get().max(1), rank: self.stats.rank.get() };
        let handles: SmallVec<[Arc<Registered>; 4]> = call
            .items
            .iter()
            .map(|item| match item.on_error {
                OnError::Allow => Arc::clone(&outage.allow),
                OnError::Deny => Arc::clone(&outage.deny),
                OnError::Local => {
                    let share = outage.share(serial_of(item.limit), item.limit, part);
                    share.unwrap_or_else(|| Arc::clone(&outage.deny))
                }
            })
            .collect();
        let items: SmallVec<[Item<'_>; 4]> = call
            .items
            .iter()
            .zip(&handles)
            .map(|(item, handle)| Item {
                limit: handle,
                factor: if item.on_error == OnError::Allow { 0 } else { item.factor },
                ..*item
            })
            .collect();
        for (item, local) in call.items.iter().zip(&items) {
            if item.on_error == OnError::Local && may_begin(call.op, item) {
                self.begin(&outage, item, local, serial_of(item.limit), call.now);
            }
        }
        let op = match call.op {
            // What was taken was taken from Redis.
            Op::GiveBack(_) => Op::Peek,
            op => op,
        };
        let outcome = outage.store.apply_now(&Call { op, items: &items, ..*call }, answers);
        for (item, answer) in call.items.iter().zip(answers) {
            self.sign(item, answer);
        }
        outcome
    }

    /// The present outage, or a new one if the last is over.
    fn outage(&self) -> Arc<Outage> {
        let now = Instant::now();
        {
            let known = self.outage.read();
            if now.saturating_duration_since(known.1) < Duration::from_secs(1) {
                return Arc::clone(&known.0);
            }
        }
        let mut known = self.outage.write();
        if now.saturating_duration_since(known.1) > OUTAGE_PAUSE {
            known.0 = Outage::new();
        }
        known.1 = now;
        Arc::clone(&known.0)
    }

    /// Lets a key begin with what was last seen of it, as far as that is not counted yet.
    fn begin(
        &self,
        outage: &Outage,
        item: &Item<'_>,
        local: &Item<'_>,
        serial: u64,
        now: Timestamp,
    ) {
        let Some(sight) = self.seen.take(serial, item.key) else { return };
        let Some(state) = &sight.state else { return };
        let then = sight.now + sight.at.elapsed();
        let window = item.windows.map(|windows| windows.around(then));
        let ask = Ask { at: Moment { now: then, window }, holder: 0 };
        let (whole, share) = (item.limit.limit(), local.limit.limit());
        let used = used_of_share(whole.used(state, &ask), whole.limit(), share.limit());
        let plain = Item { factor: 1, mode: Mode::Enforce, ..*local };
        let items = std::slice::from_ref(&plain);
        let mut answers = [Answer::default()];
        outage.store.apply_now(&Call::new(Op::Peek, items, 0, now), &mut answers);
        let known = share.limit().saturating_sub(answers[0].decision.remaining);
        if used > known {
            outage.store.apply_now(&Call::new(Op::Force, items, used - known, now), &mut answers);
        }
    }

    /// Makes an answer of the local store one of this limit.
    fn sign(&self, item: &Item<'_>, answer: &mut Answer) {
        let Decision { rule, allowed, .. } = answer.decision;
        let limit = item.limit.limit().limit();
        answer.taken = Taken::default();
        let (count, decision) = match item.on_error {
            OnError::Allow => (&self.stats.fallback_allow, Decision::without_state(true, limit)),
            OnError::Deny => (&self.stats.fallback_deny, Decision::without_state(allowed, limit)),
            OnError::Local => (&self.stats.fallback_local, answer.decision),
        };
        count.add(1);
        let source = if item.mode == Mode::Shadow { Source::Shadow } else { Source::Fallback };
        answer.decision = Decision { rule, source, ..decision };
    }
}

/// Whether what was seen of a key matters to an operation. Permits are held by somebody, and those
/// who hold them are not known here.
fn may_begin(op: Op<'_>, item: &Item<'_>) -> bool {
    op != Op::Reset && !item.limit.limit().is_concurrency()
}

#[cfg(test)]
mod tests;
