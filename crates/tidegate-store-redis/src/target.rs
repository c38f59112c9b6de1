//! Where Redis is: what a store's URL says.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
/// More servers than anybody lists in a URL.
const ADDRESSES_MAX: usize = 1_000;

/// Where Redis is, and how to come in. Made from a URL:
///
/// - `redis://[[user]:password@]host[:port][/database]`
/// - `redis+unix:///path/of/socket?db=0`, or `unix:/path/of/socket`
/// - `redis+sentinel://[[user]:password@]host[:26379],host…/name-of-master[/database]`
/// - `redis+cluster://[[user]:password@]host[:6379],host…`
///
/// With `rediss` instead of `redis`, TLS is spoken; `valkey` and `valkeys` mean the same. In user
/// and password, characters that mean something in a URL are written as `%40`. An IPv6 address
/// stands in brackets.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// How the servers are arranged.
    pub(crate) shape: Shape,
    /// The servers to begin with; at least one.
    pub(crate) addresses: Vec<Address>,
    pub(crate) tls: bool,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: u32,
}

/// How servers are arranged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// One server.
    Single,
    /// Sentinels that know the master of this name.
    Sentinel { master: String },
    /// A cluster.
    Cluster,
}

/// Where one server is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Address {
    Tcp { host: String, port: u16 },
    Unix(PathBuf),
}

/// A URL that names no Redis.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{url}` is not the address of a Redis: {why}")]
pub struct TargetError {
    /// Without anything that could be a password.
    url: String,
    why: &'static str,
}

impl Target {
    /// The same with another user and password than the URL's. `None` leaves what is there.
    #[must_use]
    pub fn with_credentials(mut self, username: Option<String>, password: Option<String>) -> Self {
        self.username = username.or(self.username);
        self.password = password.or(self.password);
        self
    }

    /// Selects another database than the URL's. A cluster has only the first, 0.
    pub fn set_database(&mut self, database: u32) {
        self.database = database;
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(url: &str) -> Result<Self, TargetError> {
        parse(url).map_err(|why| TargetError { url: without_secrets(url), why })
    }
}

fn parse(url: &str) -> Result<Target, &'static str> {
    if let Some(path) = url.strip_prefix("unix:").filter(|path| !path.starts_with("//")) {
        return unix(path);
    }
    let (scheme, rest) = url.split_once("://").ok_or("it begins with no `redis://`")?;
    let (family, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
    let tls = match family {
        "redis" | "valkey" => false,
        "rediss" | "valkeys" => true,
        "unix" if kind.is_empty() => return unix(rest),
        _ => return Err("it begins with none of `redis://`, `rediss://` and `valkey://`"),
    };
    match kind {
        "" => {
            let parts = Parts::of(rest, REDIS_PORT)?;
            let (1, database) = (parts.addresses.len(), number(parts.path)?) else {
                return Err(
                    "it lists several servers: that is `redis+cluster://` or `redis+sentinel://`",
                );
            };
            Ok(parts.target(Shape::Single, tls, database))
        }
        "unix" if tls => Err("a Unix socket is used without TLS"),
        "unix" => unix(rest),
        "sentinel" => {
            let parts = Parts::of(rest, SENTINEL_PORT)?;
            let (master, database) = parts.path.split_once('/').unwrap_or((parts.path, ""));
            if master.is_empty() {
                return Err("the name of the master is missing: `…/mymaster` at the end");
            }
            let (master, database) = (decoded(master)?, number(database)?);
            Ok(parts.target(Shape::Sentinel { master }, tls, database))
        }
        "cluster" => {
            let parts = Parts::of(rest, REDIS_PORT)?;
            match number(parts.path)? {
                0 => Ok(parts.target(Shape::Cluster, tls, 0)),
                _ => Err("a cluster has only database 0"),
            }
        }
        _ => Err("after `+` comes `sentinel`, `cluster` or `unix`"),
    }
}

/// What all URLs with hosts have in common.
struct Parts<'a> {
    username: Option<String>,
    password: Option<String>,
    addresses: Vec<Address>,
    /// What follows the first slash, without another one at the end.
    path: &'a str,
}

impl<'a> Parts<'a> {
    fn of(rest: &'a str, port: u16) -> Result<Self, &'static str> {
        if rest.contains(['?', '#']) {
            return Err("it may hold no `?` and no `#`; in a password they are `%3F` and `%23`");
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        if path.contains('@') {
            return Err("a `/` in user or password is written `%2F`, and an `@` `%40`");
        }
        let (credentials, hosts) = match authority.rsplit_once('@') {
            Some((credentials, hosts)) => (Some(credentials), hosts),
            None => (None, authority),
        };
        if credentials.is_some_and(|both| both.contains('@')) {
            return Err("an `@` in user or password is written `%40`");
        }
        let (username, password) = match credentials {
            None | Some("") => (None, None),
            Some(both) => {
                let (user, password) = both
                    .split_once(':')
                    .ok_or("before the `@` stands `user:password` or `:password`")?;
                let full = |text: &str| match text.is_empty() {
                    true => Ok(None),
                    false => decoded(text).map(Some),
                };
                (full(user)?, full(password)?)
            }
        };
        if username.is_some() && password.is_none() {
            return Err("there is a user without a password");
        }
        let addresses: Vec<_> =
            hosts.split(',').map(|host| Address::parse(host, port)).collect::<Result<_, _>>()?;
        if addresses.len() > ADDRESSES_MAX {
            return Err("it lists more than a thousand servers");
        }
        Ok(Self { username, password, addresses, path: path.strip_suffix('/').unwrap_or(path) })
    }

    fn target(self, shape: Shape, tls: bool, database: u32) -> Target {
        let Self { username, password, addresses, path: _ } = self;
        Target { shape, addresses, tls, username, password, database }
    }
}

impl Address {
    /// Reads `host`, `host:port`, `[::1]` or `[::1]:port`.
    fn parse(text: &str, port: u16) -> Result<Self, &'static str> {
        let (host, rest) = match text.strip_prefix('[') {
            Some(inner) => {
                let (host, rest) = inner.split_once(']').ok_or("a `[` is not closed")?;
                let _: std::net::Ipv6Addr =
                    host.parse().map_err(|_| "between brackets stands an IPv6 address")?;
                (host, rest)
            }
            None => {
                let end = text.find(':').unwrap_or(text.len());
                let (host, rest) = text.split_at(end);
                if rest.matches(':').count() > 1 {
                    return Err("an IPv6 address stands in brackets, and only one port may follow");
                }
                (host, rest)
            }
        };
        if host.is_empty() {
            return Err("a host is missing");
        }
        if host.contains(|c: char| c.is_whitespace() || c.is_control() || c == '%') {
            return Err("a host holds characters that no host has");
        }
        let port = match rest {
            "" => port,
            _ => rest
                .strip_prefix(':')
                .and_then(port_number)
                .ok_or("a port is not a number from 1 to 65535")?,
        };
        Ok(Self::Tcp { host: host.to_owned(), port })
    }

    /// Reads what a server calls another one: `host:port`, also with an IPv6 address and no
    /// brackets. Without a host it means one at the same host as `from`.
    pub(crate) fn named_by(text: &str, from: &Self) -> Option<Self> {
        let (host, port) = text.rsplit_once(':')?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        Self::beside(host, port_number(port)?, from)
    }

    /// The server with that port at that host, or at the host of `from` if there is none.
    pub(crate) fn beside(host: &str, port: u16, from: &Self) -> Option<Self> {
        let host = match (host, from) {
            ("?", _) => return None,
            ("", Self::Tcp { host, .. }) => host,
            ("", Self::Unix(_)) => "127.0.0.1",
            (host, _) => host,
        };
        Some(Self::Tcp { host: host.to_owned(), port })
    }
}

fn port_number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|port| *port != 0)
}

fn unix(rest: &str) -> Result<Target, &'static str> {
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    if !path.starts_with('/') {
        return Err("the path of a socket begins with `/`");
    }
    let mut target = Target {
        shape: Shape::Single,
        addresses: vec![Address::Unix(decoded(path)?.into())],
        tls: false,
        username: None,
        password: None,
        database: 0,
    };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        match name {
            "db" => target.database = number(value)?,
            "user" => target.username = Some(decoded(value)?),
            "pass" => target.password = Some(decoded(value)?),
            _ => return Err("after `?` come `db`, `user` and `pass`"),
        }
    }
    Ok(target)
}

/// The number of a database; none is 0.
fn number(text: &str) -> Result<u32, &'static str> {
    match text {
        "" => Ok(0),
        _ => text.parse().map_err(|_| "the database is not a number"),
    }
}

/// Undoes percent-encoding.
fn decoded(text: &str) -> Result<String, &'static str> {
    const WRONG: &str = "after `%` come two hexadecimal digits, and all of them make UTF-8";
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16)).ok_or(WRONG);
        let (high, low) = (digit()?, digit()?);
        bytes.push(u8::try_from(high * 16 + low).map_err(|_| WRONG)?);
    }
    String::from_utf8(bytes).map_err(|_| WRONG)
}

/// The URL as it may be shown. What is not clearly harmless is left out.
fn without_secrets(url: &str) -> String {
    let (scheme, rest) = match url.split_once(':') {
        Some((scheme, rest)) if scheme.len() <= 20 => (scheme, rest),
        _ => return "…".to_owned(),
    };
    if rest.contains("pass=") {
        return format!("{scheme}:…");
    }
    let rest = rest.strip_prefix("//").unwrap_or(rest);
    match rest.rsplit_once('@') {
        Some((_, hosts)) => format!("{scheme}://…@{hosts}"),
        // With the `@` forgotten, what looks like a port is a password.
        None if rest
            .split([':', ',', '/'])
            .skip(1)
            .all(|part| part.bytes().all(|byte| byte.is_ascii_digit()) || !rest.contains(':')) =>
        {
            format!("{scheme}://{rest}")
        }
        None => format!("{scheme}://…"),
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

/// As a URL, without user and password.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [Address::Unix(path)] = self.addresses.as_slice() {
            return write!(f, "redis+unix://{}?db={}", path.display(), self.database);
        }
        f.write_str(if self.tls { "rediss" } else { "redis" })?;
        f.write_str(match self.shape {
            Shape::Single => "://",
            Shape::Sentinel { .. } => "+sentinel://",
            Shape::Cluster => "+cluster://",
        })?;
        for (i, address) in self.addresses.iter().enumerate() {
            write!(f, "{}{address}", if i == 0 { "" } else { "," })?;
        }
        match &self.shape {
            Shape::Single => write!(f, "/{}", self.database),
            Shape::Sentinel { master } => write!(f, "/{master}/{}", self.database),
            Shape::Cluster => Ok(()),
        }
    }
}

/// Without user and password.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Target({self})")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Address, Shape, Target};

    fn read(url: &str) -> Target {
        url.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn every_form() {
        let target = read("redis://cache");
        assert_eq!((target.shape, target.tls, target.database), (Shape::Single, false, 0));
        assert_eq!(target.addresses, [tcp("cache", 6379)]);
        assert_eq!((target.username, target.password), (None, None));

        let target = read("rediss://me:s%40cr%2Ft@[::1]:7000/12/");
        assert_eq!((target.tls, target.database), (true, 12));
        assert_eq!(target.addresses, [tcp("::1", 7000)]);
        assert_eq!(target.username.as_deref(), Some("me"));
        assert_eq!(target.password.as_deref(), Some("s@cr/t"));
        assert_eq!(read("valkeys://h").tls, read("rediss://h").tls);
        assert_eq!(read("redis://:pw:x@h").password.as_deref(), Some("pw:x"));

        let target = read("redis+unix:///run/redis/r.sock?db=3");
        assert_eq!(target.addresses, [Address::Unix("/run/redis/r.sock".into())]);
        assert_eq!(target.database, 3);
        assert_eq!(read("unix:/run/r.sock").addresses, [Address::Unix("/run/r.sock".into())]);
        assert_eq!(read("unix:///run/r.sock"), read("unix:/run/r.sock"));

        let target = read("redis+sentinel://:pw@a,b:5000,[::2]/mymaster/4");
        assert_eq!(target.shape, Shape::Sentinel { master: "mymaster".to_owned() });
        assert_eq!(target.addresses, [tcp("a", 26379), tcp("b", 5000), tcp("::2", 26379)]);
        assert_eq!((target.database, target.password.as_deref()), (4, Some("pw")));

        let target = read("valkeys+cluster://a,b:7001");
        assert_eq!((target.shape, target.tls), (Shape::Cluster, true));
        assert_eq!(target.addresses, [tcp("a", 6379), tcp("b", 7001)]);
    }

    #[test]
    fn credentials_can_come_from_elsewhere() {
        let target = read("redis://old:pw@h").with_credentials(None, Some("new".to_owned()));
        assert_eq!(
            (target.username.as_deref(), target.password.as_deref()),
            (Some("old"), Some("new"))
        );
        let mut target = read("redis://h").with_credentials(Some("me".to_owned()), None);
        target.set_database(9);
        assert_eq!((target.username.as_deref(), target.database), (Some("me"), 9));
    }

    #[test]
    fn what_is_shown_can_be_read_again() {
        for url in [
            "redis://cache:6379/0",
            "rediss://[::1]:7000/12",
            "redis+unix:///run/r.sock?db=3",
            "redis+sentinel://a:26379,b:5000/mymaster/4",
            "rediss+cluster://a:6379,b:7001",
        ] {
            assert_eq!(read(url).to_string(), url);
            assert_eq!(read(&read(url).to_string()), read(url));
        }
        let target = read("redis://me:hunter2@cache/1");
        assert!(!format!("{target} {target:?}").contains("hunter2"));
    }

    #[test]
    fn wrong_ones_say_what_is_wrong_and_keep_secrets() {
        let cases = [
            ("http://h", "begins with"),
            ("cache:6379", "begins with"),
            ("redis://", "host is missing"),
            ("redis://h:0", "port"),
            ("redis://h:70000", "port"),
            ("redis://h:1:2", "brackets"),
            ("redis://[::1", "not closed"),
            ("redis://[nonsense]", "IPv6"),
            ("redis://h/x", "not a number"),
            ("redis://a,b", "several servers"),
            ("redis://h?db=1", "`?`"),
            ("redis+sentinel://a", "name of the master"),
            ("redis+cluster://a/1", "only database 0"),
            ("redis+tcp://a", "after `+`"),
            ("rediss+unix:///p", "without TLS"),
            ("redis+unix://p", "begins with `/`"),
            ("redis://user@h", "user:password"),
            ("redis://user:@h", "without a password"),
            // A password in each of the ways that a URL can be wrong.
            ("redis://:hunter2%zz@h", "hexadecimal"),
            ("redis://:hunter2@h:x", "port"),
            ("redis://:hunter2", "host is missing"),
            ("redis://me:hunter2", "port"),
            ("redis://me:hunter2/cache", "port"),
            ("redis://:hunt/er2@h", "%2F"),
            ("redis://:a@hunter2@h", "%40"),
            ("redis://:hunter2?@h", "`?`"),
            ("unix:/p?pass=hunter2&x=1", "after `?`"),
            ("hunter2", "begins with"),
        ];
        for (url, why) in cases {
            let error = url.parse::<Target>().expect_err(url).to_string();
            assert!(error.contains(why), "{url}: {error}");
            assert!(!error.contains("hunter2") && !error.contains("er2@"), "{url}: {error}");
        }
    }

    proptest! {
        #[test]
        fn never_panics_and_never_tells(text in "(redis|rediss\\+cluster|unix|x)(://|:)[ -~]{0,40}", junk in any::<String>()) {
            let _ = text.parse::<Target>();
            let _ = junk.parse::<Target>();
        }

        #[test]
        fn any_password_comes_through(password in "\\PC{1,20}") {
            let encoded: String = password.bytes().map(|byte| format!("%{byte:02x}")).collect();
            let target = read(&format!("redis://:{encoded}@h"));
            prop_assert_eq!(target.password.as_deref(), Some(password.as_str()));
            let error = format!("redis://:{encoded}@h:x").parse::<Target>().expect_err("a bad port");
            prop_assert!(!error.to_string().contains(&encoded));
        }

        #[test]
        fn servers_name_each_other(host in "[a-z0-9.-]{1,12}", port in 1_u16..) {
            let from = tcp("from", 1);
            prop_assert_eq!(Address::named_by(&format!("{host}:{port}"), &from), Some(tcp(&host, port)));
            prop_assert_eq!(Address::named_by(&format!(":{port}"), &from), Some(tcp("from", port)));
            prop_assert_eq!(Address::named_by(&format!("::1:{port}"), &from), Some(tcp("::1", port)));
        }
    }
}
