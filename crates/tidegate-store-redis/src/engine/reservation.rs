//! Reservations: what was taken, kept under an id until it is settled.
//!
//! A value of its own under the id: the cost, the holder, and for each part what is needed to
//! give back from anywhere, the limit included. It goes by itself when its time is over.

use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{Inherit, Limit, Taken, Timestamp, Windows};
use tidegate_store::{Answer, Call, Holding, Item, Mode, Op, Outcome};

use super::plan::{Part, Plan};
use super::reply::{Told, stale_limit};
use super::request::Question;
use super::{Engine, Members, TRIES_MAX, reply};
use crate::client::Reply;
use crate::key::{reservation_name, slot_of_key, slot_of_name};
use crate::script::{ScriptOp, command};
use crate::store::{RedisError, TimeSource};
use crate::tag::{Reader, put, read_tag};
use crate::terms::Attached;

/// The version of a reservation's value.
const FORMAT: u8 = 1;

/// What was taken from one key.
struct Held {
    key: Vec<u8>,
    id: String,
    limit: Limit,
    attached: Attached,
    factor: u64,
    windows: Option<Windows>,
    taken: Taken,
}

/// A reservation as it is stored.
struct Stored {
    ends: Timestamp,
    outcome: Outcome,
    cost: u64,
    holder: u128,
    parts: Vec<Held>,
}

const GARBLED: RedisError = RedisError::Garbled("a reservation makes no sense");

impl Engine {
    /// Decides a call like a check, and remembers what it took.
    pub(crate) async fn reserve(
        &self,
        call: &Call<'_>,
        answers: &mut [Answer],
        id: u128,
        ttl: Duration,
    ) -> Result<Outcome, RedisError> {
        let call = &Call { op: Op::Check, ..*call };
        let mut over = false;
        for _ in 0..TRIES_MAX {
            if let Some(value) = self.stored(id).await? {
                let stored = Stored::read(&value)?;
                if self.is_open(&stored, call.now) {
                    self.apply(
                        &Call { op: Op::Peek, cost: 0, ..*call },
                        answers,
                        &mut SmallVec::new(),
                    )
                    .await?;
                    return Ok(stored.outcome);
                }
                over = true;
            }
            let outcome = self.apply(call, answers, &mut SmallVec::new()).await?;
            if !outcome.allowed {
                return Ok(outcome);
            }
            let value = write(call, answers, outcome, call.now + ttl);
            if self.keep(id, &value, ttl, over).await? {
                return Ok(outcome);
            }
            // Somebody else was faster: what was taken here goes back, and theirs counts.
            let takings: SmallVec<[Taken; 4]> = answers.iter().map(|answer| answer.taken).collect();
            let back = Call { op: Op::GiveBack(&takings), ..*call };
            self.apply(&back, answers, &mut SmallVec::new()).await?;
        }
        Err(RedisError::Contended)
    }

    /// Ends a reservation at its real cost. The limits' ids and the keys that it was of, if there
    /// was one.
    pub(crate) async fn settle(
        &self,
        id: u128,
        cost: u64,
        now: Timestamp,
    ) -> Result<Option<Vec<(String, Vec<u8>)>>, RedisError> {
        let name = reservation_name(&self.prefix, id);
        let reply = self.client.run(command(slot_of_name(&name), &[b"GETDEL", &name])).await?;
        let value = match reply {
            Reply::Null => return Ok(None),
            Reply::Bulk(value) => value,
            _ => return Err(GARBLED),
        };
        let stored = Stored::read(&value)?;
        if !self.is_open(&stored, now) {
            return Ok(None);
        }
        let keys = stored.parts.iter().map(|part| (part.id.clone(), part.key.clone())).collect();
        self.settle_parts(stored.parts, stored.cost, stored.holder, cost, now).await?;
        Ok(Some(keys))
    }

    /// Brings what somebody holds to its real cost.
    pub(crate) async fn settle_holding(
        &self,
        holding: &Holding,
        cost: u64,
        now: Timestamp,
    ) -> Result<(), RedisError> {
        let parts = holding.parts.iter().map(|part| {
            let limit = part.limit.limit().clone();
            let foreign = |_| RedisError::Foreign(part.limit.id().to_owned());
            Ok(Held {
                key: part.key.to_vec(),
                id: part.limit.id().to_owned(),
                attached: Attached::new(&limit).map_err(foreign)?,
                limit,
                factor: part.factor,
                windows: part.windows,
                taken: part.taken,
            })
        });
        let parts = parts.collect::<Result<_, RedisError>>()?;
        self.settle_parts(parts, holding.cost, holding.holder, cost, now).await
    }

    async fn settle_parts(
        &self,
        parts: Vec<Held>,
        reserved: u64,
        holder: u128,
        cost: u64,
        now: Timestamp,
    ) -> Result<(), RedisError> {
        let mut result = Ok(());
        // One after the other: a reservation has few parts, and nobody waits for it.
        for part in parts {
            let settled = self.settle_part(part, reserved, holder, cost, now).await;
            if settled.is_err() {
                self.stats.given_up.add(1);
                result = settled;
            }
        }
        result
    }

    /// Brings one key from the cost that was taken to the real one, under the limit that it has by
    /// now: a key that has moved on to another stays there.
    async fn settle_part(
        &self,
        held: Held,
        reserved: u64,
        holder: u128,
        cost: u64,
        now: Timestamp,
    ) -> Result<(), RedisError> {
        if cost == reserved {
            return Ok(());
        }
        let (limit_then, mut limit, mut attached) = (held.limit.clone(), held.limit, held.attached);
        for _ in 0..TRIES_MAX {
            let alike = limit == limit_then || limit.counts_like(&limit_then);
            let gives_back = cost < reserved;
            if gives_back && !alike {
                // Marks of another reckoning mean nothing here.
                return Ok(());
            }
            // Permits are set to a number, everything else is added to.
            let already = if limit.is_concurrency() { 0 } else { reserved };
            let more = cost.saturating_sub(already).saturating_mul(held.factor);
            let spared = reserved.saturating_sub(cost).saturating_mul(held.factor);
            let part = Part {
                item: 0,
                key: &held.key,
                id: &held.id,
                limit: &limit,
                attached: &attached,
                inherit: Inherit::Used,
                windows: held.windows,
                weight: 1,
                units: if gives_back { 0 } else { more },
                takings: SmallVec::from_iter([Taken { cost: spared, ..held.taken }]),
                groups: SmallVec::new(),
                slot: slot_of_key(&held.key),
            };
            let plan = Plan {
                parts: SmallVec::from_iter([part]),
                part_of: SmallVec::new(),
                quotas: SmallVec::new(),
                holder,
                until: self.client.deadline(),
            };
            let op = if gives_back { ScriptOp::GiveBack } else { ScriptOp::Force };
            let members: Members = SmallVec::from_slice(&[0]);
            let question = Question { op, flags: 0, members: &members, now, restoring: &[] };
            let told = match plan.parts[0].is_kept() {
                true => self.ask_once(&plan, &question).await?,
                // A limit that blocks keeps nothing; an earlier one may have.
                false => self.stale_or_nothing(&plan.parts[0], now).await?,
            };
            drop(plan);
            match told {
                Told::Found(_) => return Ok(()),
                Told::Stale { value, .. } => {
                    let (current, _) = stale_limit(&value)?;
                    attached = Attached::new(&current).map_err(|_| reply::GARBLED)?;
                    limit = current;
                }
            }
        }
        Err(RedisError::Contended)
    }

    async fn stale_or_nothing(&self, part: &Part<'_>, now: Timestamp) -> Result<Told, RedisError> {
        let value = self.dump(part, now, self.client.deadline()).await?.string;
        Ok(match value.is_empty() {
            true => Told::Found(SmallVec::new()),
            false => Told::Stale { member: 0, value: value.into(), now },
        })
    }

    async fn stored(&self, id: u128) -> Result<Option<bytes::Bytes>, RedisError> {
        let name = reservation_name(&self.prefix, id);
        match self.client.run(command(slot_of_name(&name), &[b"GET", &name])).await? {
            Reply::Null => Ok(None),
            Reply::Bulk(value) => Ok(Some(value)),
            _ => Err(GARBLED),
        }
    }

    /// Remembers a reservation, unless somebody else has the id.
    async fn keep(
        &self,
        id: u128,
        value: &[u8],
        ttl: Duration,
        over: bool,
    ) -> Result<bool, RedisError> {
        let name = reservation_name(&self.prefix, id);
        let slot = slot_of_name(&name);
        let reply = match self.time {
            TimeSource::Redis => {
                let ms = ttl.as_nanos().div_ceil(1_000_000).clamp(1, 1 << 50).to_string();
                let arguments: [&[u8]; 6] = [b"SET", &name, value, b"NX", b"PX", ms.as_bytes()];
                self.client.run(command(slot, &arguments)).await?
            }
            // Nothing expires by itself, so one that is over by the caller's time is replaced.
            TimeSource::Caller if over => {
                self.client.run(command(slot, &[b"SET", &name, value])).await?
            }
            TimeSource::Caller => {
                self.client.run(command(slot, &[b"SET", &name, value, b"NX"])).await?
            }
        };
        Ok(reply != Reply::Null)
    }

    fn is_open(&self, stored: &Stored, now: Timestamp) -> bool {
        self.time == TimeSource::Redis || now < stored.ends
    }
}

/// What an admitted call took, by the answers it got. Items that took nothing, such as a limit in
/// shadow that did not admit, have no part in it.
fn write(call: &Call<'_>, answers: &[Answer], outcome: Outcome, ends: Timestamp) -> Vec<u8> {
    // Of nothing, everybody takes nothing; the real cost may still turn out to be something.
    let takes_part = |item: &Item<'_>, answer: &Answer| match call.cost {
        0 => item.mode != Mode::Shadow,
        _ => answer.taken.cost > 0,
    };
    let mut out = vec![FORMAT];
    put(&mut out, ends.as_nanos());
    put(&mut out, outcome.granted);
    put(&mut out, call.cost);
    out.extend_from_slice(&call.holder.to_le_bytes());
    for (item, answer) in call.items.iter().zip(answers) {
        let Some(attached) = item.limit.attached::<Attached>() else { continue };
        if !takes_part(item, answer) {
            continue;
        }
        for bytes in [item.key, item.limit.id().as_bytes(), &attached.tag] {
            put(&mut out, bytes.len() as u64);
            out.extend_from_slice(bytes);
        }
        put(&mut out, answer.taken.cost.checked_div(call.cost).unwrap_or(item.factor));
        put(&mut out, answer.taken.cost);
        out.extend_from_slice(&answer.taken.mark.to_le_bytes());
        out.push(u8::from(item.windows.is_some()));
        for edge in item.windows.iter().flat_map(|windows| windows.edges) {
            put(&mut out, edge.as_nanos());
        }
    }
    out
}

impl Stored {
    fn read(value: &[u8]) -> Result<Self, RedisError> {
        match value.first() {
            Some(&FORMAT) => Self::read_rest(&value[1..]).ok_or(GARBLED),
            Some(version) => Err(RedisError::Newer(*version)),
            None => Err(GARBLED),
        }
    }

    fn read_rest(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let ends = Timestamp::from_nanos(reader.number()?);
        let outcome = Outcome { allowed: true, granted: reader.number()? };
        let cost = reader.number()?;
        let holder = u128::from_le_bytes(reader.bytes(16)?.try_into().ok()?);
        let mut parts = Vec::new();
        while !reader.0.is_empty() {
            parts.push(Held::read(&mut reader)?);
        }
        Some(Self { ends, outcome, cost, holder, parts })
    }
}

impl Held {
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let mut bytes = || {
            let length = usize::try_from(reader.number()?).ok()?;
            reader.bytes(length)
        };
        let (key, id, tag) = (bytes()?, bytes()?, bytes()?);
        let (limit, _) = read_tag(tag).ok()?;
        let factor = reader.number()?;
        let cost = reader.number()?;
        let mark = u128::from_le_bytes(reader.bytes(16)?.try_into().ok()?);
        let windows = match reader.byte()? {
            0 => None,
            _ => {
                let mut edges = [Timestamp::ZERO; 4];
                for edge in &mut edges {
                    *edge = Timestamp::from_nanos(reader.number()?);
                }
                Some(Windows { edges })
            }
        };
        Some(Self {
            key: key.to_vec(),
            id: std::str::from_utf8(id).ok()?.to_owned(),
            attached: Attached::new(&limit).ok()?,
            limit,
            factor,
            windows,
            taken: Taken { mark, cost },
        })
    }
}
