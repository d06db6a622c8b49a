//! Settings of the server, and of its rules.

use super::{ConnectionBounds, TlsSettings, quota_record::QuotaRecordSettings};
use crate::api::{LongLivedBounds, TestClock, XdsSettings, http::HttpSettings};
use std::{num::NonZeroUsize, sync::Arc, time::Duration};
use tidegate_core::{
    limit::{RequestLimits, Timestamp},
    rules::{LoadOptions, RuleErrors, RuleFilePaths, Source},
};
use tidegate_http2::{BodyMemory, Http2Settings};
use tidegate_operations::{
    config::{Feed, KeptRules, ReloadRequests, watch::WatchSettings},
    control::{ControlSettings, Reach},
    telemetry::{DecisionLog, OtlpSettings, StatsdSettings},
};
use tidegate_service::{MeterSettings, ResponseOptions};
use tidegate_shared::store::SharedStore;
use tidegate_transport::ListenAddress;

/// Settings of the server.
#[derive(Clone)]
pub struct Settings {
    /// Addresses of the gRPC port; at least one.
    pub listen: Vec<ListenAddress>,
    /// The service that sets the clock; in tests only.
    pub test_clock: Option<TestClock>,
    /// Addresses of the HTTP port, if any.
    pub http_listen: Vec<ListenAddress>,
    /// The HTTP port.
    pub http: HttpSettings,
    /// TLS of both ports.
    pub tls: TlsSettings,
    /// The rules of the limiter at the start, and the sources of later ones.
    pub rules: RuleSettings,
    /// The decision log, if any.
    pub decision_log: Option<DecisionLog>,
    /// Worker threads.
    pub threads: NonZeroUsize,
    /// Bounds of a request message.
    pub request_limits: RequestLimits,
    /// Optional content of responses besides the code and the statuses.
    pub response_options: ResponseOptions,
    /// The figures for metrics.
    pub meters: MeterSettings,
    /// The control API; none if it is off.
    pub control: Option<ControlSettings>,
    /// The places from which credits may be held; none if no leases are granted.
    pub leases: Option<Reach>,
    /// The store of shared counters, if there is one.
    pub shared_store: Option<Arc<SharedStore>>,
    /// Push of metrics to statsd, if any.
    pub statsd: Option<StatsdSettings>,
    /// Push of metrics by OTLP, if any.
    pub otlp_metrics: Option<OtlpSettings>,
    /// Bytes of one gRPC message before it is decoded.
    pub message_bytes_max: usize,
    /// Bounds on the number of connections.
    pub connections: ConnectionBounds,
    /// Calls that stay open (Health/Watch, reflection).
    pub long_lived_calls: LongLivedBounds,
    /// Bounds of each connection.
    pub http2: Http2Settings,
    /// Memory for incomplete requests, of both ports.
    pub body_memory: Arc<BodyMemory>,
    /// The most bytes of memory for quotas.
    pub quota_memory: usize,
    /// The place where quotas record assignments, if there is a data directory.
    pub quota_record: Option<QuotaRecordSettings>,
    /// Time between health turning NOT_SERVING and GOAWAY.
    pub drain_delay: Duration,
    /// Time that connections have to end after GOAWAY.
    pub drain_timeout: Duration,
    /// Interval between snapshots, where there is a writer.
    pub snapshot_interval: Duration,
    /// Line that is printed once requests are decided, if any.
    pub greeting: Option<String>,
}

impl Settings {
    /// Whether anything reads the metrics; else nothing is counted.
    pub(super) fn is_measured(&self) -> bool {
        !self.http_listen.is_empty()
            || self.control.is_some()
            || self.statsd.is_some()
            || self.otlp_metrics.is_some()
    }
}

/// The rules of the limiter at the start, and the sources of later ones.
#[derive(Clone, Debug, Default)]
pub struct RuleSettings {
    /// Options for reading rule files.
    pub options: LoadOptions,
    /// The documents that the limiter's rules were built from, those of blocks included.
    pub sources: Vec<Source>,
    /// The files and directories to read again when they change; none if the rules are not from files.
    pub files: RuleFilePaths,
    /// The files and directories of blocks.
    pub block_files: RuleFilePaths,
    /// Detection of changes.
    pub watch: WatchSettings,
    /// Requests to read these files, and certificates, again.
    pub reload: ReloadRequests,
    /// Keeps the rules for a later start; none without a data directory.
    pub kept: Option<KeptRules>,
    /// Feeds whose rules are from a former process: see [`began_with_kept`](tidegate_operations::config::Config::began_with_kept).
    pub began_with_kept: Vec<(Feed, Timestamp, Option<RuleErrors>)>,
    /// A control plane that sends rules, if any.
    pub xds: Option<XdsSettings>,
    /// The behaviour of the server before the first load.
    pub first: FirstRules,
    /// Whether health is NOT_SERVING while no domain has rules.
    pub health_needs_rules: bool,
}

/// Whether the limiter has rules at the start. Until it has, requests are refused with UNAVAILABLE.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FirstRules {
    /// It has.
    #[default]
    Loaded,
    /// A feed will load them.
    Awaited {
        /// Whether health is SERVING meanwhile.
        is_healthy: bool,
    },
}
