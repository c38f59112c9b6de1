//! From parts to commands.

use smallvec::SmallVec;
use tidegate_core::Timestamp;

use super::plan::{Part, Plan};
use super::{Engine, ONLY_MICROS};
use crate::client::Command;
use crate::key::{Kept, name_len, put_name};
use crate::script::{Head, ScriptOp, begin, begin_argument, end_argument, put_argument};
use crate::store::TimeSource;
use crate::terms::{Terms, put};

/// Other slots have a say too, so that the script does not decide on quotas.
pub(super) const APART: u8 = 1;
/// A refusal writes nothing, not even what refusals are to be counted for.
pub(super) const ONLY_IF_ALLOWED: u8 = 2;

/// What to put back, if nobody has changed the key since.
pub(super) struct Restoring {
    /// What is there if nobody has.
    pub(super) after: SmallVec<[u8; 32]>,
    /// What was there before.
    pub(super) before: SmallVec<[u8; 32]>,
    /// When that will be spent, in microseconds.
    pub(super) till: f64,
}

/// A question about some of the parts of a call.
pub(super) struct Question<'a> {
    pub(super) op: ScriptOp,
    pub(super) flags: u8,
    pub(super) members: &'a [usize],
    /// The caller's time.
    pub(super) now: Timestamp,
    /// For [`ScriptOp::Undo`], one for each member.
    pub(super) restoring: &'a [Restoring],
}

impl Engine {
    /// The time as the script is told it.
    pub(super) fn told(&self, now: Timestamp) -> f64 {
        match self.time {
            TimeSource::Redis => -1.0,
            TimeSource::Caller => (now.as_nanos() / 1000).min(ONLY_MICROS) as f64,
        }
    }

    /// The command, and whether it goes the quickest way, whose reply is a little different.
    pub(super) fn encode(&self, plan: &Plan<'_>, question: &Question<'_>) -> (Command, bool) {
        if question.op != ScriptOp::Check || question.flags != 0 {
            return (self.encode_any(plan, question), false);
        }
        if let [part] = &*plan.parts
            && let Some(quick) = is_plain(part)
            && matches!(part.attached.terms, Terms::Bucket(_))
        {
            return (self.encode_bucket(part, quick, question), true);
        }
        // Nobody else has a say, be it that a limit that blocks says no.
        let is_all = question.members.len() == plan.parts.len() && plan.quotas.is_empty();
        let is_plain = |part: &Part<'_>| is_plain(part).is_some() && *part.groups == [0];
        if is_all && plan.parts.len() < 250 && plan.parts.iter().all(is_plain) {
            return (self.encode_plain(plan, question), false);
        }
        (self.encode_any(plan, question), false)
    }

    /// The commonest of all: one plain bucket.
    fn encode_bucket(&self, part: &Part<'_>, quick: &[u8], question: &Question<'_>) -> Command {
        let length = 25 + quick.len();
        let mut bytes = begin(1, name_len(&self.prefix, part.key, part.id) + 32 + length);
        self.put_key(&mut bytes, part, Kept::State);
        begin_argument(&mut bytes, length);
        bytes.push(ScriptOp::QuickBucket as u8);
        put(&mut bytes, self.told(question.now));
        part.attached.terms.put_units(&mut bytes, part.units, None);
        bytes.extend_from_slice(quick);
        end_argument(&mut bytes);
        Command { slot: part.slot, bytes }
    }

    /// Plain buckets and windows, all of them enforced.
    fn encode_plain(&self, plan: &Plan<'_>, question: &Question<'_>) -> Command {
        let (mut names, mut length) = (0, 10);
        for part in &plan.parts {
            let units = if matches!(part.attached.terms, Terms::Bucket(_)) { 16 } else { 32 };
            names += name_len(&self.prefix, part.key, part.id) + 16;
            length += 1 + units + is_plain(part).map_or(0, <[u8]>::len);
        }
        let mut bytes = begin(plan.parts.len(), names + 16 + length);
        plan.parts.iter().for_each(|part| self.put_key(&mut bytes, part, Kept::State));
        begin_argument(&mut bytes, length);
        bytes.push(ScriptOp::Plain as u8);
        put(&mut bytes, self.told(question.now));
        bytes.push(plan.parts.len() as u8);
        for part in &plan.parts {
            bytes.push(part.attached.terms.kind());
            part.attached.terms.put_units(&mut bytes, part.units, part.windows.as_ref());
            bytes.extend_from_slice(is_plain(part).unwrap_or_default());
        }
        end_argument(&mut bytes);
        Command { slot: plan.parts.first().map_or(0, |part| part.slot), bytes }
    }

    fn encode_any(&self, plan: &Plan<'_>, question: &Question<'_>) -> Command {
        let parts = || question.members.iter().map(|member| &plan.parts[*member]);
        let resets = question.op == ScriptOp::Reset;
        let keys = |part: &Part<'_>| if resets || part.attached.terms.is_spread() { 3 } else { 1 };
        let names: usize =
            parts().map(|part| keys(part) * (name_len(&self.prefix, part.key, part.id) + 16)).sum();
        let request = self.request(plan, question);
        let mut bytes = begin(parts().map(keys).sum(), names + request.len() + 16);
        for part in parts() {
            self.put_key(&mut bytes, part, Kept::State);
            if keys(part) == 3 {
                self.put_key(&mut bytes, part, Kept::Units);
                self.put_key(&mut bytes, part, Kept::Ends);
            }
        }
        put_argument(&mut bytes, &request);
        Command { slot: parts().next().map_or(0, |part| part.slot), bytes }
    }

    fn put_key(&self, out: &mut Vec<u8>, part: &Part<'_>, kept: Kept) {
        begin_argument(out, name_len(&self.prefix, part.key, part.id));
        put_name(out, &self.prefix, part.key, part.id, kept);
        end_argument(out);
    }

    /// What the script is asked; `tail.lua` reads it in this order.
    fn request(&self, plan: &Plan<'_>, question: &Question<'_>) -> Vec<u8> {
        let parts = || question.members.iter().map(|member| &plan.parts[*member]);
        let size: usize = parts().map(|part| part.attached.fixed.len() + 80).sum();
        let mut out = Vec::with_capacity(64 + size);
        let head = Head {
            op: question.op,
            flags: question.flags,
            kinds: parts().fold(0, |kinds, part| kinds | part.attached.terms.bit()),
            now: self.told(question.now),
            holder: plan.holder,
            quotas: plan.quotas.len() as u16,
            parts: question.members.len() as u16,
        };
        head.put(&mut out);
        if question.op == ScriptOp::Reset {
            return out;
        }
        out.extend((0..=head.quotas).map(|group| u8::from(plan.admits_at_first(group))));
        for (place, part) in parts().enumerate() {
            let terms = &part.attached.terms;
            out.extend_from_slice(&[terms.kind(), u8::from(part.units > 0)]);
            out.extend_from_slice(&part.attached.fixed);
            terms.put_units(&mut out, part.units, part.windows.as_ref());
            out.extend_from_slice(&(part.groups.len() as u16).to_le_bytes());
            part.groups.iter().for_each(|group| out.extend_from_slice(&group.to_le_bytes()));
            if matches!(question.op, ScriptOp::GiveBack | ScriptOp::Undo) {
                out.extend_from_slice(&(part.takings.len() as u16).to_le_bytes());
                part.takings.iter().for_each(|taken| terms.put_taking(&mut out, taken));
            }
            if let Some(restoring) = question.restoring.get(place) {
                put(&mut out, restoring.till);
                for state in [&restoring.after, &restoring.before] {
                    out.push(state.len() as u8);
                    out.extend_from_slice(state);
                }
            }
        }
        out
    }

    /// A request about the three keys that a part may have.
    pub(super) fn about_keys(&self, part: &Part<'_>, head: &Head, rest: &[&[u8]]) -> Command {
        let name = name_len(&self.prefix, part.key, part.id);
        let length: usize = rest.iter().map(|piece| piece.len()).sum();
        let mut bytes = begin(3, 3 * (name + 16) + length + 64);
        for kept in [Kept::State, Kept::Units, Kept::Ends] {
            self.put_key(&mut bytes, part, kept);
        }
        let mut request = Vec::with_capacity(32);
        head.put(&mut request);
        begin_argument(&mut bytes, request.len() + length);
        bytes.extend_from_slice(&request);
        rest.iter().for_each(|piece| bytes.extend_from_slice(piece));
        end_argument(&mut bytes);
        Command { slot: part.slot, bytes }
    }
}

/// What the quick ways of the script are told of a part that can go them.
fn is_plain<'a>(part: &Part<'a>) -> Option<&'a [u8]> {
    part.attached.quick.as_deref().filter(|_| part.units > 0)
}
