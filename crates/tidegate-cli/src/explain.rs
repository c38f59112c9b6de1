//! `tidegate explain`: which rules a request meets, and why.

use std::process::ExitCode;

use tidegate::rules::{Descriptor, Entry, PlainRequest, Rules};
use tidegate::{ManualClock, MemoryStore, Query, RuleLimiter};

use crate::args::{ExplainArgs, Format};
use crate::failure::{Ending, Failure, chain, say, write_out};
use crate::load;

/// Runs the command.
pub(crate) fn run(args: &ExplainArgs) -> Ending {
    let rules = load::rules(&args.rules, &args.loading)?;
    let domain = domain(args, &rules)?;
    let modes = load::modes(&args.loading);
    let limiter = RuleLimiter::build(MemoryStore::new(), ManualClock::new(), rules, modes)
        .map_err(|error| Failure::new(chain(&error)))?;
    let query = Query::new(&domain, &[]).cost(args.cost);
    let explained = match &args.request[..] {
        [url] if is_url(url) => limiter.explain_http(&query, &http(args, url)?),
        words => {
            refuse_http_flags(args)?;
            let entries = descriptors(words)?;
            let descriptors: Vec<_> =
                entries.iter().map(|entries| Descriptor::new(entries)).collect();
            limiter.explain(&Query { descriptors: &descriptors, ..query })
        }
    };
    let explained = explained.map_err(|error| Failure::new(chain(&error)))?;
    match args.format {
        Format::Text => write_out(explained.text().as_bytes()),
        Format::Json => write_out(format!("{}\n", explained.to_json()).as_bytes()),
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
fn descriptors(words: &[String]) -> Result<Vec<Vec<Entry<'_>>>, Failure> {
    words.split(|word| word == ",").map(descriptor).collect()
}

fn descriptor(words: &[String]) -> Result<Vec<Entry<'_>>, Failure> {
    if words.is_empty() {
        return Err(Failure::new("a descriptor is empty")
            .hint("`,` stands between two descriptors: user=ada , ip=192.0.2.7"));
    }
    words.iter().map(|word| entry(word)).collect()
}

fn entry(word: &str) -> Result<Entry<'_>, Failure> {
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
            Ok(Entry::new(key, value))
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

/// The request that the flags describe.
fn http(args: &ExplainArgs, url: &str) -> Result<PlainRequest, Failure> {
    let mut headers = Vec::new();
    for header in &args.headers {
        let Some((name, value)) = header.split_once(':') else {
            return Err(Failure::new(format!("`{header}` is not a header"))
                .hint("write it as 'name: value'"));
        };
        headers.push((name.trim(), value.trim()));
    }
    let method = args.method.as_deref().unwrap_or("GET");
    PlainRequest::parse(method, url, headers, args.client_ip).map_err(Failure::new)
}
