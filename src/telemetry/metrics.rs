//! The metrics, read at each request from where the figures are kept.

use super::{
    DecisionLog,
    exposition::{MetricsFormat, to_prometheus},
    tls_metrics,
};
use crate::{
    config::{Config, RulesStatus},
    limiter::Limiter,
    service::{Tally, Totals},
    snapshot::SnapshotCounts,
    store::OnFull,
    transport::TlsCounts,
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, NoLabelSet, text::encode},
    metrics::MetricType,
    registry::Registry,
};
use std::{
    fmt,
    sync::{Arc, OnceLock},
};

/// Source of the figures. It exists once the counters are restored.
#[derive(Clone)]
pub struct Sources {
    /// The counts of decisions.
    pub tally: Arc<Tally>,
    /// The counters.
    pub limiter: Arc<Limiter>,
    /// The rules.
    pub config: Arc<Config>,
    /// The snapshots, where there are any.
    pub snapshots: Option<Arc<SnapshotCounts>>,
    /// TLS handshakes and certificates, with the names of the ports.
    pub tls: Vec<(&'static str, Arc<TlsCounts>)>,
    /// The decision log, where there is one.
    pub decision_log: Option<DecisionLog>,
}

/// The metrics.
pub struct Metrics {
    registry: Registry,
    sources: Arc<OnceLock<Sources>>,
}

impl Metrics {
    /// Metrics without figures.
    pub fn new() -> Self {
        let sources = Arc::new(OnceLock::new());
        let mut registry = Registry::with_prefix("tidegate");
        registry.register_collector(Box::new(Reader(Arc::clone(&sources))));
        Self { registry, sources }
    }

    /// Reads figures from these sources from now on. Only the first call has an effect.
    pub fn start(&self, sources: Sources) {
        let _ = self.sources.set(sources);
    }

    /// All metrics as text.
    pub fn text(&self, format: MetricsFormat) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string does not fail");
        match format {
            MetricsFormat::OpenMetrics => text,
            MetricsFormat::Prometheus => to_prometheus(&text),
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

struct Reader(Arc<OnceLock<Sources>>);

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reader")
    }
}

impl Collector for Reader {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        page.gauge_of("build", "Version of the server", &[("version", env!("CARGO_PKG_VERSION"))], 1_u64)?;
        let Some(sources) = self.0.get() else { return Ok(()) };
        let Sources { tally, limiter, config, snapshots, tls, decision_log } = sources;
        page.decisions(tally)?;
        page.counters(limiter)?;
        page.rules(&config.status())?;
        tls_metrics::encode(&mut page.0, tls)?;
        decision_log.as_ref().map_or(Ok(()), |log| page.decision_log(log))?;
        snapshots.as_ref().map_or(Ok(()), |snapshots| page.snapshots(snapshots))
    }
}

/// The page that is written.
struct Page<'e>(DescriptorEncoder<'e>);

type Label<'l> = (&'l str, &'l str);

impl Page<'_> {
    fn decisions(&mut self, tally: &Tally) -> fmt::Result {
        let Totals { admitted, denied, without_limit } = tally.totals();
        self.counters_of(
            "requests",
            "Requests decided, by code",
            &[([("code", "ok")], admitted), ([("code", "over_limit")], denied)],
        )?;
        let what = "Descriptors without a limit: of an unknown domain, or matched by no rule";
        self.counter("descriptors_without_limit", what, without_limit)
    }

    fn counters(&mut self, limiter: &Limiter) -> fmt::Result {
        let store = limiter.store();
        self.gauge("counters", "Counters in memory", store.counters() as u64)?;
        self.gauge("counters_max", "Maximum number of counters in memory", store.counters_max() as u64)?;
        let outcome = match store.on_full() {
            OnFull::Deny => "denied",
            OnFull::Allow => "admitted",
        };
        self.gauge("waiting", "Requests in the queues of leaky buckets", limiter.queued() as u64)?;
        let what = "Requests that needed a new counter when there was no room, by outcome";
        self.counters_of("no_room", what, &[([("outcome", outcome)], store.no_room() as u64)])
    }

    fn rules(&mut self, status: &RulesStatus) -> fmt::Result {
        self.gauge("rules_generation", "Rule sets put in force since the start", status.generation)?;
        self.gauge("rules", "Rules in force", status.rules as u64)?;
        self.gauge("rules_limits", "Limits in force", status.limits as u64)?;
        self.gauge("rules_domains", "Domains in force", status.domains as u64)?;
        let seconds = status.loaded_at.as_nanos() as f64 / 1e9;
        self.gauge("rules_last_success_timestamp_seconds", "Unix time of the last successful load", seconds)?;
        let results = [
            ([("result", "succeeded")], status.succeeded),
            ([("result", "unchanged")], status.unchanged),
            ([("result", "failed")], status.failed),
        ];
        self.counters_of("rules_reloads", "Attempts to change the rules, by result", &results)
    }

    fn decision_log(&mut self, log: &DecisionLog) -> fmt::Result {
        let results = [
            ([("result", "written")], log.written()),
            ([("result", "dropped")], log.dropped()),
            ([("result", "failed")], log.failed()),
        ];
        self.counters_of("decision_log_lines", "Lines of the decision log, by result", &results)
    }

    fn snapshots(&mut self, snapshots: &SnapshotCounts) -> fmt::Result {
        let results =
            [([("result", "written")], snapshots.passes()), ([("result", "failed")], snapshots.failures())];
        self.counters_of("snapshots", "Snapshots, by result", &results)?;
        self.counter("snapshot_bytes", "Bytes of all snapshots written", snapshots.bytes())?;
        let seconds = snapshots.last_at_nanos() as f64 / 1e9;
        let what = "Unix time of the last snapshot; 0 before the first";
        self.gauge("snapshot_last_timestamp_seconds", what, seconds)?;
        let what = "Duration of the last snapshot";
        self.gauge("snapshot_last_duration_seconds", what, snapshots.last_took().as_secs_f64())
    }

    fn gauge(&mut self, name: &str, what: &str, value: impl EncodeGaugeValue) -> fmt::Result {
        self.0.encode_descriptor(name, what, None, MetricType::Gauge)?.encode_gauge(&value)
    }

    fn gauge_of(
        &mut self,
        name: &str,
        what: &str,
        labels: &[Label<'_>; 1],
        value: impl EncodeGaugeValue,
    ) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, what, None, MetricType::Gauge)?;
        metric.encode_family(labels)?.encode_gauge(&value)
    }

    fn counter(&mut self, name: &str, what: &str, value: impl EncodeCounterValue) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, what, None, MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    fn counters_of(&mut self, name: &str, what: &str, values: &[([Label<'_>; 1], u64)]) -> fmt::Result {
        let mut metric = self.0.encode_descriptor(name, what, None, MetricType::Counter)?;
        for (labels, value) in values {
            metric.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(value, None)?;
        }
        Ok(())
    }
}
