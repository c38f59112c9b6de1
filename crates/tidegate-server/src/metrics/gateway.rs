//! What there is to see of a gateway.

use std::fmt;

use super::render::{Out, counters_by, gauge, gauges_by};

/// A gateway at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GatewayStats {
    /// Client connections that are open.
    pub connections: u64,
    /// How many there are at the most.
    pub connections_max: u64,
    /// Connections that were closed at once, since there were as many.
    pub connections_refused: u64,
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
    let help = "Client connections of the gateway that are open";
    gauge(out, "tidegate_gateway_connections", help, stats.connections)?;
    let help = "How many connections the gateway has at the most";
    gauge(out, "tidegate_gateway_connections_max", help, stats.connections_max)?;
    let help = "Requests and lines that the gateway had no room for, by what";
    let lost = [("connections", stats.connections_refused), ("log_lines", stats.log_lines_lost)];
    counters_by(out, "tidegate_gateway_no_room", help, "what", lost.into_iter())?;
    let help = "Servers behind the gateway that are asked: 1, or 0 while they are left out";
    let up = stats.upstreams.iter().map(|one| (&*one.name, u64::from(one.is_up)));
    gauges_by(out, "tidegate_gateway_upstream_up", help, "upstream", up)?;
    let help = "How often servers behind the gateway failed to answer";
    let failed = stats.upstreams.iter().map(|one| (&*one.name, one.failures));
    counters_by(out, "tidegate_gateway_upstream_failures", help, "upstream", failed)
}
