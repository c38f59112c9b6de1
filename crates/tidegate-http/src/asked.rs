//! A request as limits see it.

use std::net::IpAddr;

use http::Method;
use http::header::{ACCESS_CONTROL_REQUEST_METHOD, CONTENT_TYPE, HOST, ORIGIN};
use http::request::Parts;
use tidegate::rules::HttpRequest;

/// A request without its body, and the address that it is from.
#[derive(Debug)]
#[non_exhaustive]
pub struct Asked {
    /// The request but for its body.
    pub parts: Parts,
    /// The address of the client: the peer's, or behind proxies that are [trusted](crate::Trusted), the
    /// one they name.
    pub client_ip: Option<IpAddr>,
}

impl Asked {
    /// A request that is from an address.
    pub fn new(parts: Parts, client_ip: Option<IpAddr>) -> Self {
        Self { parts, client_ip }
    }

    /// Whether it is a gRPC request, whose client reads no status but gRPC's.
    pub fn is_grpc(&self) -> bool {
        let content_type = self.parts.headers.get(CONTENT_TYPE);
        content_type.is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
    }

    /// Whether a browser asks whether a script may ask.
    pub fn is_preflight(&self) -> bool {
        self.parts.method == Method::OPTIONS
            && self.is_of_script()
            && self.parts.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
    }

    /// Whether a script in a browser may be asking, of another origin than its own.
    pub(crate) fn is_of_script(&self) -> bool {
        self.parts.headers.contains_key(ORIGIN)
    }
}

impl HttpRequest for Asked {
    fn method(&self) -> &str {
        self.parts.method.as_str()
    }

    fn host(&self) -> Option<&str> {
        let of_uri = || self.parts.uri.authority().map(|authority| authority.as_str());
        let of_header = || self.parts.headers.get(HOST)?.to_str().ok();
        let host = of_uri().or_else(of_header)?;
        Some(host.rsplit_once('@').map_or(host, |(_, host)| host)).filter(|host| !host.is_empty())
    }

    fn path(&self) -> &str {
        self.parts.uri.path()
    }

    fn query(&self) -> Option<&str> {
        self.parts.uri.query()
    }

    fn header(&self, name: &str, each: &mut dyn FnMut(&[u8])) {
        self.parts.headers.get_all(name).iter().for_each(|value| each(value.as_bytes()));
    }

    fn client_ip(&self) -> Option<IpAddr> {
        self.client_ip
    }
}
