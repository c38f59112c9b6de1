//! Where a front end listens.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where a front end listens: `127.0.0.1:8080`, `[::1]:8080`, `localhost:8080`, `unix:/run/x.sock`,
/// or `off`. Port 0 is any free one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Nowhere.
    Off,
    /// A host and a port.
    Tcp(String),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// Whether the front end is turned off.
    pub fn is_off(&self) -> bool {
        *self == Self::Off
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

/// A text that is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not an address: give `host:port`, `[ipv6]:port`, `unix:/path/to/socket` or `off`"
)]
pub struct AddressError(String);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError(text.to_owned());
        if text == "off" {
            return Ok(Self::Off);
        }
        if let Some(path) = text.strip_prefix("unix:") {
            return match path {
                "" => Err(wrong()),
                path => Ok(Self::Unix(path.into())),
            };
        }
        let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
        let is_host = match host.strip_prefix('[') {
            Some(rest) => rest.ends_with(']'),
            None => !host.is_empty() && !host.contains([':', '/', ' ']),
        };
        match is_host && port.parse::<u16>().is_ok() {
            true => Ok(Self::Tcp(text.to_owned())),
            false => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_as_they_print() {
        for text in
            ["off", "127.0.0.1:8080", "[::1]:0", "localhost:1", "unix:/run/tidegate.sock", "unix:x"]
        {
            assert_eq!(text.parse::<Address>().map(|address| address.to_string()), Ok(text.into()));
        }
    }

    #[test]
    fn what_is_no_address_is_told_so() {
        for text in ["", "8080", ":8080", "::1:8080", "host:", "host:70000", "http://a:1", "unix:"]
        {
            let error = text.parse::<Address>().expect_err(text);
            assert!(error.to_string().contains("host:port"), "{error}");
        }
    }
}
