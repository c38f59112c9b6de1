//! Who a request is from, behind the proxies that are trusted.

use std::net::IpAddr;

use http::HeaderMap;
use ipnet::IpNet;

use crate::listen::Peer;

/// Whose word on the client's address is taken.
#[derive(Clone, Debug, Default)]
pub struct Trusted(Vec<IpNet>);

impl Trusted {
    /// Addresses and networks.
    ///
    /// # Errors
    /// The text that is neither.
    pub fn parse(texts: &[String]) -> Result<Self, String> {
        let network = |text: &String| {
            let network: Option<IpNet> = text.parse().ok();
            let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
            network.or_else(address).ok_or_else(|| text.clone())
        };
        texts.iter().map(network).collect::<Result<_, _>>().map(Self)
    }

    /// Whether the word of whoever is at this address is taken.
    #[must_use]
    pub fn covers(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }

    /// Whether somebody's word is taken: of those that come by a Unix socket it is, since they
    /// have no address of their own and the file's mode says who they may be.
    pub(crate) fn is_trusted(&self, peer: Peer) -> bool {
        match peer {
            Peer::Ip(address) => self.covers(address.ip()),
            Peer::Unix => true,
        }
    }

    /// The address of the client: the peer's, or if that is trusted, the last one in
    /// `X-Forwarded-For` that is not.
    pub(crate) fn client_ip(&self, peer: Peer, headers: &HeaderMap) -> Option<IpAddr> {
        let client = match peer {
            Peer::Ip(address) => Some(address.ip().to_canonical()),
            Peer::Unix => None,
        };
        if !self.is_trusted(peer) {
            return client;
        }
        let values: Vec<&str> = headers
            .get_all("x-forwarded-for")
            .iter()
            .map(|value| value.to_str().unwrap_or_default())
            .collect();
        let hops = values.iter().flat_map(|value| value.split(','));
        self.client_of(client, hops)
    }

    /// The client behind hops that tell of those before them, the nearest one last: the last one
    /// that is not trusted, where what is told of it comes from those that are. `peer` is whoever
    /// is connected, and trusted.
    pub fn client_of<'h>(
        &self,
        peer: Option<IpAddr>,
        hops: impl DoubleEndedIterator<Item = &'h str>,
    ) -> Option<IpAddr> {
        let mut client = peer;
        for hop in hops.rev() {
            // Beyond something that is no address nobody's word is to be had.
            let Some(address) = parse_hop(hop.trim()) else { break };
            client = Some(address);
            if !self.covers(address) {
                break;
            }
        }
        client
    }
}

/// An address, with or without port.
fn parse_hop(text: &str) -> Option<IpAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.split_once(']')).map(|(text, _)| text);
    let parsed = bare.unwrap_or(text).parse::<IpAddr>().ok();
    let with_port = || text.rsplit_once(':')?.0.parse::<std::net::Ipv4Addr>().ok().map(IpAddr::V4);
    parsed.or_else(with_port).map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(trusted: &[&str], peer: &str, forwarded: &[&str]) -> String {
        let trusted: Vec<String> = trusted.iter().map(|text| (*text).to_owned()).collect();
        let trusted = Trusted::parse(&trusted).unwrap();
        let mut headers = HeaderMap::new();
        for value in forwarded {
            headers.append("x-forwarded-for", value.parse().unwrap());
        }
        let peer = peer.parse().map_or(Peer::Unix, |ip: IpAddr| Peer::Ip((ip, 1).into()));
        let found: Option<IpAddr> = trusted.client_ip(peer, &headers);
        found.map_or("none".to_owned(), |address: IpAddr| address.to_string())
    }

    #[test]
    fn nobody_is_believed_unless_said() {
        assert_eq!(client(&[], "192.0.2.1", &["198.51.100.7"]), "192.0.2.1");
        assert_eq!(client(&[], "127.0.0.1", &["198.51.100.7"]), "127.0.0.1");
        assert_eq!(client(&["10.0.0.0/8"], "192.0.2.1", &["198.51.100.7"]), "192.0.2.1");
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
            ("10.0.0.1", &[], "10.0.0.1"),
            ("unix", &["198.51.100.7"], "198.51.100.7"),
            ("unix", &[], "none"),
        ] {
            assert_eq!(client(&trusted, peer, forwarded), wanted, "{peer} {forwarded:?}");
        }
    }

    #[test]
    fn what_is_no_network_is_told() {
        for wrong in ["", "example.org", "10.0.0.0/33", "10.0.0.256"] {
            assert_eq!(Trusted::parse(&[wrong.to_owned()]).unwrap_err(), wrong);
        }
    }
}
