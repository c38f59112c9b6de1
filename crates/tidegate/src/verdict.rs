//! What a limiter with rules answers, and how it reads as JSON.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use smallvec::{SmallVec, smallvec};
use tidegate_core::{
    AlgorithmName, Decision, Joint, Limit, Moment, Rate, Retry, Source, Timestamp, join,
};
use tidegate_rules::{OnStoreError, Origin, Override, Reached, Rule, Rules};
use tidegate_store::OnError;

use crate::armed::Armed;
use crate::headers::push_number;
use crate::limiter::Decisions;

/// The answer to a request under rules.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// Whether the request may go on.
    pub allowed: bool,
    /// How much of the cost was admitted: all or nothing, but for `UpTo`.
    pub granted: u64,
    /// What to act on; `None` if no limit was met, or only limits that watch.
    pub decision: Option<Decision>,
    /// What each limit said that was met, in the order of the descriptors and of the rules.
    pub limits: SmallVec<[Answered; 4]>,
    /// Where each descriptor led.
    pub reached: SmallVec<[Reached; 4]>,
    /// Whether the rules know the domain.
    pub knows_domain: bool,
    /// The entry of the `http` section that refuses the request because it lacks a value.
    pub denied_by: Option<Origin>,
    /// The time that it was decided at.
    pub now: Timestamp,
    pub(crate) armed: Arc<Armed>,
}

/// What one limit said.
#[derive(Clone, Debug)]
pub struct Answered {
    /// Which descriptor of the request led to it.
    pub descriptor: u32,
    /// What it said. `allowed` is its own opinion, whatever became of the request.
    pub decision: Decision,
    pub(crate) by: By,
}

/// Who spoke.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    Rule(u32),
    /// A limit that is in no rules, by its position.
    Limit(u32),
    Override(Override),
    Block,
}

impl Answered {
    /// Whether it is no limit that spoke: an administrator has blocked the key.
    pub fn is_block(&self) -> bool {
        matches!(self.by, By::Block)
    }
}

impl Verdict {
    /// A request that lacks what the rules want to count it by.
    pub(crate) fn denied(origin: Origin, now: Timestamp, armed: Arc<Armed>) -> Self {
        Self {
            allowed: false,
            granted: 0,
            decision: None,
            limits: SmallVec::new(),
            reached: SmallVec::new(),
            knows_domain: true,
            denied_by: Some(origin),
            now,
            armed,
        }
    }

    /// The verdict where there are no limits: everybody may go on.
    pub fn unlimited(now: Timestamp) -> Self {
        static NO_LIMITS: LazyLock<Arc<Armed>> =
            LazyLock::new(|| Arc::new(Armed::limits(&[], &[], OnError::default())));
        Self::of_limits(None, now, Arc::clone(&NO_LIMITS))
    }

    /// What limits said that are in no rules, in their order; `None` if none of them was asked.
    pub(crate) fn of_limits(
        decisions: Option<&Decisions>,
        now: Timestamp,
        armed: Arc<Armed>,
    ) -> Self {
        let each = decisions.map_or(&[][..], |decisions| &decisions.each);
        let limits = (0u32..).zip(each).map(|(index, decision)| Answered {
            descriptor: 0,
            decision: Decision { rule: index, ..*decision },
            by: By::Limit(index),
        });
        Self {
            allowed: decisions.is_none_or(|decisions| decisions.overall.allowed),
            granted: decisions.map_or(0, |decisions| decisions.granted),
            decision: decisions.map(|decisions| decisions.overall),
            limits: limits.collect(),
            reached: SmallVec::new(),
            knows_domain: true,
            denied_by: None,
            now,
            armed,
        }
    }

    /// The verdict of a request that was admitted for later, and whom there is no room to hold.
    pub(crate) fn turned_away(mut self) -> Self {
        for answered in &mut self.limits {
            turn_away(&mut answered.decision);
        }
        (self.allowed, self.granted) = (false, 0);
        self.decision = join(false, self.limits.iter().map(|answered| &answered.decision));
        self
    }

    /// The rules that were in force.
    pub fn rules(&self) -> &Rules {
        &self.armed.rules
    }

    /// The verdict of a request some of whose keys are blocked for so long; what was said of the
    /// others stays.
    pub(crate) fn blocked(mut self, blocked: &[(u32, Duration)]) -> Self {
        for (descriptor, rest) in blocked {
            let decision = Decision {
                retry: Retry::After(*rest),
                reset_after: Some(*rest),
                source: Source::Store,
                ..Decision::without_state(false, 0)
            };
            let place = self.limits.iter().position(|it| it.descriptor >= *descriptor);
            let block = Answered { descriptor: *descriptor, decision, by: By::Block };
            self.limits.insert(place.unwrap_or(self.limits.len()), block);
        }
        for (rule, answered) in (0u32..).zip(&mut self.limits) {
            answered.decision.rule = rule;
        }
        (self.allowed, self.granted) = (false, 0);
        self.decision = join(false, self.limits.iter().map(|answered| &answered.decision));
        self
    }

    /// The rule that spoke; `None` for a limit that the request brought along, or that stands in
    /// for the rules by [exception](crate::Exception).
    pub fn rule(&self, answered: &Answered) -> Option<&Rule> {
        match answered.by {
            By::Rule(index) => self.armed.rules.all().get(index as usize),
            By::Limit(_) | By::Override(_) | By::Block => None,
        }
    }

    /// What people call the limit that spoke: the rule's id, the name of a limit that is in no rules,
    /// `override.5_per_minute` for one that came with the request, `block` for a key that is blocked.
    pub fn rule_id(&self, answered: &Answered) -> Cow<'_, str> {
        match answered.by {
            By::Rule(_) => self.rule(answered).map_or("", |rule| &*rule.id).into(),
            By::Limit(index) => {
                self.armed.handles.get(index as usize).map_or("", |handle| handle.id()).into()
            }
            By::Override(limit) => {
                let unit = limit.unit.as_str();
                format!("override.{}_per_{unit}", limit.requests_per_unit).into()
            }
            By::Block => "block".into(),
        }
    }

    pub(crate) fn limit_of(&self, answered: &Answered) -> Option<&Limit> {
        match answered.by {
            By::Limit(index) => self.armed.handles.get(index as usize).map(|it| it.limit()),
            _ => self.rule(answered).map(|rule| &rule.limit),
        }
    }

    /// The time in which the limit that spoke is earned, if it is.
    pub(crate) fn window(&self, answered: &Answered) -> Option<Duration> {
        match answered.by {
            By::Rule(_) | By::Limit(_) => self.limit_of(answered)?.earning_time(),
            By::Override(limit) if limit.requests_per_unit == 0 => None,
            By::Override(limit) => Some(limit.unit.length()),
            By::Block => None,
        }
    }

    /// The position of the rule that spoke among [all](Rules::all) of them.
    pub fn rule_index(&self, answered: &Answered) -> Option<usize> {
        match answered.by {
            By::Rule(index) => Some(index as usize),
            By::Limit(_) | By::Override(_) | By::Block => None,
        }
    }

    /// Which rules were in force: the number that [`RuleLimiter::generation`] told at the time.
    ///
    /// [`RuleLimiter::generation`]: crate::RuleLimiter::generation
    pub fn generation(&self) -> u64 {
        self.armed.generation
    }

    /// The limit that the request brought along, if that is what spoke.
    pub fn override_of(&self, answered: &Answered) -> Option<Override> {
        match answered.by {
            By::Rule(_) | By::Limit(_) | By::Block => None,
            By::Override(limit) => Some(limit),
        }
    }

    /// Whether it is a refusal that no limit is the reason of: the store could not answer, and the
    /// rule says `on_store_error: deny`; or it had no room to count the key, and was told to refuse
    /// then. What a process refuses by what it counts itself (`local`) is none of these.
    pub fn is_unanswered(&self) -> bool {
        let Some(reported) = self.reported().filter(|_| !self.allowed) else { return false };
        let Decision { source, retry, reset_after, .. } = reported.decision;
        if source != Source::Fallback {
            return false;
        }
        let is_local = match reported.by {
            By::Limit(_) => self.armed.on_error == OnError::Local,
            _ => self.rule(reported).is_some_and(|it| it.on_store_error == OnStoreError::Local),
        };
        // Of what was counted something is known, but for permits without a lease.
        let is_counted = retry != Retry::Unknown || reset_after.is_some();
        let is_concurrency = self.limit_of(reported).is_some_and(Limit::is_concurrency);
        !(is_local && (is_counted || is_concurrency))
    }

    /// The limit to report: the refusing one with the longest retry, otherwise the one nearest to
    /// its end. Limits that only watch are never reported.
    pub fn reported(&self) -> Option<&Answered> {
        self.limits.get(self.decision?.rule as usize)
    }

    /// The limit to report of each descriptor, chosen as in [`reported`](Self::reported); of those
    /// that only watch, where there are no others.
    pub fn reported_each(&self) -> SmallVec<[Option<&Answered>; 4]> {
        let mut each: SmallVec<[Option<&Answered>; 4]> = smallvec![None; self.reached.len()];
        for answered in &self.limits {
            let Some(place) = each.get_mut(answered.descriptor as usize) else { continue };
            if place.is_none_or(|before| is_told_before(&answered.decision, &before.decision)) {
                *place = Some(answered);
            }
        }
        each
    }

    /// Whether a limit counts in fixed windows, as all do that requests bring along.
    pub(crate) fn is_windowed(&self, answered: &Answered) -> bool {
        match answered.by {
            By::Rule(_) | By::Limit(_) => self
                .limit_of(answered)
                .is_some_and(|limit| limit.algorithm() == AlgorithmName::FixedWindow),
            By::Override(_) => true,
            By::Block => false,
        }
    }

    /// How long the fixed window lasts that the request would have been the first of; `None` if
    /// the limit has no such windows.
    pub(crate) fn window_left(&self, answered: &Answered) -> Option<Duration> {
        let now = self.now;
        match answered.by {
            By::Rule(index) | By::Limit(index) => {
                let limit = self.limit_of(answered)?;
                let calendar = self.armed.calendars.get(index as usize)?.as_ref();
                let window = calendar.map(|calendar| calendar.windows(now).around(now));
                limit.window_left(&Moment { now, window })
            }
            By::Override(Override { requests_per_unit, unit }) => {
                let rate = Rate::new(requests_per_unit.into(), unit.length());
                Limit::fixed_window(rate).build().ok()?.window_left(&Moment::at(now))
            }
            By::Block => None,
        }
    }

    /// The verdict as one line of JSON, without the line's end.
    #[must_use]
    pub fn to_json(&self) -> String {
        let mut out = String::with_capacity(128 + self.limits.len() * 192);
        self.write_json(&mut out);
        out
    }

    /// Appends the verdict as JSON.
    pub fn write_json(&self, out: &mut String) {
        out.push_str("{\"allowed\":");
        push_bool(out, self.allowed);
        out.push_str(",\"limits\":[");
        for (index, answered) in self.limits.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            self.write_limit(out, answered);
        }
        out.push(']');
        if let Some(decision) = self.decision.or_else(|| self.watched()) {
            out.push_str(",\"remaining\":");
            push_number(out, decision.remaining);
            write_times(out, &decision);
            out.push_str(",\"source\":\"");
            out.push_str(decision.source.name());
            out.push('"');
        } else if self.denied_by.is_some() {
            // Where the rules say so is for those who own them, and not for clients.
            out.push_str(
                ",\"retry_after_ns\":null,\"retry\":\"never\",\"denied\":\"missing_value\"",
            );
        }
        out.push('}');
    }

    /// What limits say that only watch, where no others are met.
    fn watched(&self) -> Option<Decision> {
        let (first, others) = self.limits.split_first()?;
        let mut joint = Joint::new(&first.decision);
        others.iter().for_each(|answered| joint.add(&answered.decision));
        Some(joint.finish(self.allowed))
    }

    fn write_limit(&self, out: &mut String, answered: &Answered) {
        let decision = &answered.decision;
        out.push_str("{\"rule\":");
        write_text(out, &self.rule_id(answered));
        let Decision { allowed, limit, remaining, soft, source, .. } = *decision;
        out.push_str(",\"allowed\":");
        push_bool(out, allowed);
        out.push_str(",\"limit\":");
        push_number(out, limit);
        if !decision.is_unasked() {
            out.push_str(",\"remaining\":");
            push_number(out, remaining);
        }
        write_times(out, decision);
        out.push_str(",\"soft\":");
        push_bool(out, soft);
        out.push_str(",\"shadow\":");
        push_bool(out, source == Source::Shadow);
        out.push_str(",\"descriptor\":");
        push_number(out, answered.descriptor.into());
        out.push('}');
    }
}

/// Makes a refusal of an admission for later: what it would have waited for may be tried again then.
fn turn_away(decision: &mut Decision) {
    if decision.allowed && decision.source != Source::Shadow && !decision.delay.is_zero() {
        decision.allowed = false;
        decision.retry = Retry::After(std::mem::take(&mut decision.delay));
    }
}

/// Whether one limit is rather reported than another that comes before it.
fn is_told_before(one: &Decision, other: &Decision) -> bool {
    let watches = |decision: &Decision| decision.source == Source::Shadow;
    if watches(one) != watches(other) {
        return watches(other);
    }
    let mut joint = Joint::new(&Decision { rule: 0, ..*other });
    joint.add(&Decision { rule: 1, ..*one });
    joint.finish(one.allowed && other.allowed).rule == 1
}

/// When to come back, when all is as new, how long to wait; with a word where there is no number.
fn write_times(out: &mut String, decision: &Decision) {
    out.push_str(",\"retry_after_ns\":");
    match decision.retry.after() {
        Some(wait) => push_nanos(out, wait),
        None if decision.retry == Retry::Never => out.push_str("null,\"retry\":\"never\""),
        None => out.push_str("null,\"retry\":\"unknown\""),
    }
    out.push_str(",\"reset_after_ns\":");
    match decision.reset_after {
        Some(reset) => push_nanos(out, reset),
        None => out.push_str("null"),
    }
    out.push_str(",\"delay_ns\":");
    push_nanos(out, decision.delay);
}

fn push_bool(out: &mut String, is: bool) {
    out.push_str(if is { "true" } else { "false" });
}

fn push_nanos(out: &mut String, duration: Duration) {
    match u64::try_from(duration.as_nanos()) {
        Ok(nanos) => push_number(out, nanos),
        Err(_) => {
            // Writing to a string does not fail.
            let _ = write!(out, "{}", duration.as_nanos());
        }
    }
}

/// A JSON string.
pub(crate) fn write_text(out: &mut String, text: &str) {
    out.push('"');
    if text.bytes().all(|byte| byte >= b' ' && byte != b'"' && byte != b'\\') {
        out.push_str(text);
        out.push('"');
        return;
    }
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}
