//! Who is at the other end of a connection.

use std::net::{IpAddr, SocketAddr};

use http::request::Parts;

/// The address of the other end of a connection. Put it into the extensions of requests where nothing
/// else does, for the layer to find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddr(pub IpAddr);

/// The peer as it is found where nobody says otherwise: a [`PeerAddr`] or a `SocketAddr` among the
/// extensions.
pub(crate) fn peer_of(parts: &Parts) -> Option<IpAddr> {
    let named = parts.extensions.get::<PeerAddr>().map(|peer| peer.0);
    named.or_else(|| parts.extensions.get::<SocketAddr>().map(SocketAddr::ip))
}
