//! What a layer was told: whom requests are from, and how to ask and to answer.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::request::Parts;
use tidegate_http::{Answers, Asked, Trusted};

use crate::peer::peer_of;

type FindPeer = dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync;

/// All that a layer was told.
#[derive(Clone, Default)]
pub(crate) struct Settings {
    pub(crate) peer: Option<Arc<FindPeer>>,
    pub(crate) trusted: Trusted,
    pub(crate) answers: Answers,
}

impl Settings {
    /// The request, with the address that it is from.
    pub(crate) fn asked(&self, parts: Parts) -> Asked {
        let peer = match &self.peer {
            Some(peer) => peer(&parts),
            None => peer_of(&parts),
        };
        let client_ip = self.trusted.client_ip(peer, &parts.headers);
        Asked::new(parts, client_ip)
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { trusted, answers, .. } = self;
        let mut shown = f.debug_struct("Settings");
        shown.field("trusted", trusted).field("answers", answers).finish_non_exhaustive()
    }
}
