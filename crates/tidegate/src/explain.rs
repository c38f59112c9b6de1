//! Which rules a request meets, and why: for people and for programs.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate_core::{Align, Decision, LimitSpec, Rate, Retry};
use tidegate_rules::{
    Descriptor, End, Entry, Explanation, Found, HttpDescriptor, HttpExplained, HttpMismatch,
    HttpOutcome, HttpRequest, Mapped, Rule, Rules,
};
use tidegate_store::Store;

use crate::armed::RuleError;
use crate::clock::{Clock, ManualClock};
use crate::rule_limiter::{Query, RuleLimiter};
use crate::verdict::Verdict;

impl<S: Store, C: Clock> RuleLimiter<S, C> {
    /// Explains which limits a request meets, why, and what they say to keys that have used
    /// nothing. Slow: it looks at every rule.
    ///
    /// # Errors
    /// If the request meets more limits than a store can know.
    pub fn explain(&self, query: &Query<'_>) -> Result<Explained, RuleError> {
        let mut explained = Explained::new();
        self.explain_descriptors(&mut explained, query)?;
        Ok(explained)
    }

    /// [`explain`](Self::explain) for an HTTP request, with what the `http` section of the rules
    /// makes of it. `query` says all but the descriptors.
    ///
    /// # Errors
    /// As there.
    pub fn explain_http<R: HttpRequest + ?Sized>(
        &self,
        query: &Query<'_>,
        request: &R,
    ) -> Result<Explained, RuleError> {
        let mut explained = Explained::new();
        let mut mapped = Mapped::new();
        self.with_rules(|rules| {
            explained.http(rules, &rules.explain_http(query.domain, request));
            rules.map_http(query.domain, request, &mut mapped);
        });
        if mapped.is_denied() {
            explained.line("the request is refused: it lacks a value, and `on_missing` is `deny`");
            explained.json.insert("allowed".to_owned(), json!(false));
            return Ok(explained);
        }
        mapped.with(|descriptors| {
            let query = Query { descriptors, ..*query };
            self.explain_descriptors(&mut explained, &query)
        })?;
        Ok(explained)
    }

    fn explain_descriptors(
        &self,
        explained: &mut Explained,
        query: &Query<'_>,
    ) -> Result<(), RuleError> {
        let keys = self.with_rules(|rules| {
            for (number, descriptor) in query.descriptors.iter().enumerate() {
                explained.descriptor(rules, query.domain, number, descriptor);
            }
            let mut found = Found::new();
            rules.find(query.domain, query.descriptors, &mut found);
            let keys =
                found.limits.iter().map(|met| String::from_utf8_lossy(found.key(met)).into_owned());
            keys.collect::<Vec<String>>()
        });
        // Some moment, so that the answer is the same always.
        let verdict = self.ask_fresh(query, ManualClock::new().now())?;
        explained.limits(&verdict, &keys);
        explained.json.insert("allowed".to_owned(), json!(verdict.allowed));
        Ok(())
    }
}

/// An explanation: see [`RuleLimiter::explain`].
#[derive(Clone, Debug)]
pub struct Explained {
    text: String,
    json: serde_json::Map<String, Value>,
}

impl Explained {
    /// For people: lines of text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// For programs: one line of JSON, without the line's end.
    #[must_use]
    pub fn to_json(&self) -> String {
        // A map with texts for keys can always be written.
        serde_json::to_string(&self.json).unwrap_or_default()
    }

    fn new() -> Self {
        let lists = ["http", "descriptors", "limits"];
        let json = lists.map(|name| (name.to_owned(), json!([]))).into_iter().collect();
        Self { text: String::new(), json }
    }

    fn line(&mut self, line: impl AsRef<str>) {
        // What a file or a request holds must not command the terminal.
        let is_hidden = |c: char| c.is_control() && c != '\n';
        self.text.push_str(&line.as_ref().replace(is_hidden, "\u{fffd}"));
        self.text.push('\n');
    }

    fn list(&mut self, name: &str, item: Value) {
        if let Some(list) = self.json.get_mut(name).and_then(Value::as_array_mut) {
            list.push(item);
        }
    }

    fn http(&mut self, rules: &Rules, explained: &[HttpExplained]) {
        if explained.is_empty() {
            self.line("the rules have no `http` section, so that HTTP requests meet no limit\n");
            return;
        }
        self.line("http entries");
        for entry in explained {
            let origin = rules.origin(entry.origin);
            let (applies, why) = outcome(rules, &entry.outcome);
            let sign = if applies { '+' } else { '-' };
            self.line(format!("  {sign} {origin}: {why}"));
            self.list("http", json!({ "origin": origin, "applies": applies, "why": why }));
        }
        self.line("");
    }

    fn descriptor(
        &mut self,
        rules: &Rules,
        domain: &str,
        number: usize,
        descriptor: &Descriptor<'_>,
    ) {
        let entries: &[Entry<'_>] = descriptor.entries;
        let explanation = rules.explain(domain, entries);
        let shown: Vec<_> =
            entries.iter().map(|entry| format!("{}={}", entry.key, entry.value)).collect();
        let pairs: Vec<_> = entries.iter().map(|entry| (entry.key, entry.value)).collect();
        self.line(format!("descriptor {number}: {}", shown.join(" ")));
        let steps = self.steps(rules, &explanation);
        let end = end(rules, &explanation.end);
        self.line(format!("  => {end}\n"));
        self.list("descriptors", json!({ "entries": pairs, "steps": steps, "end": end }));
    }

    fn steps(&mut self, rules: &Rules, explanation: &Explanation<'_>) -> Vec<Value> {
        let mut steps = Vec::new();
        for step in &explanation.steps {
            self.line(format!("  {}={}", step.key, step.value));
            let taken = step.taken.iter().map(|taken| (true, taken));
            let others = step.others.iter().map(|other| (false, other));
            let mut candidates = Vec::new();
            for (is_taken, candidate) in taken.chain(others) {
                let sign = if is_taken { '+' } else { '-' };
                let origin = rules.origin(candidate.origin);
                let (written, why) = (&candidate.written, &candidate.why);
                self.line(format!("    {sign} {written} ({origin}): {why}"));
                candidates.push(json!({
                    "rule": written, "origin": origin, "taken": is_taken, "why": why,
                }));
            }
            if step.more > 0 {
                self.line(format!("    - and {}", other_rules(step.more)));
            }
            steps.push(json!({ "key": step.key, "value": step.value, "candidates": candidates }));
        }
        steps
    }

    fn limits(&mut self, verdict: &Verdict, keys: &[String]) {
        if verdict.limits.is_empty() {
            self.line("no limit is met: the request passes");
            return;
        }
        self.line("limits met, and what each says to a key that has used nothing");
        for (answered, key) in verdict.limits.iter().zip(keys) {
            let Some(rule) = verdict.rule(answered) else { continue };
            let said = said(&answered.decision);
            self.line(format!("  {} ({})", rule.id, verdict.rules().origin(rule.origin)));
            self.line(format!("    limit:   {}{}", numbers(rule), marks(rule)));
            self.line(format!("    key:     {key}"));
            self.line(format!("    answer:  {said}"));
            self.list(
                "limits",
                json!({
                    "rule": &*rule.id,
                    "origin": verdict.rules().origin(rule.origin),
                    "limit": rule.limit.to_string(),
                    "key": key,
                    "answer": said,
                    "allowed": answered.decision.allowed,
                    "remaining": answered.decision.remaining,
                }),
            );
        }
        let word = if verdict.allowed { "passes" } else { "is refused" };
        self.line(format!("the request {word}"));
    }
}

fn outcome(rules: &Rules, outcome: &HttpOutcome) -> (bool, String) {
    match outcome {
        HttpOutcome::Applied { descriptors, is_final } => {
            let made: Vec<_> = descriptors.iter().map(made).collect();
            let mut text = match made.is_empty() {
                true => "matches, and gives no descriptor".to_owned(),
                false => format!("matches: {}", made.join("; ")),
            };
            if *is_final {
                text.push_str("; entries further down do not apply");
            }
            (true, text)
        }
        HttpOutcome::NotMatched(mismatch) => (false, not_matched(mismatch)),
        HttpOutcome::Final(origin) => {
            (false, format!("not asked, because {} is final", rules.origin(*origin)))
        }
        HttpOutcome::Denied(origin) => {
            (false, format!("not asked, because {} refuses the request", rules.origin(*origin)))
        }
        _ => (false, "not asked".to_owned()),
    }
}

fn made(descriptor: &HttpDescriptor) -> String {
    match descriptor {
        HttpDescriptor::Made { descriptors, .. } => {
            let shown = descriptors.iter().map(|pairs| {
                let pairs: Vec<_> =
                    pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
                pairs.join(" ")
            });
            shown.collect::<Vec<_>>().join("; ")
        }
        HttpDescriptor::Missing { variable, is_denied: false } => {
            format!("a descriptor is left out, because ${{{variable}}} has no value")
        }
        HttpDescriptor::Missing { variable, .. } => {
            format!("refused, because ${{{variable}}} has no value")
        }
        _ => String::new(),
    }
}

fn not_matched(mismatch: &HttpMismatch) -> String {
    let of = |found: &Option<String>| found.clone().unwrap_or("absent".to_owned());
    match mismatch {
        HttpMismatch::Method { wanted, found } => {
            format!("the method is {found}, not {}", wanted.join(" or "))
        }
        HttpMismatch::Host { wanted, found } => format!("the host is {}, not {wanted}", of(found)),
        HttpMismatch::Path { wanted, found } => format!("the path is {found}, not {wanted}"),
        HttpMismatch::Header { name, wanted, found } => {
            format!("the header {name} is {}, not {wanted}", of(found))
        }
        _ => "it does not match".to_owned(),
    }
}

fn end(rules: &Rules, end: &End<'_>) -> String {
    match end {
        End::NoDomain => "the rules do not know the domain".to_owned(),
        End::NoRule => "no rule for this entry here, so no limit".to_owned(),
        End::NoLimit { below } if below.is_empty() => {
            "a rule without a limit: these values are not limited".to_owned()
        }
        End::NoLimit { below } => {
            let below: Vec<_> = below.iter().map(|key| format!("`{key}`")).collect();
            format!("no limit at this depth; below it are rules for {}", below.join(", "))
        }
        End::Unlimited(id) => format!("{id} says unlimited"),
        End::Limits(limits) => {
            let mut text = String::new();
            for limit in limits {
                let separator = if text.is_empty() { "" } else { ", " };
                let origin = rules.origin(limit.rule.origin);
                // Writing to a string does not fail.
                let _ = write!(text, "{separator}{} ({origin})", limit.rule.id);
                if let Some(why) = limit.left_out {
                    let _ = write!(text, " is left out: {why}");
                }
            }
            text
        }
        _ => String::new(),
    }
}

/// The numbers of a limit. What the calendar and softness add is among the marks.
fn numbers(rule: &Rule) -> String {
    let text = rule.limit.to_string();
    let Ok(spec) = text.parse::<LimitSpec>() else { return text };
    let mut shown = LimitSpec { soft: None, ..spec };
    let Some(zone) = &rule.calendar else { return shown.to_string() };
    shown.align = Align::Epoch;
    let by_unit = format!("{}/{}", spec.rate.units, zone.unit.as_str());
    shown.to_string().replacen(&spec.rate.to_string(), &by_unit, 1)
}

/// What is special about a rule.
fn marks(rule: &Rule) -> String {
    let mut marks = String::new();
    if rule.shadow {
        marks.push_str(", shadow: refuses nobody");
    }
    if rule.quota {
        marks.push_str(", quota");
    }
    if let Ok(LimitSpec { soft: Some(soft), .. }) = rule.limit.to_string().parse::<LimitSpec>() {
        let (percent, span) = (f64::from(soft.over_bp) / 100.0, written(soft.span));
        marks.push_str(&format!(", soft: {percent}% more for {span}"));
    }
    if rule.cost != 1 {
        marks.push_str(&format!(", each unit costs {}", rule.cost));
    }
    if let Some(zone) = &rule.calendar {
        marks.push_str(&format!(", by the calendar of {}", zone.name));
    }
    marks
}

fn said(decision: &Decision) -> String {
    let Decision { allowed, limit, remaining, retry, delay, .. } = *decision;
    match (allowed, retry) {
        (true, _) if !delay.is_zero() => {
            format!("admitted after {}, {remaining} of {limit} left", shown(delay))
        }
        (true, _) => format!("admitted, {remaining} of {limit} left"),
        (false, Retry::Never) => format!("refused for good: the limit is {limit}"),
        (false, Retry::After(wait)) => format!("refused, again in {}", shown(wait)),
        (false, _) => "refused".to_owned(),
    }
}

/// A duration as in rules: `2d`.
fn written(duration: Duration) -> String {
    let rate = Rate::new(1, duration).to_string();
    rate.split_once('/').map_or(String::new(), |(_, period)| period.to_owned())
}

fn shown(duration: Duration) -> String {
    format!("{duration:?}")
}

fn other_rules(count: usize) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} other rule{plural}")
}
