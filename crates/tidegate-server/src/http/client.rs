//! Who a request is from: behind the proxies that are trusted, or by a Unix socket.

use std::net::IpAddr;

use http::HeaderMap;
use tidegate_http::Trusted;

use crate::listen::Peer;

/// Whether somebody's word on the client's address is taken: of those that come by a Unix socket it
/// is, since they have no address of their own and the file's mode says who they may be.
pub(crate) fn is_trusted(trusted: &Trusted, peer: Peer) -> bool {
    match peer {
        Peer::Ip(address) => trusted.covers(address.ip()),
        Peer::Unix => true,
    }
}

/// The address of the client: the peer's, or if that is trusted, the one that it names.
pub(crate) fn client_ip(trusted: &Trusted, peer: Peer, headers: &HeaderMap) -> Option<IpAddr> {
    match peer {
        Peer::Ip(address) => trusted.client_ip(Some(address.ip()), headers),
        Peer::Unix => trusted.client_behind(None, headers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_http::Forwarding;

    #[test]
    fn who_comes_by_a_unix_socket_is_believed() {
        let trusted = Trusted::parse(["10.0.0.0/8"], Forwarding::default()).unwrap();
        let ip = |text: &str| Peer::Ip((text.parse::<IpAddr>().unwrap(), 1).into());
        for (peer, forwarded, is_believed, wanted) in [
            (Peer::Unix, Some("198.51.100.7"), true, Some("198.51.100.7")),
            (Peer::Unix, Some("198.51.100.7, 10.0.0.3"), true, Some("198.51.100.7")),
            (Peer::Unix, None, true, None),
            (ip("10.0.0.1"), Some("198.51.100.7"), true, Some("198.51.100.7")),
            (ip("192.0.2.1"), Some("198.51.100.7"), false, Some("192.0.2.1")),
        ] {
            let value =
                forwarded.map(|value| (Forwarding::default().name(), value.parse().unwrap()));
            let headers = HeaderMap::from_iter(value);
            assert_eq!(is_trusted(&trusted, peer), is_believed, "{peer:?}");
            let wanted = wanted.map(|wanted| wanted.parse::<IpAddr>().unwrap());
            assert_eq!(client_ip(&trusted, peer, &headers), wanted, "{peer:?} {forwarded:?}");
        }
    }
}
