//! Settings as what they mean.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tidegate::{OnFull, parse_duration};
use tidegate_server::{Address, Config, HeaderNames, TlsFiles, threads_by_default};
use tracing::level_filters::LevelFilter;

use super::gateway::GatewayChoice;
use super::store::StoreChoice;
use super::{Resolved, Settings, Source};
use crate::args::Loading;
use crate::failure::Failure;

/// What the service is to do.
#[derive(Debug)]
pub(crate) struct Typed {
    pub(crate) store: StoreChoice,
    pub(crate) rules: Vec<PathBuf>,
    pub(crate) loading: Loading,
    pub(crate) shadow_mode: bool,
    pub(crate) quota_mode: bool,
    pub(crate) watch: bool,
    pub(crate) max_keys: usize,
    pub(crate) on_full: OnFull,
    pub(crate) snapshot: Option<PathBuf>,
    pub(crate) snapshot_every: Duration,
    pub(crate) log_level: LevelFilter,
    pub(crate) log_json: bool,
    pub(crate) server: Config,
    /// `None` if there is nowhere to send requests.
    pub(crate) gateway: Option<GatewayChoice>,
}

impl Settings {
    /// What they mean, if all of them mean something.
    pub(crate) fn typed(&self) -> Result<Typed, Failure> {
        let mut server = Config::default();
        server.grpc = self.address("grpc")?;
        server.http = self.address("http")?;
        server.resp = self.address("resp")?;
        server.grpc_tls = self.tls("grpc")?;
        server.http_tls = self.tls("http")?;
        server.resp_tls = self.tls("resp")?;
        server.admin_token = self.secret("admin_token")?;
        server.resp_password = self.secret("resp_password")?;
        server.trusted_proxies = self.get("trusted_proxies").values.clone();
        server.connections_max = self.number("max_connections")?;
        server.threads = match self.number("threads")? {
            0 => threads_by_default(),
            threads => threads,
        };
        server.resp_threads = self.number("resp_threads")?;
        server.drain = self.duration("drain")?;
        server.drain_delay = self.duration("drain_delay")?;
        server.response_headers = match self.flag("response_headers")? {
            true => Some(HeaderNames {
                limit: self.header("limit_header")?,
                remaining: self.header("remaining_header")?,
                reset: self.header("reset_header")?,
            }),
            false => None,
        };
        server.dynamic_metadata = self.flag("dynamic_metadata")?;
        server.reset_as_epoch = self.resets_as_epoch()?;
        server.near_limit_ratio = self.share("near_limit_ratio")?;
        let loading = Loading {
            merge_domains: self.flag("merge_domains")?,
            lyft_compat: self.flag("lyft_compat")?,
        };
        let on_full = self.word("on_full", &["evict", "deny", "allow"])?;
        Ok(Typed {
            store: self.store()?,
            rules: self.get("rules").values.iter().map(PathBuf::from).collect(),
            loading,
            shadow_mode: self.flag("shadow_mode")?,
            quota_mode: self.flag("quota_mode")?,
            watch: self.flag("watch")?,
            max_keys: self.number("max_keys")?,
            on_full: [OnFull::Evict, OnFull::Deny, OnFull::Allow][on_full],
            snapshot: self.text("snapshot").map(PathBuf::from),
            snapshot_every: self.duration("snapshot_every")?,
            log_level: self.level()?,
            log_json: self.word("log_format", &["text", "json"])? == 1,
            gateway: self.gateway()?,
            server,
        })
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).values.first().map(|value| &**value).filter(|value| !value.is_empty())
    }

    pub(super) fn address(&self, name: &str) -> Result<Address, Failure> {
        let resolved = self.get(name);
        self.text(name).unwrap_or("off").parse().map_err(|_| {
            wrong(resolved, "is not an address").hint(
                "`127.0.0.1:8080`, `[::1]:0` for any free port, `unix:/path/to/socket`, or `off`",
            )
        })
    }

    pub(super) fn number<T: FromStr>(&self, name: &str) -> Result<T, Failure> {
        let text = self.text(name).unwrap_or_default().replace('_', "");
        text.parse().map_err(|_| wrong(self.get(name), "is not a whole number that fits"))
    }

    pub(super) fn duration(&self, name: &str) -> Result<Duration, Failure> {
        parse_duration(self.text(name).unwrap_or_default()).ok_or_else(|| {
            wrong(self.get(name), "is not a duration")
                .hint("one number and one unit: `500ms`, `10s`, `5m`")
        })
    }

    pub(super) fn flag(&self, name: &str) -> Result<bool, Failure> {
        match &*self.text(name).unwrap_or("false").to_lowercase() {
            "true" | "yes" | "on" | "1" | "t" => Ok(true),
            "false" | "no" | "off" | "0" | "f" => Ok(false),
            _ => Err(wrong(self.get(name), "is neither true nor false")),
        }
    }

    fn share(&self, name: &str) -> Result<f32, Failure> {
        let share = self.text(name).and_then(|text| text.parse::<f32>().ok());
        let share = share.filter(|share| (0.0..=1.0).contains(share));
        share.ok_or_else(|| wrong(self.get(name), "is not a number from 0 to 1"))
    }

    /// Which of the words it is.
    pub(super) fn word(&self, name: &str, words: &[&str]) -> Result<usize, Failure> {
        let text = self.text(name).unwrap_or_default();
        words.iter().position(|word| word.eq_ignore_ascii_case(text)).ok_or_else(|| {
            let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
            wrong(self.get(name), "is none of the words")
                .hint(format!("one of {}", words.join(", ")))
        })
    }

    fn level(&self) -> Result<LevelFilter, Failure> {
        let level = self.word("log_level", &["off", "error", "warn", "info", "debug", "trace"])?;
        Ok([
            LevelFilter::OFF,
            LevelFilter::ERROR,
            LevelFilter::WARN,
            LevelFilter::INFO,
            LevelFilter::DEBUG,
            LevelFilter::TRACE,
        ][level])
    }

    pub(super) fn resets_as_epoch(&self) -> Result<bool, Failure> {
        Ok(self.word("x_ratelimit_reset", &["delta", "epoch"])? == 1)
    }

    /// The name of a header.
    fn header(&self, name: &str) -> Result<String, Failure> {
        let text = self.text(name).unwrap_or_default();
        let is_token = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
        match !text.is_empty() && text.chars().all(is_token) {
            true => Ok(text.to_owned()),
            false => Err(wrong(self.get(name), "is not the name of a header")),
        }
    }

    /// A secret, as it is or from the file that holds it.
    pub(super) fn secret(&self, name: &str) -> Result<Option<String>, Failure> {
        let file = format!("{name}_file");
        let is_before = self.get(name).source.rank() >= self.get(&file).source.rank();
        let (secret, path) = (self.text(name), self.text(&file));
        let path = match (secret, path) {
            (Some(secret), Some(_)) if is_before => return Ok(Some(secret.to_owned())),
            (Some(secret), None) => return Ok(Some(secret.to_owned())),
            (None, None) => return Ok(None),
            (_, Some(path)) => path,
        };
        let secret = std::fs::read_to_string(path)
            .map_err(|error| wrong(self.get(&file), &format!("cannot be read: {error}")))?;
        match secret.trim_end_matches(['\r', '\n']) {
            "" => Err(wrong(self.get(&file), "is an empty file")),
            secret => Ok(Some(secret.to_owned())),
        }
    }

    pub(super) fn tls(&self, front_end: &str) -> Result<Option<TlsFiles>, Failure> {
        let name = |part: &str| format!("{front_end}_tls_{part}");
        let path = |part: &str| self.text(&name(part)).map(PathBuf::from);
        match (path("cert"), path("key"), path("client_ca")) {
            (Some(certificate), Some(key), client_ca) => {
                Ok(Some(TlsFiles { certificate, key, client_ca }))
            }
            (None, None, None) => Ok(None),
            (Some(_), None, _) => Err(wrong(self.get(&name("cert")), "has no key beside it")
                .hint(format!("--{front_end}-tls-key names its file"))),
            (None, Some(_), _) => {
                Err(wrong(self.get(&name("key")), "has no certificate beside it")
                    .hint(format!("--{front_end}-tls-cert names its file")))
            }
            (None, None, Some(_)) => {
                let ca = self.get(&name("client_ca"));
                Err(wrong(ca, "has neither certificate nor key beside it"))
            }
        }
    }
}

/// A value that cannot be used, with who said it.
pub(super) fn wrong(resolved: &Resolved, what: &str) -> Failure {
    let value = resolved.shown().unwrap_or_default();
    let place = match &resolved.source {
        Source::Flag(name) => format!("--{name} `{value}`"),
        Source::Variable(name) => format!("{name}: `{value}`"),
        source => format!("{source}: {} `{value}`", resolved.setting.name),
    };
    Failure::new(format!("{place} {what}"))
}
