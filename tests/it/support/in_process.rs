//! A server in this process, with a clock that the test sets and a real socket.

use super::{Client, limiter};
use std::{num::NonZeroUsize, os::unix::net::UnixStream, path::PathBuf, sync::Arc, thread, time::Duration};
use tempfile::TempDir;
use tidegate::{
    api::{LongLivedBounds, pb::service::rate_limit_service_client::RateLimitServiceClient},
    server::{
        self, ConnectionBounds, FirstRules, HttpSettings, ListenAddress, RuleSettings, ServeError, Settings,
        Start, TlsSettings,
    },
};
use tidegate_core::{
    clock::{Clock, ManualClock},
    limit::{RequestLimits, Timestamp},
    rules::RuleFilePaths,
};
use tidegate_http2::{BodyMemory, Http2Settings};
use tidegate_operations::control::Reach;
use tidegate_service::{MeterSettings, ResponseOptions};
use tokio::sync::oneshot;
use tonic::transport::{Channel, Endpoint};

/// A running server; stopped, and waited for, when dropped.
pub struct InProcess {
    /// Moves only when the test moves it.
    pub clock: Arc<ManualClock>,
    /// The folder that contains the socket.
    folder: TempDir,
    stop: Option<oneshot::Sender<()>>,
    serving: Option<thread::JoinHandle<Result<(), ServeError>>>,
}

impl InProcess {
    /// Serves these rules, with a clock that stands at `start`.
    pub fn start(yaml: &str, start: Timestamp) -> Self {
        Self::start_with(Start::Fresh(Box::new(limiter(yaml))), start)
    }

    /// Serves these rules to holders of credits too, with a clock that stands at `start`.
    pub fn granting(yaml: &str, start: Timestamp) -> Self {
        let counters = Start::Fresh(Box::new(limiter(yaml)));
        Self::serve(counters, start, Some(Reach::Loopback), RuleSettings::default())
    }

    /// Serves from these counters, with a clock that stands at `start`.
    pub fn start_with(counters: Start<ServeError>, start: Timestamp) -> Self {
        Self::serve(counters, start, None, RuleSettings::default())
    }

    /// Serves from these counters once it has read the rules of a file.
    pub fn awaiting_rules(counters: Start<ServeError>, rules: PathBuf, start: Timestamp) -> Self {
        let files = RuleFilePaths { paths: vec![rules], ..RuleFilePaths::default() };
        let first = FirstRules::Awaited { is_healthy: false };
        Self::serve(counters, start, None, RuleSettings { files, first, ..RuleSettings::default() })
    }

    fn serve(
        counters: Start<ServeError>,
        start: Timestamp,
        leases: Option<Reach>,
        rules: RuleSettings,
    ) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let socket = folder.path().join("tidegate.sock");
        let settings = Settings {
            body_memory: BodyMemory::new(64 << 20),
            quota_memory: 64 << 20,
            quota_record: None,
            test_clock: None,
            decision_log: None,
            control: None,
            leases,
            shared_store: None,
            listen: vec![ListenAddress::Unix(socket.clone())],
            http_listen: Vec::new(),
            http: HttpSettings::default(),
            tls: TlsSettings::default(),
            rules,
            threads: NonZeroUsize::MIN,
            request_limits: RequestLimits::default(),
            response_options: ResponseOptions::default(),
            meters: MeterSettings::default(),
            statsd: None,
            otlp_metrics: None,
            message_bytes_max: 64 << 10,
            connections: ConnectionBounds { max: 16, per_peer_max: 16 },
            long_lived_calls: LongLivedBounds::default(),
            http2: Http2Settings::default(),
            drain_delay: Duration::ZERO,
            // While the server stops, the test's runtime stands still, and its connections cannot end by themselves.
            drain_timeout: Duration::ZERO,
            snapshot_interval: Duration::from_secs(10),
            greeting: None,
        };
        let clock = Arc::new(ManualClock::new(start));
        let its_clock = Arc::clone(&clock) as Arc<dyn Clock>;
        let (stop, stopped) = oneshot::channel();
        let until_stopped = move || Ok(async { _ = stopped.await });
        let serving = thread::spawn(move || server::serve(&settings, &its_clock, counters, until_stopped));
        while UnixStream::connect(&socket).is_err() {
            assert!(!serving.is_finished(), "the server did not start");
            thread::sleep(Duration::from_millis(1));
        }
        Self { clock, folder, stop: Some(stop), serving: Some(serving) }
    }

    /// A connected client.
    pub async fn client(&self) -> Client {
        Client(RateLimitServiceClient::new(self.channel().await))
    }

    /// A connection, for clients of any service.
    pub async fn channel(&self) -> Channel {
        let address = format!("unix:{}", self.folder.path().join("tidegate.sock").display());
        let endpoint = Endpoint::from_shared(address).expect("unix:path");
        endpoint.connect().await.expect("the server accepts")
    }
}

impl Drop for InProcess {
    fn drop(&mut self) {
        // The server may have failed already; joining it reports that.
        _ = self.stop.take().map(|stop| stop.send(()));
        let served = self.serving.take().map(thread::JoinHandle::join);
        if !thread::panicking() {
            served.expect("joined once").expect("serving does not panic").expect("a server that stops well");
        }
    }
}
