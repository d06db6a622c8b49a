//! The metrics, read at each request from where the figures are kept.

mod limits;
mod page;
mod process;
mod server;

use self::{page::Page, process::Process};
use super::{
    DecisionLog,
    exposition::{MetricsFormat, to_prometheus},
    tls_metrics,
};
use crate::{
    config::Config,
    limiter::Limiter,
    service::{LimitCounts, Tally},
    snapshot::SnapshotCounts,
    transport::TlsCounts,
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, text::encode},
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
    /// The counts of each limit.
    pub limit_counts: Arc<LimitCounts>,
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
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Process));
        let of_tidegate = registry.sub_registry_with_prefix("tidegate");
        of_tidegate.register_collector(Box::new(Reader(Arc::clone(&sources))));
        Self { registry, sources }
    }

    /// Reads figures from these sources from now on. Only the first call has an effect.
    pub fn start(&self, sources: Sources) {
        sources.limit_counts.start_reading();
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
        let Sources { tally, limit_counts, limiter, config, snapshots, tls, decision_log } = sources;
        page.decisions(tally)?;
        page.counters(limiter)?;
        page.rules(&config.status())?;
        tls_metrics::encode(&mut page.0, tls)?;
        decision_log.as_ref().map_or(Ok(()), |log| page.decision_log(log))?;
        page.limits(limit_counts, &limiter.rules())?;
        snapshots.as_ref().map_or(Ok(()), |snapshots| page.snapshots(snapshots))
    }
}
