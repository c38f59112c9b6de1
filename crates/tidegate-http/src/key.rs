//! What requests are counted by, where limits are built in a program.
//!
//! Each of these gives a function from a request to its key, if it has one. Any function of your own
//! does as well, and pairs of keys count together:
//!
//! ```
//! use tidegate::{Limit, Limiter};
//! use tidegate_http::{Asked, KeyGate, key};
//!
//! let limiter = Limiter::new(Limit::per_second(5))?;
//! let by_address = KeyGate::new(limiter.clone(), key::client_ip());
//! let by_token = KeyGate::new(limiter.clone(), key::bearer_token());
//! let by_both = KeyGate::new(limiter, |asked: &Asked| {
//!     let tenant = asked.parts.headers.get("x-tenant")?;
//!     Some((tenant.as_bytes().to_vec(), asked.parts.uri.path().to_owned()))
//! });
//! # let _ = (by_address, by_token, by_both);
//! # Ok::<(), tidegate::BuildError>(())
//! ```

use std::net::{IpAddr, Ipv6Addr};

use http::header::AUTHORIZATION;
use http::{HeaderName, HeaderValue, Method};
use sha2::{Digest as _, Sha256};
use tidegate::Key;

use crate::asked::Asked;

/// Finds the key of a request: any function that does.
pub trait KeyOf: Clone + Send + Sync + 'static {
    /// What is counted.
    type Key: Key + Send + Sync;

    /// The key of a request, if it has one.
    fn key_of(&self, request: &Asked) -> Option<Self::Key>;
}

impl<F, K> KeyOf for F
where
    F: Fn(&Asked) -> Option<K> + Clone + Send + Sync + 'static,
    K: Key + Send + Sync,
{
    type Key = K;

    fn key_of(&self, request: &Asked) -> Option<K> {
        self(request)
    }
}

/// One key for everybody.
pub fn everybody() -> impl KeyOf<Key = ()> + Fn(&Asked) -> Option<()> {
    |_: &Asked| Some(())
}

/// The address of the client. Of IPv6 the network of 64 bits, which is what one customer gets at least
/// and can choose any address from.
pub fn client_ip() -> impl KeyOf<Key = IpAddr> + Fn(&Asked) -> Option<IpAddr> {
    client_ip_by(64)
}

/// The address of the client; of IPv6 the network of so many bits. IPv4 is whole, also where it is
/// mapped into IPv6.
pub fn client_ip_by(prefix: u8) -> impl KeyOf<Key = IpAddr> + Fn(&Asked) -> Option<IpAddr> {
    move |request: &Asked| request.client_ip.map(|address| grouped(address, prefix))
}

fn grouped(address: IpAddr, prefix: u8) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let rest = 128u32.saturating_sub(prefix.into());
            let mask = u128::MAX.checked_shl(rest).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
        }
    }
}

/// The value of a header; one that is sent several times counts by all of its values.
pub fn header(name: HeaderName) -> impl KeyOf<Key = HeaderKey> + Fn(&Asked) -> Option<HeaderKey> {
    move |request: &Asked| {
        let mut values = request.parts.headers.get_all(&name).iter();
        let first = values.next()?.clone();
        Some(HeaderKey { first, more: values.cloned().collect() })
    }
}

/// The values of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderKey {
    first: HeaderValue,
    more: Vec<HeaderValue>,
}

impl Key for HeaderKey {
    fn with_bytes<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        if self.more.is_empty() {
            return f(self.first.as_bytes());
        }
        let mut joined = self.first.as_bytes().to_vec();
        for value in &self.more {
            joined.push(b',');
            joined.extend_from_slice(value.as_bytes());
        }
        f(&joined)
    }
}

/// The bearer token, as its SHA-256: the token itself is kept nowhere. It is **not verified**; who sends
/// another one each time is counted anew each time, so put this behind what rejects strangers.
pub fn bearer_token() -> impl KeyOf<Key = [u8; 32]> + Fn(&Asked) -> Option<[u8; 32]> {
    |request: &Asked| {
        let value = request.parts.headers.get(AUTHORIZATION)?.as_bytes();
        let (scheme, token) = value.split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then(|| hashed(token.trim_ascii()))
    }
}

/// An API key in a header such as `x-api-key`, as its SHA-256. As with [tokens](bearer_token), somebody
/// has to verify it.
pub fn api_key(name: HeaderName) -> impl KeyOf<Key = [u8; 32]> + Fn(&Asked) -> Option<[u8; 32]> {
    move |request: &Asked| Some(hashed(request.parts.headers.get(&name)?.as_bytes()))
}

fn hashed(secret: &[u8]) -> [u8; 32] {
    Sha256::digest(secret).into()
}

/// The path, as it was sent. Who can invent paths has a limit for each; rules with `http` sections count
/// by patterns.
pub fn path() -> impl KeyOf<Key = String> + Fn(&Asked) -> Option<String> {
    |request: &Asked| Some(request.parts.uri.path().to_owned())
}

/// The method.
pub fn method() -> impl KeyOf<Key = String> + Fn(&Asked) -> Option<String> {
    |request: &Asked| Some(Method::as_str(&request.parts.method).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(headers: &[(&str, &str)], address: &str) -> Asked {
        let mut request = http::Request::get("/a?b");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Asked::new(request.body(()).unwrap().into_parts().0, address.parse().ok())
    }

    fn bytes(key: impl Key) -> Vec<u8> {
        key.with_bytes(<[u8]>::to_vec)
    }

    #[test]
    fn addresses_of_one_customer_are_one_key() {
        for (address, prefix, wanted) in [
            ("192.0.2.7", 64, "192.0.2.7"),
            ("::ffff:192.0.2.7", 64, "192.0.2.7"),
            ("2001:db8:0:1:2:3:4:5", 64, "2001:db8:0:1::"),
            ("2001:db8:0:1ff::5", 56, "2001:db8:0:100::"),
            ("2001:db8::5", 128, "2001:db8::5"),
            ("2001:db8::5", 255, "2001:db8::5"),
            ("2001:db8::5", 0, "::"),
        ] {
            let key = client_ip_by(prefix)(&asked(&[], address));
            assert_eq!(key.unwrap().to_string(), wanted, "{address}/{prefix}");
        }
        assert_eq!(client_ip()(&asked(&[], "none")), None);
    }

    #[test]
    fn headers_count_by_all_of_their_values() {
        let by = header(HeaderName::from_static("x-user"));
        let key = |headers: &[(&str, &str)]| by(&asked(headers, "")).map(bytes);
        assert_eq!(key(&[]), None);
        assert_eq!(key(&[("x-user", "ada")]), Some(b"ada".to_vec()));
        assert_eq!(key(&[("x-user", "ada"), ("x-user", "bob")]), Some(b"ada,bob".to_vec()));
    }

    #[test]
    fn tokens_are_kept_by_their_hash() {
        let key = |value: &str| bearer_token()(&asked(&[("authorization", value)], ""));
        assert_eq!(key("Bearer secret"), key("bearer  secret"));
        assert_ne!(key("Bearer secret"), key("Bearer secret2"));
        assert_eq!(key("Basic c2VjcmV0"), None);
        assert_eq!(key("Bear"), None);
        let bearer = key("Bearer secret").unwrap();
        assert!(!bearer.windows(6).any(|window| window == b"secret"));
        let by = api_key(HeaderName::from_static("x-api-key"));
        assert_eq!(by(&asked(&[("x-api-key", "secret")], "")), Some(bearer));
    }

    #[test]
    fn paths_and_methods_are_as_sent() {
        assert_eq!(path()(&asked(&[], "")).as_deref(), Some("/a"));
        assert_eq!(method()(&asked(&[], "")).as_deref(), Some("GET"));
        assert_eq!(everybody()(&asked(&[], "")), Some(()));
    }
}
