//! A call, taken apart into the keys that it counts.

use smallvec::SmallVec;
use tidegate_core::{Ask, Inherit, Limit, Moment, Taken, Timestamp, Windows};
use tidegate_store::{Call, Mode, Op};
use tokio::time::Instant;

use crate::key::slot_of_key;
use crate::store::RedisError;
use crate::terms::{Attached, Terms};

/// How many parts a call may have before it allocates.
pub(super) const INLINE: usize = 4;

/// How many keys a call may count: Lua passes on so many values at once, and three for each.
const PARTS_MAX: usize = 2_000;

/// One key under one limit: all items of a call that count it. The first of them leads.
pub(super) struct Part<'a> {
    /// The leading item.
    pub(super) item: usize,
    pub(super) key: &'a [u8],
    pub(super) id: &'a str,
    pub(super) limit: &'a Limit,
    pub(super) attached: &'a Attached,
    pub(super) inherit: Inherit,
    pub(super) windows: Option<Windows>,
    /// Units for each unit of the cost.
    pub(super) weight: u64,
    /// The units asked for.
    pub(super) units: u64,
    /// What is to be given back.
    pub(super) takings: SmallVec<[Taken; 1]>,
    /// Which of the items' groups it is in: zero for those that are enforced, then the quotas.
    pub(super) groups: SmallVec<[u16; 2]>,
    pub(super) slot: u16,
}

impl Part<'_> {
    pub(super) fn ask(&self, now: Timestamp, holder: u128) -> Ask {
        let window = self.windows.map(|windows| windows.around(now));
        Ask { at: Moment { now, window }, holder }
    }

    /// Whether it has to do with Redis at all.
    pub(super) fn is_kept(&self) -> bool {
        !matches!(self.attached.terms, Terms::Block)
    }

    /// Of a limit that blocks: whether it would admit.
    pub(super) fn fits_blocked(&self) -> bool {
        self.units == 0
    }
}

/// All parts of a call.
pub(super) struct Plan<'a> {
    pub(super) parts: SmallVec<[Part<'a>; INLINE]>,
    /// The part of each item.
    pub(super) part_of: SmallVec<[u32; INLINE]>,
    /// The numbers of the quotas, in the order of their groups.
    pub(super) quotas: SmallVec<[u32; INLINE]>,
    pub(super) holder: u128,
    /// When the call has to be over, however many commands it takes.
    pub(super) until: Instant,
}

impl<'a> Plan<'a> {
    pub(super) fn new(call: &Call<'a>, by_slot: bool, until: Instant) -> Result<Self, RedisError> {
        let mut plan = Self {
            parts: SmallVec::new(),
            part_of: SmallVec::new(),
            quotas: SmallVec::new(),
            holder: call.holder,
            until,
        };
        for (index, item) in call.items.iter().enumerate() {
            let group = plan.group(item.mode);
            let same = |part: &Part<'_>| part.id == item.limit.id() && part.key == item.key;
            let units = call.cost.saturating_mul(item.factor);
            let place = match plan.parts.iter().position(same) {
                Some(place) => {
                    let part = &mut plan.parts[place];
                    part.weight = part.weight.saturating_add(item.factor);
                    part.units = part.units.saturating_add(units);
                    place
                }
                None => {
                    let attached = item.limit.attached::<Attached>();
                    let foreign = || RedisError::Foreign(item.limit.id().to_owned());
                    plan.parts.push(Part {
                        item: index,
                        key: item.key,
                        id: item.limit.id(),
                        limit: item.limit.limit(),
                        attached: attached.ok_or_else(foreign)?,
                        inherit: item.limit.inherit(),
                        windows: item.windows.map(whole_micros),
                        weight: item.factor,
                        units,
                        takings: SmallVec::new(),
                        groups: SmallVec::new(),
                        slot: if by_slot { slot_of_key(item.key) } else { 0 },
                    });
                    plan.parts.len() - 1
                }
            };
            let part = &mut plan.parts[place];
            if let Some(group) = group.filter(|group| !part.groups.contains(group)) {
                part.groups.push(group);
            }
            if let Op::GiveBack(takings) = call.op {
                part.takings.extend(takings.get(index).filter(|taken| taken.cost > 0).copied());
            }
            plan.part_of.push(u32::try_from(place).unwrap_or(u32::MAX));
        }
        match plan.parts.len() {
            0..=PARTS_MAX => Ok(plan),
            more => Err(RedisError::TooManyKeys { keys: more, max: PARTS_MAX }),
        }
    }

    /// The group of an item; none for one that only watches.
    fn group(&mut self, mode: Mode) -> Option<u16> {
        let Mode::Quota(number) = mode else { return (mode == Mode::Enforce).then_some(0) };
        let place = self.quotas.iter().position(|quota| *quota == number);
        let place = place.unwrap_or_else(|| {
            self.quotas.push(number);
            self.quotas.len() - 1
        });
        Some(u16::try_from(place + 1).unwrap_or(u16::MAX))
    }

    /// Whether the request as a whole is admitted: no enforced limit refuses, and of the quotas, if
    /// there are any, not all.
    pub(super) fn is_allowed(&self, fits: impl Fn(usize) -> bool) -> bool {
        let admits = |group: u16| {
            let mut members = self.parts.iter().enumerate();
            members.all(|(place, part)| !part.groups.contains(&group) || fits(place))
        };
        let mut quotas = 1..=self.quotas.len() as u16;
        admits(0) && (self.quotas.is_empty() || quotas.any(admits))
    }

    /// For each group, whether what Redis is not asked about admits.
    pub(super) fn admits_at_first(&self, group: u16) -> bool {
        let blocked = |part: &Part<'_>| !part.is_kept() && !part.fits_blocked();
        !self.parts.iter().any(|part| part.groups.contains(&group) && blocked(part))
    }
}

/// Edges are moments at which whole microseconds begin, for the script as for the engine.
fn whole_micros(windows: Windows) -> Windows {
    let up = |edge: Timestamp| {
        Timestamp::from_nanos(edge.as_nanos().div_ceil(1000).saturating_mul(1000))
    };
    Windows { edges: windows.edges.map(up) }
}
