//! Where the service counts.

use std::path::PathBuf;
use std::time::Duration;

use tidegate_store_redis::{RedisOptions, Target};

use super::typed::wrong;
use super::{Settings, Source};
use crate::failure::Failure;

/// What addresses of stores look like, for those who wrote none.
const FORMS: &str = "`memory`, `redis://host:6379`, `rediss://user:password@host`, \
                     `redis+unix:///run/redis.sock`, `redis+cluster://a:6379,b:6379` or \
                     `redis+sentinel://a:26379,b:26379/mymaster`";

/// Where to count.
#[derive(Clone, Debug)]
pub(crate) enum StoreChoice {
    Memory,
    Redis(Box<RedisOptions>, &'static str),
}

impl StoreChoice {
    /// What the ready line calls it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Redis(_, kind) => kind,
        }
    }
}

/// Which kind of Redis a URL speaks of.
fn kind_of(url: &str) -> &'static str {
    let scheme = url.split_once("://").map_or("", |(scheme, _)| scheme);
    match scheme.split_once('+') {
        Some((_, "cluster")) => "redis+cluster",
        Some((_, "sentinel")) => "redis+sentinel",
        _ => "redis",
    }
}

impl Settings {
    pub(super) fn store(&self) -> Result<StoreChoice, Failure> {
        let resolved = self.get("store");
        let url = match self.text("store") {
            Some("memory") | None => return Ok(StoreChoice::Memory),
            Some("memcache") => {
                return Err(wrong(resolved, "is not a store: there is none in Memcached")
                    .hint("with `TIDEGATE_STORE=redis://host:6379` a fleet counts together"));
            }
            Some(url) => url,
        };
        let target: Target = url.parse().map_err(|error: tidegate_store_redis::TargetError| {
            let place = match &resolved.source {
                Source::Flag(name) => format!("--{name}"),
                source => source.to_string(),
            };
            // It shows the URL, without what is secret in it.
            Failure::new(format!("{place}: {error}")).hint(format!("one of {FORMS}"))
        })?;
        let username = self.text("store_username").map(str::to_owned);
        let target = target.with_credentials(username, self.secret("store_password")?);
        let mut options = RedisOptions::new(target);
        options.prefix = self.text("store_prefix").unwrap_or_default().to_owned();
        options.deadline =
            self.at_least_one("store_timeout", Settings::duration, Duration::ZERO)?;
        options.in_flight_max = self.at_least_one("store_in_flight", Settings::number, 0)?;
        options.denial_keys_max = self.number("denial_cache_keys")?;
        options.denial_max_age = match self.flag("denial_cache")? {
            true => self.duration("denial_cache_max_age")?,
            false => Duration::ZERO,
        };
        options.tls_ca = self.text("store_tls_ca").map(PathBuf::from);
        let path = |name: &str| self.text(name).map(PathBuf::from);
        options.tls_certificate = match (path("store_tls_cert"), path("store_tls_key")) {
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, None) => None,
            (Some(_), None) => {
                return Err(wrong(self.get("store_tls_cert"), "has no key beside it")
                    .hint("--store-tls-key names its file"));
            }
            (None, Some(_)) => {
                return Err(wrong(self.get("store_tls_key"), "has no certificate beside it")
                    .hint("--store-tls-cert names its file"));
            }
        };
        options.sentinel_username = self.text("sentinel_username").map(str::to_owned);
        options.sentinel_password = self.text("sentinel_password").map(str::to_owned);
        Ok(StoreChoice::Redis(Box::new(options), kind_of(url)))
    }

    /// A value that is more than nothing.
    fn at_least_one<T: PartialEq>(
        &self,
        name: &str,
        read: fn(&Self, &str) -> Result<T, Failure>,
        nothing: T,
    ) -> Result<T, Failure> {
        match read(self, name)? {
            value if value == nothing => Err(wrong(self.get(name), "is too little")),
            value => Ok(value),
        }
    }
}
