//! `tidegate replay`: requests from JSON lines, decided in the time that they say.
//!
//! One line in, one line out, in the same order; what is kept between them is the store alone.

mod redis;

use std::borrow::Cow;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::net::IpAddr;
use std::process::ExitCode;

use serde::Deserialize;
use tidegate::rules::{Descriptor, Entry, Mapped, PlainRequest};
use tidegate::{
    DESCRIPTORS_MAX, ManualClock, MemoryStore, Op, Query, RuleLimiter, Timestamp, Verdict,
    holder_named,
};
use tidegate_server::{AnyStore, StoreError};

use crate::args::ReplayArgs;
use crate::failure::{Ending, Failure, NO, chain, finish, say};
use crate::load;

/// The longest line that is read.
const LINE_BYTES_MAX: u64 = 16 << 20;

/// What some editors and shells put before the first line.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// A line of input.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line<'a> {
    t_ns: u64,
    #[serde(borrow)]
    domain: Text<'a>,
    #[serde(borrow, default)]
    descriptors: Option<Vec<Vec<Pair<'a>>>>,
    #[serde(borrow, default)]
    http: Option<Http<'a>>,
    #[serde(default = "one")]
    cost: u64,
    #[serde(borrow, default)]
    op: Option<Text<'a>>,
    #[serde(borrow, default)]
    id: Option<Text<'a>>,
}

/// An entry of a descriptor.
#[derive(Deserialize)]
#[serde(expecting = "a pair of texts such as [\"user\",\"ada\"]")]
struct Pair<'a>(#[serde(borrow)] Text<'a>, #[serde(borrow)] Text<'a>);

/// An HTTP request instead of descriptors.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a map with `url`")]
struct Http<'a> {
    #[serde(borrow, default)]
    method: Option<Text<'a>>,
    #[serde(borrow)]
    url: Text<'a>,
    #[serde(default)]
    headers: Headers,
    #[serde(default)]
    client_ip: Option<IpAddr>,
}

/// Headers in their order, each with one value or several.
#[derive(Default)]
struct Headers(Vec<(String, String)>);

/// A text that is borrowed from the line where it can be.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

fn one() -> u64 {
    1
}

/// What a line asks for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Store(Op<'static>),
    Acquire,
    Release,
}

impl Asked {
    const NAMES: [(&'static str, Self); 8] = [
        ("check", Self::Store(Op::Check)),
        ("peek", Self::Store(Op::Peek)),
        ("up_to", Self::Store(Op::UpTo)),
        ("force", Self::Store(Op::Force)),
        ("refund", Self::Store(Op::Refund)),
        ("reset", Self::Store(Op::Reset)),
        ("acquire", Self::Acquire),
        ("release", Self::Release),
    ];

    fn parse(name: &str) -> Result<Self, String> {
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, asked)| *asked).ok_or_else(|| {
            let names: Vec<_> = Self::NAMES.iter().map(|(name, _)| *name).collect();
            format!("`{name}` is not an op; one of {}", names.join(", "))
        })
    }
}

type Limiter = RuleLimiter<AnyStore, ManualClock>;

/// Runs the command.
pub(crate) fn run(args: &ReplayArgs) -> Ending {
    let rules = load::rules(&args.rules, &args.loading)?;
    let modes = load::modes(&args.loading);
    let build = |store| {
        let limiter = RuleLimiter::build(store, ManualClock::new(), rules, modes);
        limiter.map_err(|error| Failure::new(chain(&error)))
    };
    if args.store != "memory" {
        return redis::run(&args.store, |store| async {
            let mut replay = Replay::new(build(store)?, true);
            let written = replay.all(io::stdin().lock(), io::stdout().lock()).await?;
            replay.end(written)
        });
    }
    let store = MemoryStore::builder().max_keys(args.max_keys).build();
    let mut replay = Replay::new(build(store.into())?, false);
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let runtime =
        runtime.map_err(|error| Failure::new(format!("cannot start a runtime: {error}")))?;
    let written = runtime.block_on(replay.all(io::stdin().lock(), io::stdout().lock()))?;
    replay.end(written)
}

struct Replay {
    limiter: Limiter,
    mapped: Mapped,
    /// Whether times have to be whole microseconds.
    is_coarse: bool,
    errors: u64,
    /// Whether it was said that a domain is none of the rules'.
    is_stranger_told: bool,
}

/// Why a line has no answer.
enum Unanswered {
    /// It makes no sense; the others may.
    Bad(String),
    /// Nothing can be asked any more.
    Stop(Failure),
}

impl From<String> for Unanswered {
    fn from(error: String) -> Self {
        Self::Bad(error)
    }
}

impl From<StoreError> for Unanswered {
    fn from(error: StoreError) -> Self {
        Self::Stop(Failure::new(format!("the store has no answer: {}", chain(&error))))
    }
}

impl Replay {
    fn new(limiter: Limiter, is_coarse: bool) -> Self {
        Self { limiter, mapped: Mapped::default(), is_coarse, errors: 0, is_stranger_told: false }
    }

    fn end(&self, written: io::Result<()>) -> Ending {
        finish(written, ExitCode::from(if self.errors > 0 { NO } else { 0 }))
    }

    /// Answers every line. Reading can fail, and so can writing.
    async fn all(
        &mut self,
        input: impl Read,
        output: impl Write,
    ) -> Result<io::Result<()>, Failure> {
        let mut input = BufReader::with_capacity(1 << 16, input);
        let mut output = BufWriter::with_capacity(1 << 16, output);
        let (mut line, mut answer) = (Vec::new(), String::new());
        for number in 1u64.. {
            // Whoever waits for the last answer before it asks again gets it.
            if input.buffer().is_empty()
                && let Err(error) = output.flush()
            {
                return Ok(Err(error));
            }
            let read = read_line(&mut input, &mut line);
            let read =
                read.map_err(|error| Failure::new(format!("cannot read standard input: {error}")))?;
            if read == Got::End {
                break;
            }
            let begin = if number == 1 { BYTE_ORDER_MARK } else { b"" };
            let line = line.strip_prefix(begin).unwrap_or(&line).trim_ascii();
            if line.is_empty() {
                continue;
            }
            answer.clear();
            let answered = match read {
                Got::TooLong => Err("the line is longer than 16 MiB".to_owned().into()),
                _ => self.line(line, &mut answer).await,
            };
            match answered {
                Ok(()) => {}
                Err(Unanswered::Stop(failure)) => {
                    // What was answered before is still true.
                    let _ = output.flush();
                    return Err(failure.within(&format!("line {number}")));
                }
                Err(Unanswered::Bad(error)) => {
                    self.errors += 1;
                    answer.clear();
                    let error = serde_json::json!({ "error": error, "line": number });
                    answer.push_str(&error.to_string());
                }
            }
            answer.push('\n');
            if let Err(error) = output.write_all(answer.as_bytes()) {
                return Ok(Err(error));
            }
        }
        Ok(output.flush())
    }

    async fn line(&mut self, line: &[u8], answer: &mut String) -> Result<(), Unanswered> {
        if !line.starts_with(b"{") {
            let told = "a line is a JSON object: {\"t_ns\": 0, \"domain\": …}";
            return Err(told.to_owned().into());
        }
        let line: Line<'_> = serde_json::from_slice(line).map_err(|error| by_column(&error))?;
        let asked =
            line.op.as_ref().map_or(Ok(Asked::Store(Op::Check)), |op| Asked::parse(&op.0))?;
        let verdict = match (&line.descriptors, &line.http) {
            (Some(_), Some(_)) => {
                return Err("`descriptors` and `http` exclude each other".to_owned().into());
            }
            (None, None) => {
                return Err("`descriptors` is missing, or `http` in its place".to_owned().into());
            }
            (Some(descriptors), None) if descriptors.len() > DESCRIPTORS_MAX => {
                let count = descriptors.len();
                return Err(format!("{count} descriptors; the most is {DESCRIPTORS_MAX}").into());
            }
            (Some(descriptors), None) => self.decide(&line, asked, descriptors).await?,
            (None, Some(http)) => self.decide_http(&line, asked, http).await?,
        };
        self.answer(answer, &line, &verdict, asked);
        Ok(())
    }

    async fn decide(
        &self,
        line: &Line<'_>,
        asked: Asked,
        descriptors: &[Vec<Pair<'_>>],
    ) -> Result<Verdict, Unanswered> {
        let entries: Vec<Vec<Entry<'_>>> = descriptors
            .iter()
            .map(|pairs| {
                pairs.iter().map(|Pair(key, value)| Entry::new(&key.0, &value.0)).collect()
            })
            .collect();
        let descriptors: Vec<_> = entries.iter().map(|entries| Descriptor::new(entries)).collect();
        let query = query(line, asked, &descriptors)?;
        let now = self.time_of(line)?;
        Ok(match asked {
            Asked::Acquire => self.limiter.ask_at_async(Op::Check, &query, now).await?,
            Asked::Release => self.limiter.release_at_async(&query, now).await?,
            Asked::Store(op) => self.limiter.ask_at_async(op, &query, now).await?,
        })
    }

    async fn decide_http(
        &mut self,
        line: &Line<'_>,
        asked: Asked,
        http: &Http<'_>,
    ) -> Result<Verdict, Unanswered> {
        let method = http.method.as_ref().map_or("GET", |method| &method.0);
        let headers = http.headers.0.iter().map(|(name, value)| (&**name, &**value));
        let request = PlainRequest::parse(method, &http.url.0, headers, http.client_ip)?;
        let query = query(line, asked, &[])?;
        let now = self.time_of(line)?;
        let (limiter, mapped) = (&self.limiter, &mut self.mapped);
        let op = match asked {
            Asked::Release => {
                return Ok(limiter.release_http_at_async(&query, &request, mapped, now).await?);
            }
            Asked::Acquire => Op::Check,
            Asked::Store(op) => op,
        };
        Ok(limiter.ask_http_at_async(op, &query, &request, mapped, now).await?)
    }

    /// The time of a line.
    fn time_of(&self, line: &Line<'_>) -> Result<Timestamp, Unanswered> {
        if self.is_coarse && !line.t_ns.is_multiple_of(1_000) {
            let told = format!("`t_ns` of {} is not in whole microseconds", line.t_ns);
            let hint = "Redis counts in microseconds: let `t_ns` end in 000, or use --store memory";
            return Err(Unanswered::Stop(Failure::new(told).hint(hint)));
        }
        Ok(Timestamp::from_nanos(line.t_ns))
    }

    fn answer(&mut self, answer: &mut String, line: &Line<'_>, verdict: &Verdict, asked: Asked) {
        verdict.write_json(answer);
        if asked == Asked::Store(Op::UpTo) && answer.pop().is_some() {
            answer.push_str(&format!(",\"granted\":{}}}", verdict.granted));
        }
        if !verdict.knows_domain && !self.is_stranger_told {
            self.is_stranger_told = true;
            let domain = &line.domain.0;
            say(&format!("note: the rules have no domain {domain:?}, so that nothing limits it\n"));
        }
    }
}

/// What came of reading a line.
#[derive(PartialEq, Eq)]
enum Got {
    Line,
    /// The line is not kept.
    TooLong,
    End,
}

/// Reads a line into `line`. One that is too long is read to its end all the same.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Got> {
    line.clear();
    input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', line)?;
    match line.len() as u64 {
        0 => Ok(Got::End),
        LINE_BYTES_MAX if !line.ends_with(b"\n") => {
            input.skip_until(b'\n')?;
            Ok(Got::TooLong)
        }
        _ => Ok(Got::Line),
    }
}

/// What is wrong with a line's JSON. Which line it is, is said beside it.
fn by_column(error: &serde_json::Error) -> String {
    let (text, column) = (error.to_string(), error.column());
    let place = format!(" at line {} column {column}", error.line());
    match text.strip_suffix(&place) {
        Some(text) => format!("{text}, at column {column}"),
        None => text,
    }
}

fn query<'a>(
    line: &'a Line<'_>,
    asked: Asked,
    descriptors: &'a [Descriptor<'a>],
) -> Result<Query<'a>, String> {
    let query = Query::new(&line.domain.0, descriptors).cost(line.cost);
    match (&line.id, asked) {
        (Some(id), _) => Ok(query.holder(holder_named(&id.0))),
        (None, Asked::Store(_)) => Ok(query),
        (None, _) => Err("`id` is missing: it says whose permits these are".to_owned()),
    }
}

impl<'de> Deserialize<'de> for Headers {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Headers;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a map of headers, each a text or a list of texts")
            }

            fn visit_map<M: serde::de::MapAccess<'de>>(
                self,
                mut map: M,
            ) -> Result<Headers, M::Error> {
                #[derive(Deserialize)]
                #[serde(untagged)]
                enum Values {
                    One(String),
                    Several(Vec<String>),
                }
                let mut headers = Vec::new();
                while let Some((name, values)) = map.next_entry::<String, Values>()? {
                    match values {
                        Values::One(value) => headers.push((name, value)),
                        Values::Several(values) => {
                            headers.extend(values.into_iter().map(|value| (name.clone(), value)));
                        }
                    }
                }
                Ok(Headers(headers))
            }
        }

        deserializer.deserialize_map(Visitor)
    }
}
