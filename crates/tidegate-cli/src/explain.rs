//! `tidegate explain`: which rules a request meets, and why.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use tidegate::rules::{
    Descriptor, End, Entry, Explanation, Found, HttpDescriptor, HttpExplained, HttpMismatch,
    HttpOutcome, Mapped, PlainRequest, Rule, Rules,
};
use tidegate::{
    Align, Decision, LimitSpec, ManualClock, MemoryStore, Query, Rate, Retry, RuleLimiter, Verdict,
};

use crate::args::{ExplainArgs, Format};
use crate::failure::{Ending, Failure, chain, say, write_out};
use crate::load;

/// One descriptor of the request.
#[derive(Default)]
struct Asked {
    entries: Vec<AskedEntry>,
    /// The cost, if it is not the request's.
    cost: Option<u64>,
}

/// An entry that owns its text.
struct AskedEntry {
    key: String,
    value: String,
    /// The address that the value was made from: `exempt` looks at it.
    address: Option<IpAddr>,
}

impl Asked {
    fn entries(&self) -> Vec<Entry<'_>> {
        let entries = self.entries.iter();
        entries
            .map(|AskedEntry { key, value, address }| Entry { key, value, address: *address })
            .collect()
    }
}

/// Runs the command.
pub(crate) fn run(args: &ExplainArgs) -> Ending {
    let rules = load::rules(&args.rules, &args.loading)?;
    let domain = domain(args, &rules)?;
    let mut report = Report::new();
    let descriptors = match &args.request[..] {
        [url] if is_url(url) => http(args, &rules, &domain, url, &mut report)?,
        words => {
            refuse_http_flags(args)?;
            descriptors(words)?
        }
    };
    for (number, descriptor) in descriptors.iter().enumerate() {
        report.descriptor(&rules, &domain, number, &descriptor.entries());
    }
    report.verdict(args, rules, &domain, &descriptors)?;
    match args.format {
        Format::Text => write_out(report.text.as_bytes()),
        Format::Json => write_out(format!("{}\n", Value::Object(report.json)).as_bytes()),
    }?;
    Ok(ExitCode::SUCCESS)
}

/// The domain that was named, or the only one there is.
fn domain(args: &ExplainArgs, rules: &Rules) -> Result<String, Failure> {
    let mut known: Vec<&str> = rules.domains().collect();
    known.sort_unstable();
    match (&args.domain, &known[..]) {
        (Some(domain), _) if known.contains(&domain.as_str()) => Ok(domain.clone()),
        (Some(domain), _) => Err(Failure::new(format!("the rules have no domain `{domain}`"))
            .hint(format!("they have {}", known.join(", ")))),
        (None, [only]) => Ok((*only).to_owned()),
        (None, _) => Err(Failure::new("the rules have several domains")
            .hint(format!("say which with --domain: {}", known.join(", ")))),
    }
}

/// Whether a word is a URL and not an entry.
fn is_url(word: &str) -> bool {
    word.starts_with('/') || word.starts_with("http://") || word.starts_with("https://")
}

fn refuse_http_flags(args: &ExplainArgs) -> Result<(), Failure> {
    if args.method.is_none() && args.headers.is_empty() && args.client_ip.is_none() {
        return Ok(());
    }
    Err(Failure::new("-X, -H and --client-ip describe an HTTP request, and there is no URL")
        .hint("end with a URL such as https://example.com/v1/posts or /v1/posts"))
}

/// Descriptors from words: entries as KEY=VALUE, `,` between descriptors.
fn descriptors(words: &[String]) -> Result<Vec<Asked>, Failure> {
    words.split(|word| word == ",").map(descriptor).collect()
}

fn descriptor(words: &[String]) -> Result<Asked, Failure> {
    if words.is_empty() {
        return Err(Failure::new("a descriptor is empty")
            .hint("`,` stands between two descriptors: user=ada , ip=192.0.2.7"));
    }
    let entries = words.iter().map(|word| entry(word)).collect::<Result<_, _>>()?;
    Ok(Asked { entries, cost: None })
}

fn entry(word: &str) -> Result<AskedEntry, Failure> {
    if is_url(word) {
        return Err(Failure::new(format!("the URL `{word}` is not the only word"))
            .hint("ask either for one URL or for descriptors"));
    }
    match word.split_once('=') {
        Some((key, _)) if key.is_empty() || key.starts_with(',') => {
            Err(Failure::new(format!("`{word}` is not KEY=VALUE"))
                .hint("a `,` between two descriptors stands alone: user=ada , ip=192.0.2.7"))
        }
        Some((key, value)) => {
            if value.ends_with(',') {
                say(&format!("note: the value of `{key}` is `{value}`, with the `,`\n"));
            }
            Ok(AskedEntry { key: key.to_owned(), value: value.to_owned(), address: None })
        }
        None => {
            let hint = match word.contains('/') {
                true => "begin a URL with https:// or, without a host, with /",
                false => "write the entries of a descriptor as action=post user=ada",
            };
            Err(Failure::new(format!("`{word}` is neither KEY=VALUE nor a URL")).hint(hint))
        }
    }
}

/// The descriptors that the `http` section makes of a request.
fn http(
    args: &ExplainArgs,
    rules: &Rules,
    domain: &str,
    url: &str,
    report: &mut Report,
) -> Result<Vec<Asked>, Failure> {
    let mut headers = Vec::new();
    for header in &args.headers {
        let Some((name, value)) = header.split_once(':') else {
            return Err(Failure::new(format!("`{header}` is not a header"))
                .hint("write it as 'name: value'"));
        };
        headers.push((name.trim(), value.trim()));
    }
    let method = args.method.as_deref().unwrap_or("GET");
    let request = PlainRequest::parse(method, url, headers, args.client_ip);
    let request = request.map_err(Failure::new)?;
    report.http(rules, &rules.explain_http(domain, &request));
    let mut mapped = Mapped::new();
    rules.map_http(domain, &request, &mut mapped);
    report.denied = mapped.is_denied();
    let owned = |Entry { key, value, address }: Entry<'_>| AskedEntry {
        key: key.to_owned(),
        value: value.to_owned(),
        address,
    };
    let made = mapped.descriptors();
    let asked =
        made.map(|made| Asked { entries: made.entries().map(owned).collect(), cost: made.cost() });
    Ok(asked.collect())
}

/// The answer, for people and for programs at once.
struct Report {
    text: String,
    json: serde_json::Map<String, Value>,
    denied: bool,
}

impl Report {
    fn new() -> Self {
        let lists = ["http", "descriptors", "limits"];
        let json = lists.map(|name| (name.to_owned(), json!([]))).into_iter().collect();
        Self { text: String::new(), json, denied: false }
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

    fn descriptor(&mut self, rules: &Rules, domain: &str, number: usize, entries: &[Entry<'_>]) {
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
                self.line(format!("    - and {}", load::counted(step.more, "other rule")));
            }
            steps.push(json!({ "key": step.key, "value": step.value, "candidates": candidates }));
        }
        steps
    }

    /// What the limits would say to a key that has used nothing.
    fn verdict(
        &mut self,
        args: &ExplainArgs,
        rules: Rules,
        domain: &str,
        descriptors: &[Asked],
    ) -> Result<(), Failure> {
        if self.denied {
            self.line("the request is refused: it lacks a value, and `on_missing` is `deny`");
            self.json.insert("allowed".to_owned(), json!(false));
            return Ok(());
        }
        let modes = load::modes(&args.loading);
        let limiter = RuleLimiter::build(MemoryStore::new(), ManualClock::new(), rules, modes)
            .map_err(|error| Failure::new(chain(&error)))?;
        let entries: Vec<Vec<Entry<'_>>> = descriptors.iter().map(Asked::entries).collect();
        let described: Vec<_> = entries
            .iter()
            .zip(descriptors)
            .map(|(entries, asked)| Descriptor { cost: asked.cost, ..Descriptor::new(entries) })
            .collect();
        let keys = limiter.with_rules(|rules| {
            let mut found = Found::new();
            rules.find(domain, &described, &mut found);
            let keys =
                found.limits.iter().map(|met| String::from_utf8_lossy(found.key(met)).into_owned());
            keys.collect::<Vec<String>>()
        });
        let verdict = limiter.check(&Query::new(domain, &described).cost(args.cost));
        self.limits(&verdict, &keys);
        self.json.insert("allowed".to_owned(), json!(verdict.allowed));
        Ok(())
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
