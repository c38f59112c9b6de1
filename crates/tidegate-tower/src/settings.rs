//! What a layer was told: what to ask about, and how to answer.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, Method, Response, StatusCode, header, response};
use tidegate::headers::{Field, Form, ResetForm};
use tidegate::{Keep, Timestamp, Verdict};

use crate::asked::Asked;
use crate::client::{Trusted, peer_of};
use crate::gate::Asking;

type Shared<F> = Option<Arc<F>>;
type ChangeRefusal = dyn Fn(&Verdict, &mut Response<Bytes>) + Send + Sync;
type FindPeer = dyn Fn(&Parts) -> Option<IpAddr> + Send + Sync;

/// All that a layer was told.
#[derive(Clone)]
pub(crate) struct Settings {
    /// The name of each header, at the place of its number; those without are not sent.
    pub(crate) names: [Option<HeaderName>; Field::ALL.len()],
    pub(crate) reset_as_epoch: bool,
    pub(crate) retry_jitter_secs: u64,
    pub(crate) refused: StatusCode,
    pub(crate) is_exposed: bool,
    pub(crate) on_refusal: Shared<ChangeRefusal>,
    pub(crate) peer: Shared<FindPeer>,
    pub(crate) trusted: Trusted,
    pub(crate) passes_preflight: bool,
    pub(crate) passed_paths: Vec<String>,
    pub(crate) passes: Shared<dyn Fn(&Asked) -> bool + Send + Sync>,
    pub(crate) cost: Shared<dyn Fn(&Asked) -> u64 + Send + Sync>,
    pub(crate) cost_header: Option<HeaderName>,
    pub(crate) refunds: Shared<dyn Fn(&response::Parts) -> bool + Send + Sync>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            names: Field::ALL.map(|field| Some(HeaderName::from_static(field.name()))),
            reset_as_epoch: false,
            retry_jitter_secs: 0,
            refused: StatusCode::TOO_MANY_REQUESTS,
            is_exposed: false,
            on_refusal: None,
            peer: None,
            trusted: Trusted::default(),
            passes_preflight: false,
            passed_paths: Vec::new(),
            passes: None,
            cost: None,
            cost_header: None,
            refunds: None,
        }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("refused", &self.refused).finish_non_exhaustive()
    }
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

    /// Whether nobody is asked about a request.
    pub(crate) fn lets_pass(&self, asked: &Asked) -> bool {
        let Parts { method, uri, headers, .. } = &asked.parts;
        let is_preflight = || {
            *method == Method::OPTIONS
                && headers.contains_key(header::ORIGIN)
                && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
        };
        (self.passes_preflight && is_preflight())
            || self.passed_paths.iter().any(|path| path == uri.path())
            || self.passes.as_ref().is_some_and(|passes| passes(asked))
    }

    pub(crate) fn asking(&self, asked: &Asked) -> Asking {
        let cost = self.cost.as_ref().map_or(1, |cost| cost(asked));
        let may_come_back = self.cost_header.is_some() || self.refunds.is_some();
        Asking::new(cost, if may_come_back { Keep::All } else { Keep::Needed })
    }

    /// How an answer is told that was decided at a time.
    pub(crate) fn form(&self, now: Timestamp) -> Form {
        let reset = match self.reset_as_epoch {
            true => ResetForm::Epoch(now),
            false => ResetForm::Delta,
        };
        Form::default().reset(reset).later(jitter(self.retry_jitter_secs))
    }
}

/// Up to so many seconds, at random.
fn jitter(most: u64) -> u64 {
    if most == 0 {
        return 0;
    }
    // Without random numbers there is no jitter, which is only less good.
    let random = getrandom::u64().unwrap_or(0);
    ((u128::from(random) * (u128::from(most) + 1)) >> 64) as u64
}
