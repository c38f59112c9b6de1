//! Where Redis is: what a store's URL says.

use std::fmt;
use std::str::FromStr;

/// Where Redis is, and how to come in.
#[derive(Clone, PartialEq, Eq)]
pub struct Target {
    /// How the servers are arranged.
    pub(crate) shape: Shape,
    /// `host:port` of each server to begin with, or the path of a Unix socket.
    pub(crate) addresses: Vec<String>,
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

/// A URL that names no Redis.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{url}` is not the address of a Redis: {why}")]
pub struct TargetError {
    url: String,
    why: &'static str,
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(url: &str) -> Result<Self, TargetError> {
        let wrong = |why| TargetError { url: url.to_owned(), why };
        let rest = url.strip_prefix("redis://").ok_or_else(|| wrong("it begins with redis://"))?;
        Ok(Self {
            shape: Shape::Single,
            addresses: vec![rest.to_owned()],
            tls: false,
            username: None,
            password: None,
            database: 0,
        })
    }
}

/// Without the password.
impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Target")
            .field("shape", &self.shape)
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}
