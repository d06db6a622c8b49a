//! The metrics. Each request reads the figures where they are kept.

mod connections;
mod family;
mod files;
mod granter;
mod limit_series;
mod limitador;
mod limits;
mod otlp;
mod page;
mod process;
mod quotas;
mod reference;
mod reference_statsd;
mod server;
mod shared_store;
mod sink;
mod statsd;
mod text;
mod tls;

pub use otlp::{OtlpMetrics, OtlpSettings};
pub use process::resident_bytes;
pub use statsd::{Statsd, StatsdFormat, StatsdSettings, StatsdTransport};

use self::{limit_series::LastSeries, page::Page, reference::ReferenceFigures, sink::Sink, text::TextSink};
use super::{Build, DecisionLog, exposition::MetricsFormat};
use crate::config::{Config, ControlPlaneCounts};
use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tidegate_core::limiter::Limiter;
use tidegate_counts::LastAttempt;
use tidegate_http2::ConnectionCounts;
use tidegate_service::{Grants, Meters, Quotas};
use tidegate_shared::store::{SharedStore, StoreEvent};
use tidegate_snapshot::SnapshotCounts;
use tidegate_transport::TlsCounts;

/// Longest time of the export of the last metrics, and of the last spans, at a stop.
pub const LAST_PUSH_TIMEOUT: Duration = Duration::from_secs(5);

/// Sources of the figures. They exist once the counters are restored.
#[derive(Clone)]
pub struct Sources {
    /// The figures of decisions.
    pub meters: Arc<Meters>,
    /// The counts of connections.
    pub connections: Arc<ConnectionCounts>,
    /// Memory that the process may use, if known.
    pub memory_max: Option<u64>,
    /// The counters.
    pub limiter: Arc<Limiter>,
    /// The rules.
    pub config: Arc<Config>,
    /// The connection to a control plane, if rules are from one.
    pub control_plane: Option<Arc<ControlPlaneCounts>>,
    /// The snapshots, if there are any.
    pub snapshots: Option<Arc<SnapshotCounts>>,
    /// TLS handshakes and certificates, with the names of the ports.
    pub tls: Vec<(&'static str, Arc<TlsCounts>)>,
    /// The last reload of the file of bearer tokens, if there is one.
    pub token_file: Option<Arc<LastAttempt>>,
    /// The decision log, if there is one.
    pub decision_log: Option<DecisionLog>,
    /// The store of shared counters, if there is one.
    pub shared_store: Option<Arc<SharedStore>>,
    /// The leases of the counters, if they are granted.
    pub grants: Option<Grants>,
    /// The clients that enforce limits by themselves.
    pub quotas: Quotas,
}

/// The metrics.
pub struct Metrics {
    build: Build,
    sources: OnceLock<Sources>,
    series: LastSeries,
}

impl Metrics {
    /// The metrics of a server of this build, without sources yet.
    pub fn new(build: Build) -> Self {
        Self { build, sources: OnceLock::new(), series: LastSeries::default() }
    }

    /// Sets the sources of figures. Only the first call has an effect.
    pub fn start(&self, sources: Sources) {
        let _ = self.sources.set(sources);
    }

    /// Writes all metrics.
    fn write(&self, sink: &mut dyn Sink) -> fmt::Result {
        self.write_own(sink)?;
        if let Some(Sources { meters, shared_store, .. }) = self.sources.get()
            && let Some(counts) = &meters.limitador
        {
            let is_partitioned = shared_store.as_ref().is_some_and(|store| !store.health().is_available);
            Page::new(sink, "").limitador(counts, is_partitioned)?;
        }
        self.reference().map_or(Ok(()), |figures| Page::new(sink, "ratelimit_service_").reference(&figures))
    }

    /// Writes all metrics except those of the reference server. Without sources, only those of the process.
    fn write_own(&self, sink: &mut dyn Sink) -> fmt::Result {
        Page::new(sink, "").process()?;
        let mut page = Page::new(sink, "tidegate_");
        let labels = [("version", self.build.version), ("commit", self.build.commit)];
        page.family("build_info", &[(labels, 1_u64.into())])?;
        let Some(sources) = self.sources.get() else { return Ok(()) };
        let Sources { meters, connections, limiter, config, tls, shared_store, .. } = sources;
        page.decisions(meters)?;
        page.connections(connections)?;
        page.refused_requests(meters, connections)?;
        let lost = |store: &Arc<SharedStore>| store.counts.events.sum(StoreEvent::LostReservation);
        page.counters(limiter, sources.memory_max, shared_store.as_ref().map_or(0, lost))?;
        page.rules(&config.status())?;
        sources.control_plane.as_ref().map_or(Ok(()), |counts| page.control_plane(counts))?;
        page.tls(tls)?;
        page.files(tls, sources.token_file.as_deref())?;
        sources.decision_log.as_ref().map_or(Ok(()), |log| page.decision_log(log))?;
        shared_store.as_ref().map_or(Ok(()), |store| page.shared_store(store))?;
        sources.grants.as_ref().and_then(Grants::granter).map_or(Ok(()), |granter| page.granter(granter))?;
        page.quotas(sources.quotas.figures())?;
        let rules = limiter.rules();
        let series = self.series.of(&rules);
        page.limits(&meters.limits, &rules, &series)?;
        page.slots_by_limit(limiter, &series)?;
        sources.snapshots.as_ref().map_or(Ok(()), |snapshots| page.snapshots(snapshots))
    }

    /// The figures of the reference server, if they are configured.
    fn reference(&self) -> Option<ReferenceFigures> {
        let Sources { meters, config, .. } = self.sources.get()?;
        ReferenceFigures::read(meters, &config.status())
    }

    /// Writes all metrics as text, in pieces of about 64 KiB, until `send` returns an error.
    pub fn write_text(
        &self,
        format: MetricsFormat,
        send: &mut dyn FnMut(String) -> fmt::Result,
    ) -> fmt::Result {
        let mut sink = TextSink::new(format, send);
        self.write(&mut sink)?;
        sink.finish()
    }

    /// All metrics as text.
    pub fn text(&self, format: MetricsFormat) -> String {
        let mut text = String::new();
        let mut add = |piece: String| fmt::Write::write_str(&mut text, &piece);
        self.write_text(format, &mut add).expect("writing to a string does not fail");
        text
    }
}
