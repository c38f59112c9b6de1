//! Headers on their way through: what is taken out, and what is put in.

use std::cell::RefCell;
use std::net::IpAddr;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::uri::{Authority, PathAndQuery};
use http::{Method, Uri, Version};
use smallvec::SmallVec;
use tidegate_http::{Forwarding, Trusted};

use crate::scan::Fault;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
/// How the names begin of what proxies say of clients, and another one that some use.
const X_FORWARDED: &str = "x-forwarded-";
const X_REAL_IP: &str = "x-real-ip";
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// Brings the target to its plain form: a path in the URI, the host in `Host`. A host in the
/// target counts for more than the header, as RFC 9112 has it; HTTP/2 has to tell one host only.
pub(crate) fn normalise(parts: &mut Parts, target_max: usize) -> Result<(), Fault> {
    if parts.method == Method::CONNECT {
        return Err(Fault::Connect);
    }
    if let Some(authority) = parts.uri.authority() {
        let host = host_of(authority)?;
        let mut told = parts.headers.get_all(header::HOST).iter();
        let is_one = told.next().is_none_or(|told| told.as_bytes() == host.as_bytes());
        if parts.version == Version::HTTP_2 && (!is_one || told.next().is_some()) {
            return Err(Fault::Host);
        }
        let path = parts.uri.path_and_query().cloned();
        let path = path.unwrap_or(PathAndQuery::from_static("/"));
        parts.headers.insert(header::HOST, host);
        parts.uri = Uri::from(path);
    }
    if parts.version == Version::HTTP_2 {
        if parts.uri.path_and_query().is_some_and(|target| target.as_str().len() > target_max) {
            return Err(Fault::TargetTooLong);
        }
        check_http2(parts)?;
    }
    let path = parts.uri.path();
    match path.starts_with('/') || path == "*" && parts.method == Method::OPTIONS {
        true => Ok(()),
        false => Err(Fault::Target),
    }
}

fn host_of(authority: &Authority) -> Result<HeaderValue, Fault> {
    if authority.as_str().contains('@') {
        return Err(Fault::Target);
    }
    HeaderValue::from_str(authority.as_str()).map_err(|_| Fault::Target)
}

/// What the scanner has seen to in HTTP/1.
fn check_http2(parts: &mut Parts) -> Result<(), Fault> {
    let mut hosts = parts.headers.get_all(header::HOST).iter();
    if hosts.next().is_none() || hosts.next().is_some() {
        return Err(Fault::Host);
    }
    // What is no number is nothing to the library, and would be passed on.
    let mut lengths = parts.headers.get_all(header::CONTENT_LENGTH).iter();
    if let Some(length) = lengths.next() {
        let is_number = !length.is_empty() && length.as_bytes().iter().all(u8::is_ascii_digit);
        if !is_number || lengths.next().is_some() {
            return Err(Fault::Length);
        }
    }
    let expected = parts.headers.get(header::EXPECT);
    if expected.is_some_and(|value| !value.as_bytes().eq_ignore_ascii_case(b"100-continue")) {
        return Err(Fault::Expectation);
    }
    // Cookies may come in pieces there, and nowhere else.
    let mut cookies = parts.headers.get_all(header::COOKIE).iter();
    if cookies.next().is_some() && cookies.next().is_some() {
        let all: Vec<&[u8]> =
            parts.headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
        if let Ok(joined) = HeaderValue::from_bytes(&all.join(&b"; "[..])) {
            parts.headers.insert(header::COOKIE, joined);
        }
    }
    Ok(())
}

/// The protocol that a request asks to go over to, if it does.
pub(crate) fn upgrade_of(parts: &Parts) -> Option<HeaderValue> {
    let protocol = parts.headers.get(header::UPGRADE)?;
    let asks = |value: &HeaderValue| {
        let names = value.to_str().unwrap_or_default().split(',');
        names.into_iter().any(|name| name.trim().eq_ignore_ascii_case("upgrade"))
    };
    let asks = parts.headers.get_all(header::CONNECTION).iter().any(asks);
    // What is HTTP again would go through unseen, and past all limits.
    let is_http = protocol.as_bytes().split(|byte| *byte == b',').any(|name| {
        let name = name.trim_ascii().to_ascii_lowercase();
        [&b"h2"[..], b"http", b"tls"].iter().any(|start| name.starts_with(start))
    });
    (asks && !is_http && parts.version == Version::HTTP_11).then(|| protocol.clone())
}

/// Takes out what is meant for the next hop only.
pub(crate) fn strip(headers: &mut HeaderMap) {
    let (mut has_any, mut has_connection) = (false, false);
    for name in headers.keys() {
        if *name == header::CONNECTION {
            has_connection = true;
        }
        has_any |= *name == header::TRANSFER_ENCODING
            || *name == header::TE
            || *name == header::UPGRADE
            || *name == header::EXPECT
            || *name == KEEP_ALIVE
            || *name == PROXY_CONNECTION
            || *name == HTTP2_SETTINGS
            || *name == header::PROXY_AUTHORIZATION
            || *name == header::PROXY_AUTHENTICATE;
    }
    if has_connection {
        strip_named(headers);
    }
    if !has_any {
        return;
    }
    // Whoever takes trailers may go on saying so: they are passed on.
    let takes_trailers = headers.get_all(header::TE).iter().any(|value| {
        let codings = value.to_str().unwrap_or_default().split(',');
        codings.into_iter().any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
    });
    for name in [
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::EXPECT,
        KEEP_ALIVE,
        PROXY_CONNECTION,
        HTTP2_SETTINGS,
        header::PROXY_AUTHORIZATION,
        header::PROXY_AUTHENTICATE,
        header::TE,
    ] {
        headers.remove(name);
    }
    if takes_trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
}

/// Takes out of trailers what only a head can say: how long the message is, where it goes, whom it is from.
pub(crate) fn strip_trailers(trailers: &mut HeaderMap) {
    strip(trailers);
    for name in [
        header::CONTENT_LENGTH,
        header::HOST,
        header::TE,
        header::TRAILER,
        header::AUTHORIZATION,
        header::COOKIE,
        header::SET_COOKIE,
        header::FORWARDED,
    ] {
        trailers.remove(name);
    }
    strip_claims(trailers, |name| name.starts_with(X_FORWARDED) || name == X_REAL_IP);
}

/// Takes out headers by name, and those that become the same where names are variables: there `_` and `-`
/// are one.
fn strip_claims(headers: &mut HeaderMap, is_claim: impl Fn(&str) -> bool) {
    let is_out = |name: &HeaderName| {
        let name = name.as_str();
        match name.contains('_') {
            false => is_claim(name),
            true => is_disguised(&name.replace('_', "-")),
        }
    };
    let out: SmallVec<[HeaderName; 4]> =
        headers.keys().filter(|name| is_out(name)).cloned().collect();
    for name in out {
        headers.remove(name);
    }
}

fn is_disguised(name: &str) -> bool {
    name.starts_with(X_FORWARDED)
        || [X_REAL_IP, "content-length", "transfer-encoding"].contains(&name)
}

/// Takes out `Connection` and the headers that it names.
fn strip_named(headers: &mut HeaderMap) {
    let mut named: Vec<HeaderName> = Vec::new();
    for value in headers.get_all(header::CONNECTION) {
        for name in value.as_bytes().split(|byte| *byte == b',') {
            let name = name.trim_ascii();
            if name.eq_ignore_ascii_case(b"keep-alive") || name.eq_ignore_ascii_case(b"close") {
                continue;
            }
            named.extend(HeaderName::from_bytes(name));
        }
    }
    headers.remove(header::CONNECTION);
    for name in named {
        // Nobody may take out what the message cannot do without.
        let is_needed =
            name == header::HOST || name == header::CONTENT_LENGTH || name == header::TE;
        if !is_needed {
            headers.remove(name);
        }
    }
}

/// Who is at the other end of a connection, and how it is told to upstreams.
pub(crate) struct Peer {
    /// The address of whoever is connected, or whom the PROXY protocol named. By a Unix socket there is
    /// none.
    address: Option<IpAddr>,
    is_trusted: bool,
    /// The header that trusted proxies name clients in.
    forwarding: Forwarding,
    scheme: &'static str,
    for_value: Option<HeaderValue>,
    proto_value: HeaderValue,
    /// The host that came last, and `Forwarded` with it: it is mostly the same again.
    last: RefCell<Option<(HeaderValue, HeaderValue)>>,
}

impl Peer {
    pub(crate) fn new(address: Option<IpAddr>, scheme: &'static str, trusted: &Trusted) -> Self {
        let address = address.map(|address| address.to_canonical());
        // An address is visible ASCII.
        let value = |address: IpAddr| HeaderValue::from_str(&address.to_string()).ok();
        Self {
            address,
            // Who may open the file of a Unix socket, its mode says.
            is_trusted: address.is_none_or(|address| trusted.covers(address)),
            forwarding: trusted.forwarding(),
            scheme,
            for_value: address.and_then(value),
            proto_value: HeaderValue::from_static(scheme),
            last: RefCell::new(None),
        }
    }

    /// The address of the client: the peer's, or what peers say that are trusted.
    pub(crate) fn client(&self, headers: &HeaderMap, trusted: &Trusted) -> Option<IpAddr> {
        match self.is_trusted {
            true => trusted.client_behind(self.address, headers),
            false => self.address,
        }
    }

    /// Tells an upstream who the client is.
    pub(crate) fn tell(&self, headers: &mut HeaderMap) {
        let host = headers.get(header::HOST).cloned();
        let host = host.unwrap_or(HeaderValue::from_static(""));
        let forwarded = self.forwarded(&host);
        if self.is_trusted {
            return self.tell_more(headers, host, forwarded);
        }
        strip_claims(headers, |name| name.starts_with(X_FORWARDED) || name == X_REAL_IP);
        self.set_for(headers);
        headers.insert(X_FORWARDED_PROTO, self.proto_value.clone());
        if !host.is_empty() {
            headers.insert(X_FORWARDED_HOST, host);
        }
        headers.insert(header::FORWARDED, forwarded);
    }

    /// Adds to what trusted proxies have told. The header that they do not set is ours alone, since what
    /// stands there is the client's.
    #[cold]
    fn tell_more(&self, headers: &mut HeaderMap, host: HeaderValue, forwarded: HeaderValue) {
        strip_claims(headers, |_| false);
        match self.forwarding {
            Forwarding::XForwardedFor => {
                if let Some(value) = &self.for_value {
                    join(headers, X_FORWARDED_FOR, value);
                }
                headers.insert(header::FORWARDED, forwarded);
            }
            Forwarding::Forwarded => {
                join(headers, header::FORWARDED, &forwarded);
                self.set_for(headers);
            }
        }
        if !headers.contains_key(X_FORWARDED_PROTO) {
            headers.insert(X_FORWARDED_PROTO, self.proto_value.clone());
        }
        if !headers.contains_key(X_FORWARDED_HOST) && !host.is_empty() {
            headers.insert(X_FORWARDED_HOST, host);
        }
    }

    /// Says the peer's address, and nothing if it has none.
    fn set_for(&self, headers: &mut HeaderMap) {
        match &self.for_value {
            Some(value) => headers.insert(X_FORWARDED_FOR, value.clone()),
            None => headers.remove(X_FORWARDED_FOR),
        };
    }

    fn forwarded(&self, host: &HeaderValue) -> HeaderValue {
        let mut last = self.last.borrow_mut();
        if let Some((known, forwarded)) = &*last
            && known == host
        {
            return forwarded.clone();
        }
        let client = match self.address {
            Some(IpAddr::V4(address)) => format!("for={address}"),
            Some(IpAddr::V6(address)) => format!("for=\"[{address}]\""),
            None => "for=unknown".to_owned(),
        };
        let text = match host.to_str() {
            Ok(host) if !host.is_empty() && !host.contains(['"', '\\']) => {
                format!("{client};host=\"{host}\";proto={}", self.scheme)
            }
            _ => format!("{client};proto={}", self.scheme),
        };
        let forwarded = HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""));
        *last = Some((host.clone(), forwarded.clone()));
        forwarded
    }
}

/// Adds a value to the end of a list, which may be in several headers.
pub(crate) fn join(headers: &mut HeaderMap, name: HeaderName, value: &HeaderValue) {
    let mut bytes: Vec<u8> = Vec::new();
    for known in headers.get_all(&name) {
        bytes.extend_from_slice(known.as_bytes());
        bytes.extend_from_slice(b", ");
    }
    bytes.extend_from_slice(value.as_bytes());
    if let Ok(value) = HeaderValue::from_bytes(&bytes) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn parts(method: &str, uri: &str, headers: &[(&'static str, &str)]) -> Parts {
        let request = http::Request::builder().method(method).uri(uri).body(()).unwrap();
        let mut parts = request.into_parts().0;
        parts.headers = map(headers);
        parts
    }

    #[test]
    fn the_next_hop_gets_nothing_of_this_one() {
        let mut headers = map(&[
            ("connection", "keep-alive, X-Secret"),
            ("connection", "host, content-length, y"),
            ("x-secret", "1"),
            ("y", "2"),
            ("z", "3"),
            ("host", "a"),
            ("content-length", "0"),
            ("keep-alive", "timeout=5"),
            ("te", "gzip, trailers"),
            ("trailer", "t"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("http2-settings", "x"),
            ("proxy-connection", "close"),
            ("proxy-authorization", "x"),
            ("expect", "100-continue"),
        ]);
        strip(&mut headers);
        let left = map(&[
            ("z", "3"),
            ("host", "a"),
            ("content-length", "0"),
            ("te", "trailers"),
            ("trailer", "t"),
        ]);
        assert_eq!(headers, left);
    }

    #[test]
    fn a_target_with_a_host_becomes_a_path_and_a_host() {
        for (uri, path, host) in [
            ("http://b:80/c?d", "/c?d", "b:80"),
            ("http://b", "/", "b"),
            ("http://b?x", "/?x", "b"),
            ("/c%2F/../d", "/c%2F/../d", "a"),
        ] {
            let mut parts = parts("GET", uri, &[("host", "a")]);
            normalise(&mut parts, 100).unwrap();
            assert_eq!(parts.uri.to_string(), path, "{uri}");
            assert!(parts.uri.authority().is_none());
            assert_eq!(parts.headers["host"], host);
        }
    }

    #[test]
    fn http2_has_one_host_and_one_cookie() {
        let mut request = parts("GET", "http://a/", &[("cookie", "b=c"), ("cookie", "d=e")]);
        request.version = Version::HTTP_2;
        normalise(&mut request, 100).unwrap();
        assert_eq!(request.headers["cookie"], "b=c; d=e");
        assert_eq!(request.headers.get_all("cookie").iter().count(), 1);
        let mut request = parts("GET", "http://a/", &[("host", "b")]);
        request.version = Version::HTTP_2;
        assert_eq!(normalise(&mut request, 100), Err(Fault::Host));
        assert_eq!(normalise(&mut parts("CONNECT", "a:1", &[]), 100), Err(Fault::Connect));
        assert_eq!(normalise(&mut parts("GET", "*", &[]), 100), Err(Fault::Target));
    }

    #[test]
    fn http_in_disguise_is_no_other_protocol() {
        let ask = |protocol: &str| {
            let headers = [("connection", "Upgrade, HTTP2-Settings"), ("upgrade", protocol)];
            upgrade_of(&parts("GET", "/", &headers)).is_some()
        };
        assert!(ask("websocket") && ask("my-own/1.0"));
        for http in ["h2c", "H2C", "websocket, h2c", "h2", "HTTP/2.0", "TLS/1.2"] {
            assert!(!ask(http), "{http}");
        }
    }

    #[test]
    fn nobody_is_believed_who_is_not_trusted() {
        let nobody = Trusted::default();
        let peer = Peer::new("192.0.2.1".parse().ok(), "http", &nobody);
        let mut headers = map(&[
            ("host", "a"),
            ("x-forwarded-for", "198.51.100.7"),
            ("x-forwarded-for", "198.51.100.8"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-host", "b"),
            ("forwarded", "for=198.51.100.7"),
        ]);
        assert_eq!(peer.client(&headers, &nobody), "192.0.2.1".parse().ok());
        peer.tell(&mut headers);
        let told = map(&[
            ("host", "a"),
            ("x-forwarded-for", "192.0.2.1"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "a"),
            ("forwarded", "for=192.0.2.1;host=\"a\";proto=http"),
        ]);
        assert_eq!(headers, told);
    }

    #[test]
    fn those_who_are_trusted_are_added_to() {
        let trusted = Trusted::parse(["192.0.2.0/24", "::1"], Forwarding::XForwardedFor).unwrap();
        let peer = Peer::new("::1".parse().ok(), "https", &trusted);
        let mut headers = map(&[
            ("host", "a"),
            ("x-forwarded-for", "203.0.113.1, 198.51.100.7"),
            ("x-forwarded-for", "192.0.2.9"),
            ("x-forwarded-proto", "http"),
            ("forwarded", "for=203.0.113.1"),
        ]);
        assert_eq!(peer.client(&headers, &trusted), "198.51.100.7".parse().ok());
        peer.tell(&mut headers);
        let told = map(&[
            ("host", "a"),
            ("x-forwarded-for", "203.0.113.1, 198.51.100.7, 192.0.2.9, ::1"),
            ("x-forwarded-proto", "http"),
            ("x-forwarded-host", "a"),
            ("forwarded", "for=\"[::1]\";host=\"a\";proto=https"),
        ]);
        assert_eq!(headers, told);
        assert_eq!(peer.client(&map(&[]), &trusted), "::1".parse().ok());
    }

    #[test]
    fn who_comes_by_a_unix_socket_is_believed_and_has_no_address() {
        for (forwarding, x, forwarded) in [
            (Forwarding::XForwardedFor, Some("198.51.100.7"), "for=unknown;proto=http"),
            (Forwarding::Forwarded, None, "for=198.51.100.8, for=unknown;proto=http"),
        ] {
            let trusted = Trusted::parse([""; 0], forwarding).unwrap();
            let peer = Peer::new(None, "http", &trusted);
            let mut headers =
                map(&[("x-forwarded-for", "198.51.100.7"), ("forwarded", "for=198.51.100.8")]);
            let wanted = x.unwrap_or("198.51.100.8").parse().ok();
            assert_eq!(peer.client(&headers, &trusted), wanted);
            assert_eq!(peer.client(&map(&[]), &trusted), None);
            peer.tell(&mut headers);
            let text = |name| headers.get(name).map(|value| value.to_str().unwrap());
            assert_eq!((text("x-forwarded-for"), text("forwarded")), (x, Some(forwarded)));
        }
    }

    #[test]
    fn only_the_header_that_proxies_set_is_believed_and_passed_on() {
        let headers = || {
            map(&[
                ("host", "a"),
                ("x-forwarded-for", "203.0.113.1"),
                ("forwarded", "for=\"[2001:db8::7]:4711\""),
            ])
        };
        let said = |forwarding: Forwarding| {
            let trusted = Trusted::parse(["::1"], forwarding).unwrap();
            let peer = Peer::new("::1".parse().ok(), "http", &trusted);
            let (client, mut told) = (peer.client(&headers(), &trusted), headers());
            peer.tell(&mut told);
            let text = |name| told[name].to_str().unwrap().to_owned();
            (client.unwrap().to_string(), text("x-forwarded-for"), text("forwarded"))
        };
        let (client, x, forwarded) = said(Forwarding::XForwardedFor);
        assert_eq!((&*client, &*x), ("203.0.113.1", "203.0.113.1, ::1"));
        assert_eq!(forwarded, "for=\"[::1]\";host=\"a\";proto=http");
        let (client, x, forwarded) = said(Forwarding::Forwarded);
        assert_eq!((&*client, &*x), ("2001:db8::7", "::1"));
        let added = "for=\"[2001:db8::7]:4711\", for=\"[::1]\";host=\"a\";proto=http";
        assert_eq!(forwarded, added);
    }
}
