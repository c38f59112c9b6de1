//! How the counters read: OpenMetrics, as Prometheus asks for it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use super::cells::{Count, RuleCells};
use super::lyft::LyftCell;
use super::{BLOCK, Domain, FrontEndCells, MISSING_VALUE, Metrics, OVERRIDE, Table, UNKNOWN};
use super::{GatewayStats, gateway, store};
use crate::front_end::FrontEnd;
use crate::stores::StoreStats;

/// The type of what [`Metrics::render`] writes.
pub(crate) const METRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

impl Metrics {
    /// All counters as text.
    pub(crate) fn render(
        self: &Arc<Self>,
        store: StoreStats,
        held: usize,
        gateway: Option<GatewayStats>,
    ) -> String {
        if let Some(stats) = &gateway {
            self.front_ends[FrontEnd::Gateway as usize].copy(stats);
        }
        let mut registry = Registry::default();
        let table = self.table.load_full();
        let metrics = Arc::clone(self);
        registry.register_collector(Box::new(Scrape { metrics, table, store, held, gateway }));
        let mut out = String::with_capacity(16 * 1024);
        // Writing to a string does not fail.
        let _ = text::encode(&mut out, &registry);
        out
    }
}

/// What is there to be told at one moment.
#[derive(Debug)]
struct Scrape {
    metrics: Arc<Metrics>,
    table: Arc<Table>,
    store: StoreStats,
    /// Requests that wait for their turn.
    held: usize,
    gateway: Option<GatewayStats>,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let out = &mut encoder;
        self.decisions(out)?;
        self.front_ends(out)?;
        self.rules(out)?;
        store::encode(&self.store, out)?;
        let help = "Requests that a limit holds back until their turn";
        gauge(out, "tidegate_held", help, self.held as u64)?;
        let help = "How many are held back at the most; more are refused";
        gauge(out, "tidegate_held_max", help, tidegate::HELD_MAX as u64)?;
        if let Some(stats) = &self.gateway {
            gateway::encode(stats, out)?;
        }
        self.lyft(out)
    }
}

pub(super) type Out<'e> = DescriptorEncoder<'e>;

impl Scrape {
    fn decisions(&self, out: &mut Out<'_>) -> fmt::Result {
        let help = "Limits that requests met, by what became of the request";
        self.counts(out, "tidegate_decisions", help, |count| count.decisions)?;
        let help = "The cost of those requests, in units of the limit";
        self.counts(out, "tidegate_cost", help, |count| count.cost)?;
        let help = "Descriptors that met no rule";
        let rows = self.domains().map(|(name, domain)| (name, domain.no_match.load(Relaxed)));
        counters_by(out, "tidegate_no_match", help, "domain", rows)
    }

    /// The domains of the rules, and the one for all others.
    fn domains(&self) -> impl Iterator<Item = (&str, &Arc<Domain>)> {
        let known = self.table.domains.iter().map(|(name, domain)| (&**name, domain));
        known.chain([(UNKNOWN, &self.metrics.unknown)])
    }

    /// Every cell that is not zero, with all its labels.
    fn counts(
        &self,
        out: &mut Out<'_>,
        name: &str,
        help: &str,
        read: impl Fn(&Count) -> u64,
    ) -> fmt::Result {
        let mut family = out.encode_descriptor(name, help, None, COUNTER)?;
        let mut write = |domain: &str, rule: &str, cells: &RuleCells| -> fmt::Result {
            for count in cells.counts() {
                let labels = [
                    ("domain", domain),
                    ("rule", rule),
                    ("outcome", count.outcome.as_str()),
                    ("source", count.source.name()),
                    ("front_end", count.front_end.as_str()),
                ];
                let mut metric = family.encode_family(&labels)?;
                metric.encode_counter::<NoLabelSet, _, u64>(&read(&count), None)?;
            }
            Ok(())
        };
        for counted in &self.table.rules {
            write(&counted.domain, &counted.id, &counted.cells)?;
        }
        for (name, domain) in self.domains() {
            write(name, OVERRIDE, &domain.overrides)?;
            write(name, BLOCK, &domain.blocks)?;
            write(name, MISSING_VALUE, &domain.missing)?;
        }
        for (name, cells) in &self.metrics.named {
            write("", name, cells)?;
        }
        Ok(())
    }

    fn front_ends(&self, out: &mut Out<'_>) -> fmt::Result {
        let cells = || {
            let names = FrontEnd::ALL.into_iter().map(FrontEnd::as_str);
            names.zip(&self.metrics.front_ends)
        };
        let help = "How long decisions took, without reading requests and writing answers";
        let mut family =
            out.encode_descriptor("tidegate_decision_seconds", help, None, HISTOGRAM)?;
        for (front_end, cells) in cells() {
            let (sum, buckets) = cells.seconds.read();
            let count = buckets.iter().map(|(_, count)| count).sum();
            let labels = [("front_end", front_end)];
            let mut metric = family.encode_family(&labels)?;
            metric.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        let open = cells().map(|(name, cells)| (name, cells.connections.load(Relaxed)));
        let help = "Connections that are open";
        let mut family = out.encode_descriptor("tidegate_connections", help, None, GAUGE)?;
        for (front_end, value) in open {
            family.encode_family(&[("front_end", front_end)])?.encode_gauge(&value)?;
        }
        type Read = fn(&FrontEndCells) -> &AtomicU64;
        let counters: [(&str, &str, Read); 3] = [
            ("tidegate_bad_requests", "Requests that were not understood", |cells| {
                &cells.bad_requests
            }),
            (
                "tidegate_connections_refused",
                "Connections that were closed at once because there were too many",
                |cells| &cells.turned_away,
            ),
            (
                "tidegate_accept_errors",
                "Times that the system had no room for another connection",
                |cells| &cells.accept_errors,
            ),
        ];
        for (name, help, read) in counters {
            let rows = cells().map(|(name, cells)| (name, read(cells).load(Relaxed)));
            counters_by(out, name, help, "front_end", rows)?;
        }
        Ok(())
    }

    fn rules(&self, out: &mut Out<'_>) -> fmt::Result {
        let count = i64::try_from(self.table.rules.len()).unwrap_or(i64::MAX);
        let help = "Rules in force";
        out.encode_descriptor("tidegate_rules_loaded", help, None, GAUGE)?.encode_gauge(&count)?;
        let help = "Times that rules were loaded after the start";
        let results = ["error", "ok"].into_iter().zip(&self.metrics.reloads);
        let rows = results.map(|(result, cell)| (result, cell.load(Relaxed)));
        counters_by(out, "tidegate_reload", help, "result", rows)?;
        let help = "What runs here";
        let mut metric = out.encode_descriptor("tidegate_build_info", help, None, GAUGE)?;
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        metric.encode_family(&version)?.encode_gauge(&1_i64)
    }

    /// The names of Lyft's service. They do not end as counters do in OpenMetrics, which is why
    /// their type is not told.
    fn lyft(&self, out: &mut Out<'_>) -> fmt::Result {
        let series = self.metrics.lyft.all();
        type Read = fn(&LyftCell) -> &AtomicU64;
        let counters: [(&str, Read); 6] = [
            ("total_hits", |cell| &cell.total_hits),
            ("over_limit", |cell| &cell.over_limit),
            ("near_limit", |cell| &cell.near_limit),
            ("within_limit", |cell| &cell.within_limit),
            ("shadow_mode", |cell| &cell.shadow_mode),
            ("over_limit_with_local_cache", |cell| &cell.over_limit_with_local_cache),
        ];
        for (name, read) in counters {
            let help = "As in Lyft's service, in units of cost";
            let name = format!("ratelimit_service_rate_limit_{name}");
            let mut family = out.encode_descriptor(&name, help, None, MetricType::Unknown)?;
            let hit = series.iter().filter(|(_, cell)| cell.total_hits.load(Relaxed) > 0);
            for (labels, cell) in hit {
                let value = read(cell).load(Relaxed);
                let all =
                    [("domain", &*labels.domain), ("key1", &*labels.key1), ("key2", &*labels.key2)];
                let some = if labels.key2.is_empty() { &all[..2] } else { &all[..] };
                family.encode_family(&some)?.encode_gauge(&value)?;
            }
        }
        let asked = self.metrics.decisions(FrontEnd::Grpc);
        let grpc = &self.metrics.front_ends[FrontEnd::Grpc as usize];
        let [failed, loaded] = &self.metrics.reloads;
        let single = [
            ("total_requests", Some(("grpc_method", "ShouldRateLimit")), asked),
            (
                "should_rate_limit_error",
                Some(("err_type", "service_error")),
                grpc.bad_requests.load(Relaxed),
            ),
            ("config_load_success", None, loaded.load(Relaxed)),
            ("config_load_error", None, failed.load(Relaxed)),
        ];
        for (name, label, value) in single {
            let name = format!("ratelimit_service_{name}");
            let help = "As in Lyft's service";
            let mut metric = out.encode_descriptor(&name, help, None, MetricType::Unknown)?;
            match label {
                Some(label) => metric.encode_family(&[label])?.encode_gauge(&value)?,
                None => metric.encode_gauge(&value)?,
            }
        }
        Ok(())
    }
}

/// A counter with one label.
pub(super) fn counters_by<'a>(
    out: &mut Out<'_>,
    name: &str,
    help: &str,
    label: &str,
    rows: impl Iterator<Item = (&'a str, u64)>,
) -> fmt::Result {
    by(out, (name, help, COUNTER), label, rows, |mut metric, count| {
        metric.encode_counter::<NoLabelSet, _, u64>(&count, None)
    })
}

/// A gauge with one label.
pub(super) fn gauges_by<'a>(
    out: &mut Out<'_>,
    name: &str,
    help: &str,
    label: &str,
    rows: impl Iterator<Item = (&'a str, u64)>,
) -> fmt::Result {
    by(out, (name, help, GAUGE), label, rows, |mut metric, count| {
        metric.encode_gauge(&i64::try_from(count).unwrap_or(i64::MAX))
    })
}

/// A metric with one label: its name, what it is and of which kind.
fn by<'a>(
    out: &mut Out<'_>,
    (name, help, kind): (&str, &str, MetricType),
    label: &str,
    rows: impl Iterator<Item = (&'a str, u64)>,
    write: impl Fn(MetricEncoder<'_>, u64) -> fmt::Result,
) -> fmt::Result {
    let mut family = out.encode_descriptor(name, help, None, kind)?;
    for (value, count) in rows {
        write(family.encode_family(&[(label, value)])?, count)?;
    }
    Ok(())
}

/// A counter.
pub(super) fn counter(out: &mut Out<'_>, name: &str, help: &str, count: u64) -> fmt::Result {
    let mut metric = out.encode_descriptor(name, help, None, COUNTER)?;
    metric.encode_counter::<NoLabelSet, _, u64>(&count, None)
}

/// A gauge.
pub(super) fn gauge(out: &mut Out<'_>, name: &str, help: &str, value: u64) -> fmt::Result {
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    out.encode_descriptor(name, help, None, GAUGE)?.encode_gauge(&value)
}

pub(super) const COUNTER: MetricType = MetricType::Counter;
pub(super) const GAUGE: MetricType = MetricType::Gauge;
pub(super) const HISTOGRAM: MetricType = MetricType::Histogram;
