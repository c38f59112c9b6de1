//! The gateway's settings: where requests go, and how.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use http::StatusCode;
use tidegate::headers::Field;
use tidegate::parse_duration;
use tidegate::rules::parse_statuses;
use tidegate_gateway::{AccessLog, GatewayConfig, HealthCheck, LogTo, Route, Upstream};
use tidegate_http::{Answers, Forwarding, RefusedBody};

use super::typed::wrong;
use super::{Resolved, Settings, Source};
use crate::failure::Failure;

/// What an upstream is called that has no name.
const UNNAMED: &str = "default";
/// How often the health of an upstream is looked at, where nobody says otherwise.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// How long the answer to such a look may take.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// A gateway to start.
#[derive(Clone, Debug)]
pub(crate) struct GatewayChoice {
    /// What it is told.
    pub(crate) config: GatewayConfig,
    /// The domain whose rules hold; the only one there is if `None`.
    pub(crate) domain: Option<String>,
}

impl Settings {
    /// The gateway, if there is to be one: if there is somewhere to send requests.
    pub(super) fn gateway(&self) -> Result<Option<GatewayChoice>, Failure> {
        let address = self.address("gateway")?;
        let resolved = self.get("gateway");
        if self.get("upstream").values.is_empty() {
            return match resolved.source {
                Source::Default => Ok(None),
                _ if address.is_off() => Ok(None),
                _ => Err(wrong(resolved, "has nowhere to send requests")
                    .hint("--upstream http://127.0.0.1:3000 says where to")),
            };
        }
        if address.is_off() {
            return Ok(None);
        }
        let mut config = GatewayConfig::default();
        config.listen = address.to_string();
        config.tls = self.tls("gateway")?;
        config.threads = self.number("gateway_threads")?;
        config.connections_max = self.number("max_connections")?;
        config.trusted_proxies = self.get("trusted_proxies").values.clone();
        config.forwarding = match self.word("forwarding", &["x-forwarded-for", "forwarded"])? {
            0 => Forwarding::XForwardedFor,
            _ => Forwarding::Forwarded,
        };
        config.proxy_protocol = self.flag("proxy_protocol")?;
        config.head_bytes_max = self.size("gateway_max_head")?;
        config.target_bytes_max = self.size("gateway_max_target")?;
        config.body_bytes_max = self.size("gateway_max_body")?;
        config.patience.head = self.duration("gateway_head_timeout")?;
        config.patience.body = self.duration("gateway_body_timeout")?;
        config.patience.idle = self.duration("gateway_idle_timeout")?;
        config.patience.write = self.duration("gateway_write_timeout")?;
        config.drain = self.duration("drain")?;
        config.upstreams = self.upstreams()?;
        config.routes = self.routes(&config.upstreams)?;
        config.access_log = self.access_log()?;
        config.answers = self.answers()?;
        let domain = self.text("gateway_domain").map(str::to_owned);
        Ok(Some(GatewayChoice { config, domain }))
    }

    fn access_log(&self) -> Result<AccessLog, Failure> {
        let mut log = AccessLog::default();
        log.to = match self.text("access_log").unwrap_or("off") {
            "off" => None,
            "stdout" | "-" => Some(LogTo::Stdout),
            path => Some(LogTo::File(path.into())),
        };
        log.refusals_one_in = self.number("access_log_refusals")?;
        Ok(log)
    }

    /// What clients are told, and what answers change of what was counted.
    fn answers(&self) -> Result<Answers, Failure> {
        let mut answers = Answers::default();
        answers.on_allowed = self.flag("allowed_headers")?;
        answers.reset_as_epoch = self.resets_as_epoch()?;
        answers.jitter_seconds = self.duration("retry_jitter")?.as_secs();
        answers.refused_status = self.status("refused_status")?;
        answers.refused_body = self.refused_body()?;
        answers.expose = self.flag("expose_headers")?;
        answers.exempt_preflight = self.flag("exempt_preflight")?;
        answers.exempt_paths = self.get("exempt_paths").values.clone();
        answers.cost = self.number("reserve_cost")?;
        let no_header = |name: &str| wrong(self.get(name), "is not the name of a header");
        if let Some(name) = self.text("cost_header") {
            answers.cost_header = Some(name.parse().map_err(|_| no_header("cost_header"))?);
        }
        answers.free_statuses = self.free_statuses()?;
        for text in &self.get("header_names").values {
            let named = text.split_once('=').and_then(|(field, name)| {
                let field = field.trim().to_lowercase();
                let field = Field::ALL.into_iter().find(|known| known.name() == field)?;
                Some((field, name.trim()))
            });
            match named {
                Some((field, "off")) => answers.leave_out(field),
                Some((field, name)) => match name.parse() {
                    Ok(name) => answers.rename(field, name),
                    Err(_) => return Err(no_header("header_names")),
                },
                None => {
                    let known: Vec<&str> = Field::ALL.iter().map(|field| field.name()).collect();
                    return Err(wrong(self.get("header_names"), "names a header that is not sent")
                        .hint(format!("before the `=` one of {}", known.join(", "))));
                }
            };
        }
        Ok(answers)
    }

    fn status(&self, name: &str) -> Result<StatusCode, Failure> {
        let status: u16 = self.number(name)?;
        let status = StatusCode::from_u16(status).ok().filter(|status| status.as_u16() >= 400);
        status.ok_or_else(|| wrong(self.get(name), "is not the status of a refusal, 400 to 599"))
    }

    fn refused_body(&self) -> Result<Option<RefusedBody>, Failure> {
        let Some(path) = self.text("refused_body") else { return Ok(None) };
        let text = std::fs::read(path).map_err(|error| {
            wrong(self.get("refused_body"), &format!("cannot be read: {error}"))
        })?;
        let content_type = self.text("refused_body_type").unwrap_or_default().parse();
        let content_type =
            content_type.map_err(|_| wrong(self.get("refused_body_type"), "is no media type"))?;
        Ok(Some(RefusedBody { content_type, text: text.into() }))
    }

    fn free_statuses(&self) -> Result<Vec<RangeInclusive<u16>>, Failure> {
        let resolved = self.get("free_statuses");
        let one = |text: &String| {
            parse_statuses(text).ok_or_else(|| {
                wrong(resolved, "is not a list of statuses").hint("`404`, `500-599`, `5xx`")
            })
        };
        resolved.values.iter().map(one).collect()
    }

    fn size<T: TryFrom<u64>>(&self, name: &str) -> Result<T, Failure> {
        let size = parse_size(self.text(name).unwrap_or_default());
        let size = size.and_then(|size| T::try_from(size).ok());
        size.ok_or_else(|| {
            wrong(self.get(name), "is not a size").hint("`65536`, `64KiB`, `10MiB`, `1GiB`")
        })
    }

    /// Upstreams: those of one name are addresses of one.
    fn upstreams(&self) -> Result<Vec<Upstream>, Failure> {
        let resolved = self.get("upstream");
        let mut all: Vec<Upstream> = Vec::new();
        for text in &resolved.values {
            let mut words = text.split_ascii_whitespace();
            let (name, url) = named(words.next().unwrap_or_default());
            let at = all.iter().position(|upstream| upstream.name == name);
            let at = at.unwrap_or_else(|| {
                all.push(Upstream::new(name, [""; 0]));
                all.len() - 1
            });
            if all[at].urls.iter().any(|known| known == url) {
                return Err(wrong_option(resolved, text, url, "is there twice"));
            }
            all[at].urls.push(url.to_owned());
            for word in words {
                set_upstream(&mut all[at], word).map_err(|why| {
                    wrong_option(resolved, text, word, &why)
                        .hint("after the URL: `check=/healthz`, `every=5s`, `timeout=1s`, `ca=PATH`, `host=NAME`, `connections=4096`, `failures=1`, `out=10s`")
                })?;
            }
        }
        Ok(all)
    }

    /// Routes; if there are none, everything goes to the only upstream.
    fn routes(&self, upstreams: &[Upstream]) -> Result<Vec<Route>, Failure> {
        let resolved = self.get("route");
        let plain = |path: &str, upstream: &str| -> Result<Route, Failure> {
            let mut route = Route::new(path, upstream);
            route.connect = self.duration("upstream_connect_timeout")?;
            route.response = self.duration("upstream_response_timeout")?;
            route.idle = self.duration("upstream_idle_timeout")?;
            Ok(route)
        };
        if resolved.values.is_empty() {
            return match upstreams {
                [only] => Ok(vec![plain("/**", &only.name)?]),
                _ => Err(wrong(self.get("upstream"), "are several upstreams, and nothing says which requests go where")
                    .hint("--route '/api/** api' sends what matches to the upstream called `api`; URLs of one upstream have the same name before a `=`, or none")),
            };
        }
        let one = |text: &String| {
            let mut words = text.split_ascii_whitespace();
            let pattern = words.next().unwrap_or_default();
            let Some(upstream) = words.next() else {
                return Err(wrong_option(resolved, text, text, "names no upstream").hint(
                    "a pattern and the name of an upstream: `/api/** api`, `example.org/** web`",
                ));
            };
            if !upstreams.iter().any(|known| known.name == upstream) {
                let known: Vec<&str> = upstreams.iter().map(|known| &*known.name).collect();
                return Err(wrong_option(resolved, text, upstream, "is no upstream")
                    .hint(format!("there are: {}", known.join(", "))));
            }
            let (host, path) = match pattern.find('/') {
                Some(0) => (None, pattern),
                Some(at) => (Some(&pattern[..at]), &pattern[at..]),
                None => (Some(pattern), "/**"),
            };
            let mut route = plain(path, upstream)?;
            route.host = host.map(str::to_owned);
            for word in words {
                set_route(&mut route, word).map_err(|why| {
                    wrong_option(resolved, text, word, &why)
                        .hint("after the upstream: `connect=3s`, `response=60s`, `idle=60s`, `body=64MiB`")
                })?;
            }
            Ok(route)
        };
        resolved.values.iter().map(one).collect()
    }
}

/// A name and a URL, as `name=url`, or the URL of the upstream without name.
fn named(word: &str) -> (&str, &str) {
    let is_name = |text: &str| {
        !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    match word.split_once('=') {
        Some((name, url)) if is_name(name) => (name, url),
        _ => (UNNAMED, word),
    }
}

fn set_upstream(upstream: &mut Upstream, word: &str) -> Result<(), String> {
    let (name, value) = word.split_once('=').ok_or("is not `name=value`")?;
    let check = || HealthCheck { path: "/".into(), every: CHECK_EVERY, timeout: CHECK_TIMEOUT };
    match name {
        "ca" => upstream.ca = Some(PathBuf::from(value)),
        "host" => upstream.host = Some(value.to_owned()),
        "connections" => upstream.connections_max = count(value)?,
        "failures" => upstream.failures_max = count(value)?,
        "out" => upstream.left_out_for = span(value)?,
        "check" => upstream.check.get_or_insert_with(check).path = value.to_owned(),
        "every" => upstream.check.get_or_insert_with(check).every = span(value)?,
        "timeout" => upstream.check.get_or_insert_with(check).timeout = span(value)?,
        _ => return Err("is no option of an upstream".into()),
    }
    Ok(())
}

fn set_route(route: &mut Route, word: &str) -> Result<(), String> {
    let (name, value) = word.split_once('=').ok_or("is not `name=value`")?;
    match name {
        "connect" => route.connect = span(value)?,
        "response" => route.response = span(value)?,
        "idle" => route.idle = span(value)?,
        "body" => route.body_bytes_max = Some(parse_size(value).ok_or("is not a size")?),
        _ => return Err("is no option of a route".into()),
    }
    Ok(())
}

fn span(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "is not a duration such as `5s`".into())
}

fn count<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "is not a whole number that fits".into())
}

/// So many bytes: `65536`, `64KiB`, `10MiB`, `1GiB`.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.replace('_', "").parse().ok()?;
    let factor = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" | "kib" => 1 << 10,
        "m" | "mb" | "mib" => 1 << 20,
        "g" | "gb" | "gib" => 1 << 30,
        _ => return None,
    };
    number.checked_mul(factor)
}

fn wrong_option(resolved: &Resolved, text: &str, word: &str, why: &str) -> Failure {
    let one = Resolved {
        setting: resolved.setting,
        values: vec![text.to_owned()],
        source: resolved.source.clone(),
    };
    wrong(&one, &format!("cannot be used: `{word}` {why}"))
}
