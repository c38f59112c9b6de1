//! Who a request is from, behind the proxies that are trusted.

use std::net::{IpAddr, Ipv4Addr};

use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;

/// What is wrong with the name of a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is neither an address nor a network such as `10.0.0.0/8`")]
pub struct NoNetwork(pub String);

/// The header that trusted proxies name clients in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forwarding {
    /// `X-Forwarded-For`.
    #[default]
    XForwardedFor,
    /// `Forwarded`, as of RFC 7239.
    Forwarded,
}

impl Forwarding {
    /// Its name.
    pub fn name(self) -> HeaderName {
        match self {
            Self::XForwardedFor => HeaderName::from_static("x-forwarded-for"),
            Self::Forwarded => header::FORWARDED,
        }
    }

    /// The address in an element of it.
    fn address(self, element: &str) -> Option<IpAddr> {
        match self {
            Self::XForwardedFor => parse_hop(element.trim()),
            Self::Forwarded => forwarded_for(element).and_then(parse_hop),
        }
    }
}

/// Whose word on the client's address is taken, and in which header. Nobody's by default.
///
/// Only the header is read that the proxies set: in another one clients could say what they like.
#[derive(Clone, Debug, Default)]
pub struct Trusted {
    networks: Vec<IpNet>,
    forwarding: Forwarding,
}

impl Trusted {
    /// Addresses and networks such as `10.0.0.0/8`, and the header in which they name clients.
    ///
    /// # Errors
    /// If a text is neither.
    pub fn parse<T: AsRef<str>>(
        networks: impl IntoIterator<Item = T>,
        forwarding: Forwarding,
    ) -> Result<Self, NoNetwork> {
        let network = |text: &str| {
            let network: Option<IpNet> = text.parse().ok();
            let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
            network.or_else(address).ok_or_else(|| NoNetwork(text.to_owned()))
        };
        let networks = networks.into_iter().map(|text| network(text.as_ref()));
        Ok(Self { networks: networks.collect::<Result<_, _>>()?, forwarding })
    }

    /// The header in which clients are named.
    pub fn forwarding(&self) -> Forwarding {
        self.forwarding
    }

    /// Whether the word of whoever is at this address is taken.
    pub fn covers(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.networks.iter().any(|network| network.contains(&address))
    }

    /// The address of the client: the peer's, or if that is trusted, the last one among those
    /// forwarded that is not.
    pub fn client_ip(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        let peer = peer?.to_canonical();
        match self.covers(peer) {
            true => self.client_behind(Some(peer), headers),
            false => Some(peer),
        }
    }

    /// The address of the client behind a peer whose word is taken, whatever its address is, if it has
    /// one: the last one among those forwarded that is not trusted.
    pub fn client_behind(&self, peer: Option<IpAddr>, headers: &HeaderMap) -> Option<IpAddr> {
        let mut client = peer;
        let values = headers.get_all(self.forwarding.name());
        let values = values.iter().rev().map(|value| value.to_str().unwrap_or_default());
        for element in values.flat_map(|value| value.rsplit(',')) {
            // Beyond something that is no address nobody's word is to be had.
            let Some(address) = self.forwarding.address(element) else { break };
            client = Some(address);
            if !self.covers(address) {
                break;
            }
        }
        client
    }
}

/// The node of an element such as `for="[2001:db8::7]:4711";proto=https`.
fn forwarded_for(element: &str) -> Option<&str> {
    let mut pairs = element.split(';').filter_map(|pair| pair.trim().split_once('='));
    let (_, node) = pairs.find(|(name, _)| name.eq_ignore_ascii_case("for"))?;
    let quoted = node.strip_prefix('"').and_then(|node| node.strip_suffix('"'));
    Some(quoted.unwrap_or(node))
}

/// An address, with or without port.
fn parse_hop(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.split_once(']')).map(|(text, _)| text);
    let parsed = bare.unwrap_or(text).parse::<IpAddr>().ok();
    let with_port = || text.rsplit_once(':')?.0.parse::<Ipv4Addr>().ok().map(IpAddr::V4);
    parsed.or_else(with_port).map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(trusted: &[&str], forwarding: Forwarding, peer: &str, forwarded: &[&str]) -> String {
        let trusted = Trusted::parse(trusted, forwarding).unwrap();
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append(forwarding.name(), value.parse().unwrap());
        }
        let found = trusted.client_ip(peer.parse().ok(), &headers);
        found.map_or("none".to_owned(), |address| address.to_string())
    }

    #[test]
    fn nobody_is_believed_unless_said() {
        let x = Forwarding::XForwardedFor;
        assert_eq!(client(&[], x, "192.0.2.1", &["198.51.100.7"]), "192.0.2.1");
        assert_eq!(client(&[], x, "127.0.0.1", &["198.51.100.7"]), "127.0.0.1");
        assert_eq!(client(&["10.0.0.0/8"], x, "192.0.2.1", &["198.51.100.7"]), "192.0.2.1");
        assert_eq!(client(&["0.0.0.0/0"], x, "unix", &["198.51.100.7"]), "none");
        // Only the header that the proxies set is read.
        let trusted = Trusted::parse(["127.0.0.1"], x).unwrap();
        let headers = HeaderMap::from_iter([(header::FORWARDED, "for=1.2.3.4".parse().unwrap())]);
        assert_eq!(trusted.client_ip("127.0.0.1".parse().ok(), &headers), "127.0.0.1".parse().ok());
    }

    #[test]
    fn the_last_that_is_not_trusted_is_the_client() {
        let trusted = ["10.0.0.0/8", "::1", "192.0.2.1"];
        for (peer, forwarded, wanted) in [
            ("10.1.2.3", &["198.51.100.7"][..], "198.51.100.7"),
            ("::ffff:10.1.2.3", &["198.51.100.7"], "198.51.100.7"),
            ("::1", &["203.0.113.9, 198.51.100.7, 10.0.0.1"], "198.51.100.7"),
            ("10.0.0.1", &["203.0.113.9", "198.51.100.7,192.0.2.1"], "198.51.100.7"),
            ("10.0.0.1", &["10.0.0.2, 10.0.0.3"], "10.0.0.2"),
            ("10.0.0.1", &["198.51.100.7, spoilt, 10.0.0.3"], "10.0.0.3"),
            ("10.0.0.1", &["198.51.100.7:4711"], "198.51.100.7"),
            ("10.0.0.1", &["[2001:db8::7]:4711"], "2001:db8::7"),
            ("10.0.0.1", &["2001:db8::7"], "2001:db8::7"),
            ("10.0.0.1", &["198.51.100.7", "10.0.0.3"], "198.51.100.7"),
            ("10.0.0.1", &[], "10.0.0.1"),
        ] {
            let found = client(&trusted, Forwarding::XForwardedFor, peer, forwarded);
            assert_eq!(found, wanted, "{peer} {forwarded:?}");
        }
    }

    #[test]
    fn forwarded_is_read_as_the_rfc_has_it() {
        for (forwarded, wanted) in [
            ("for=198.51.100.7", "198.51.100.7"),
            ("For=\"[2001:db8:cafe::17]:4711\"", "2001:db8:cafe::17"),
            ("for=203.0.113.9, for=198.51.100.7;proto=http;by=10.0.0.9", "198.51.100.7"),
            ("proto=https; for=198.51.100.7, for=10.0.0.3", "198.51.100.7"),
            ("for=\"[2001:db8::7]:4711\";proto=http, For=10.0.0.9", "2001:db8::7"),
            ("for=198.51.100.7, for=unknown", "10.0.0.1"),
            ("for=198.51.100.7, for=_hidden", "10.0.0.1"),
            ("by=10.0.0.9", "10.0.0.1"),
        ] {
            let found = client(&["10.0.0.0/8"], Forwarding::Forwarded, "10.0.0.1", &[forwarded]);
            assert_eq!(found, wanted, "{forwarded}");
        }
    }

    #[test]
    fn a_peer_without_an_address_may_be_trusted_too() {
        let trusted = Trusted::parse(["10.0.0.0/8"], Forwarding::default()).unwrap();
        let name = Forwarding::default().name();
        let headers = HeaderMap::from_iter([(name, "198.51.100.7, 10.0.0.3".parse().unwrap())]);
        assert_eq!(trusted.client_behind(None, &headers), "198.51.100.7".parse().ok());
        assert_eq!(trusted.client_behind(None, &HeaderMap::new()), None);
    }

    #[test]
    fn what_is_no_network_is_told() {
        for wrong in ["", "example.org", "10.0.0.0/33", "10.0.0.256"] {
            let error = Trusted::parse([wrong], Forwarding::default()).unwrap_err();
            assert!(error.to_string().contains(&format!("`{wrong}`")), "{error}");
        }
    }
}
