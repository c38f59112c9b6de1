//! What there is to see of a gateway.

use std::fmt;

use super::render::{Out, counter, counters_by, gauges_by};

/// A gateway at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GatewayStats {
    /// Client connections that are open.
    pub connections: u64,
    /// Connections that were closed at once, since there were too many.
    pub connections_refused: u64,
    /// Times that the system had no room for another connection.
    pub accept_errors: u64,
    /// Requests that were not understood.
    pub bad_requests: u64,
    /// Lines of the access log that found no room.
    pub log_lines_lost: u64,
    /// The servers behind it.
    pub upstreams: Vec<UpstreamStats>,
}

/// A server behind a gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpstreamStats {
    /// The upstream's name and the server's address, as `name host:port`.
    pub name: String,
    /// Whether it is asked.
    pub is_up: bool,
    /// How often it could not be connected to or did not answer as it should.
    pub failures: u64,
}

impl UpstreamStats {
    /// A server by name.
    pub fn new(name: impl Into<String>, is_up: bool, failures: u64) -> Self {
        Self { name: name.into(), is_up, failures }
    }
}

/// Writes the metrics of a gateway.
pub(super) fn encode(stats: &GatewayStats, out: &mut Out<'_>) -> fmt::Result {
    let help = "Lines of the gateway's access log that found no room";
    counter(out, "tidegate_gateway_log_lines_lost", help, stats.log_lines_lost)?;
    let help = "Servers behind the gateway that are asked: 1, or 0 while they are left out";
    let up = stats.upstreams.iter().map(|one| (&*one.name, u64::from(one.is_up)));
    gauges_by(out, "tidegate_gateway_upstream_up", help, "upstream", up)?;
    let help = "How often servers behind the gateway failed to answer";
    let failed = stats.upstreams.iter().map(|one| (&*one.name, one.failures));
    counters_by(out, "tidegate_gateway_upstream_failures", help, "upstream", failed)
}
