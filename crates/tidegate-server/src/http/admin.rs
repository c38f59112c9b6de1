//! Who may change what others have.

use std::hint::black_box;
use std::net::IpAddr;

use http::{HeaderMap, StatusCode, Uri, header};

use super::App;
use super::problem::Problem;
use crate::listen::Peer;

/// Headers that proxies add: a request that has one is not from this machine, whatever the peer is.
const OF_PROXIES: [&str; 6] =
    ["forwarded", "via", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip"];

impl App {
    /// Whether somebody may: whoever shows the admin token, and whoever is on this machine and is
    /// neither a proxy nor a web page of somebody else.
    pub(crate) fn admit_admin(
        &self,
        peer: Peer,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> Result<(), Problem> {
        if let Some(shown) = headers.get(header::AUTHORIZATION) {
            let shown = bearer(shown.as_bytes());
            let is_right = match (shown, &self.config.admin_token) {
                (Some(shown), Some(token)) => is_equal(shown, token.as_bytes()),
                _ => false,
            };
            return match is_right {
                true => Ok(()),
                false => Err(Problem::unauthorized("that is not the admin token")),
            };
        }
        match is_from_here(peer, uri, headers) {
            Ok(()) => Ok(()),
            Err(why) if self.config.admin_token.is_some() => Err(Problem::unauthorized(why)),
            Err(why) => Err(Problem::new(
                StatusCode::FORBIDDEN,
                format!("{why}; the server has no admin token that would let you in"),
            )),
        }
    }
}

/// The token of `Bearer token`.
fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then(|| token.trim_ascii())
}

/// Compares in a time that tells nothing but the length.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    let differing = a.iter().zip(b).fold(0, |bits, (a, b)| black_box(bits | (a ^ b)));
    a.len() == b.len() && black_box(differing) == 0
}

/// Whether a request was made on this machine, by somebody who meant to.
fn is_from_here(peer: Peer, uri: &Uri, headers: &HeaderMap) -> Result<(), &'static str> {
    if !peer.is_local() {
        return Err("this is for administrators: show the admin token as a bearer token");
    }
    if OF_PROXIES.iter().any(|name| headers.contains_key(*name)) {
        return Err("this is for administrators, and the request came through a proxy");
    }
    let text = |name: header::HeaderName| headers.get(name).map(|it| it.to_str().unwrap_or(""));
    let authority = uri.authority().map(http::uri::Authority::as_str);
    let host = text(header::HOST).or(authority).unwrap_or_default();
    // Web pages cannot speak to Unix sockets. At an address, a page of another site can have its
    // name lead here, but not hide the name.
    if peer != Peer::Unix && !is_loopback(host) {
        return Err("this is for administrators, and the request is for another host than \
                    localhost");
    }
    let site = headers.get("sec-fetch-site").map(|it| it.as_bytes());
    if !matches!(site, None | Some(b"same-origin" | b"none")) {
        return Err("this is for administrators, and the request is from another web site");
    }
    match text(header::ORIGIN) {
        None => Ok(()),
        Some(origin) => {
            let name = origin.strip_prefix("http://").or(origin.strip_prefix("https://"));
            match name.is_some_and(|name| name.eq_ignore_ascii_case(host)) {
                true => Ok(()),
                false => {
                    Err("this is for administrators, and the request is from another web site")
                }
            }
        }
    }
}

/// Whether a host, with or without port, can only be this machine.
fn is_loopback(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or(rest, |(name, _)| name),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_here(peer: &str, headers: &[(&'static str, &str)]) -> bool {
        let peer = peer.parse().map_or(Peer::Unix, |ip: IpAddr| Peer::Ip((ip, 1).into()));
        let headers = headers
            .iter()
            .map(|(name, value)| (header::HeaderName::from_static(name), value.parse().unwrap()));
        is_from_here(peer, &Uri::from_static("/"), &headers.collect()).is_ok()
    }

    #[test]
    fn loopback_is_from_here() {
        for host in ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "127.9.9.9", "[::1]:80"] {
            assert!(from_here("127.0.0.1", &[("host", host)]), "{host}");
        }
        assert!(from_here("::1", &[("host", "localhost")]));
        assert!(from_here("::ffff:127.0.0.1", &[("host", "localhost")]));
        assert!(from_here("unix", &[]));
        assert!(!from_here("192.0.2.1", &[("host", "localhost")]));
    }

    #[test]
    fn proxies_on_this_machine_are_not() {
        for name in OF_PROXIES {
            assert!(!from_here("127.0.0.1", &[("host", "localhost"), (name, "x")]), "{name}");
            assert!(!from_here("unix", &[(name, "x")]), "{name}");
        }
    }

    #[test]
    fn names_that_lead_here_are_not() {
        for host in
            ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "10.0.0.1"]
        {
            assert!(!from_here("127.0.0.1", &[("host", host)]), "{host}");
        }
        assert!(!from_here("127.0.0.1", &[]));
    }

    #[test]
    fn pages_of_other_sites_are_not() {
        let host = ("host", "localhost:8080");
        assert!(from_here("127.0.0.1", &[host, ("origin", "http://localhost:8080")]));
        assert!(from_here("127.0.0.1", &[host, ("sec-fetch-site", "same-origin")]));
        assert!(from_here("127.0.0.1", &[host, ("sec-fetch-site", "none")]));
        for origin in ["http://localhost:3000", "https://evil.example", "null", ""] {
            assert!(!from_here("127.0.0.1", &[host, ("origin", origin)]), "{origin}");
        }
        for site in ["cross-site", "same-site", "x"] {
            assert!(!from_here("127.0.0.1", &[host, ("sec-fetch-site", site)]), "{site}");
        }
    }

    #[test]
    fn tokens_are_compared_whole() {
        assert!(is_equal(b"secret", b"secret"));
        for wrong in ["", "secre", "secret2", "Secret"] {
            assert!(!is_equal(wrong.as_bytes(), b"secret"), "{wrong}");
        }
        assert_eq!(bearer(b"bearer  x "), Some(&b"x"[..]));
        assert_eq!(bearer(b"Basic x"), None);
        assert_eq!(bearer(b"Bearer"), None);
    }
}
