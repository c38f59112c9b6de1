//! What there is to see of a gateway.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use tidegate_server::{GatewayStats, UpstreamStats};

use crate::log::Logs;
use crate::worker::Shared;

/// Looks at a gateway from anywhere, also when it has ended.
#[derive(Clone)]
pub struct GatewayWatch {
    shared: Arc<Shared>,
    logs: Option<Logs>,
}

impl GatewayWatch {
    pub(crate) fn new(shared: Arc<Shared>, logs: Option<Logs>) -> Self {
        Self { shared, logs }
    }

    /// What there is to see now.
    pub fn stats(&self) -> GatewayStats {
        let Shared { config, upstreams, open, turned_away, accept_errors, bad_requests, .. } =
            &*self.shared;
        let mut stats = GatewayStats::default();
        stats.connections = open.load(Relaxed) as u64;
        stats.connections_refused = turned_away.load(Relaxed);
        stats.accept_errors = accept_errors.load(Relaxed);
        stats.bad_requests = bad_requests.load(Relaxed);
        stats.log_lines_lost = self.logs.as_ref().map_or(0, Logs::lost);
        for (upstream, told) in upstreams.iter().zip(&config.upstreams) {
            let each = upstream.addresses.iter().enumerate().map(|(at, address)| {
                let name = format!("{} {}", told.name, address.authority);
                UpstreamStats::new(name, upstream.is_well(at), address.failures_ever.load(Relaxed))
            });
            stats.upstreams.extend(each);
        }
        stats
    }
}

impl fmt::Debug for GatewayWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GatewayWatch").field(&self.stats()).finish()
    }
}
