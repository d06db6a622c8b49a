//! Metrics pushed by OTLP, over gRPC or HTTP, as the environment variables of OpenTelemetry configure it.
//!
//! OpenTelemetry's SDK cannot export histograms that were counted elsewhere. The messages are therefore made here, and sent by its clients.

mod messages;
mod variables;

pub use variables::OtlpSettings;

use super::{LAST_PUSH_TIMEOUT, Metrics};
use crate::telemetry::collector::{self, AnyError, Connector, Export, Protocol, connector, grpc_tls};
use messages::{OtlpSink, Period, attribute};
use opentelemetry_http::{Bytes, HttpClient, hyper::HyperClient};
use opentelemetry_proto::tonic::{
    collector::metrics::v1::{ExportMetricsServiceRequest, metrics_service_client::MetricsServiceClient},
    common::v1::InstrumentationScope,
    metrics::v1::{Metric, ResourceMetrics, ScopeMetrics},
    resource::v1::Resource,
};
use prost::Message;
use std::{io, sync::Arc, time::Duration};
use tidegate_core::clock::Clock;
use tidegate_shared::without_userinfo;
use tidegate_threads::{BackgroundThread, Priority, StoppableThread, runtime};
use tokio::sync::oneshot;
use tonic::transport::{Channel, Endpoint};

/// The thread that pushes.
pub struct OtlpMetrics(StoppableThread);

impl OtlpMetrics {
    /// Starts to push.
    pub fn start(settings: OtlpSettings, metrics: Arc<Metrics>, clock: &Arc<dyn Clock>) -> io::Result<Self> {
        let OtlpSettings { export, url, interval, .. } = &settings;
        tracing::info!(endpoint = without_userinfo(url), protocol = %export.protocol, ?interval, "pushing metrics by OTLP");
        let runtime = runtime()?;
        let client = {
            // The channel starts its task on the runtime.
            let _entered = runtime.enter();
            Client::new(&settings)?
        };
        let clock = Arc::clone(clock);
        let (start, resource) = (clock.now().as_nanos(), resource(export));
        let mut pusher = Pusher { settings, metrics, clock, start, resource, client, is_failing: false };
        let (stop, mut stopped) = oneshot::channel::<()>();
        let run = async move || {
            while tokio::time::timeout(pusher.settings.interval, &mut stopped).await.is_err() {
                pusher.push().await;
            }
            pusher.settings.timeout = pusher.settings.timeout.min(LAST_PUSH_TIMEOUT);
            pusher.push().await;
        };
        let thread = BackgroundThread::start_on(runtime, "otlp-metrics", Priority::Low, run)?;
        Ok(Self(thread.stopped_by(stop)))
    }

    /// Returns the error that would keep the push that the environment configures from starting, except errors in the variables. Requires a
    /// tokio runtime.
    pub fn check() -> io::Result<()> {
        match OtlpSettings::from_env() {
            Ok(Some(settings)) => Client::new(&settings).map(drop),
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Pushes once more, and ends.
    pub fn stop(self) {
        drop(self.0);
    }
}

/// Attributes of the process, in a message.
fn resource(export: &Export) -> Resource {
    let resource = collector::resource(export);
    let attributes = resource.iter().map(|(key, value)| attribute(key.as_str(), &value.as_str())).collect();
    Resource { attributes, ..Resource::default() }
}

enum Client {
    Grpc(MetricsServiceClient<Channel>),
    Http(Box<HyperClient<Connector>>),
}

impl Client {
    fn new(settings: &OtlpSettings) -> io::Result<Self> {
        let failed = |error: AnyError| io::Error::other(settings.export.without_userinfo(&error));
        Self::try_new(settings).map_err(failed)
    }

    fn try_new(settings: &OtlpSettings) -> Result<Self, AnyError> {
        Ok(match settings.export.protocol {
            Protocol::Grpc => {
                let mut endpoint = Endpoint::from_shared(settings.url.clone())?;
                if let Some(tls) = &settings.export.tls {
                    endpoint = endpoint.tls_config(grpc_tls(tls)?)?;
                }
                Self::Grpc(MetricsServiceClient::new(endpoint.connect_lazy()))
            }
            Protocol::Http => {
                let connector = connector(settings.export.tls.as_ref())?;
                Self::Http(Box::new(HyperClient::new(connector, settings.timeout, None)))
            }
        })
    }

    async fn send(
        &mut self,
        message: ExportMetricsServiceRequest,
        settings: &OtlpSettings,
    ) -> Result<(), AnyError> {
        match self {
            Self::Grpc(client) => {
                let metadata = settings.export.metadata()?;
                let request = tonic::Request::from_parts(metadata, Default::default(), message);
                client.export(request).await?;
            }
            Self::Http(client) => {
                let mut request = http::Request::post(&*settings.url)
                    .header(http::header::CONTENT_TYPE, "application/x-protobuf");
                for (name, value) in &settings.export.headers {
                    request = request.header(name, value);
                }
                let response = client.send_bytes(request.body(Bytes::from(message.encode_to_vec()))?).await?;
                if !response.status().is_success() {
                    return Err(format!("the receiver responded {}", response.status()).into());
                }
            }
        }
        Ok(())
    }
}

struct Pusher {
    settings: OtlpSettings,
    metrics: Arc<Metrics>,
    clock: Arc<dyn Clock>,
    /// Start of the counters, in nanoseconds since the Unix epoch.
    start: u64,
    resource: Resource,
    client: Client,
    is_failing: bool,
}

impl Pusher {
    async fn push(&mut self) {
        match self.try_push().await {
            Ok(()) if std::mem::take(&mut self.is_failing) => {
                tracing::info!("metrics are pushed by OTLP again")
            }
            Ok(()) => {}
            Err(error) if !std::mem::replace(&mut self.is_failing, true) => tracing::warn!(
                error,
                endpoint = without_userinfo(&self.settings.url),
                "metrics were not pushed by OTLP; further failures are not logged until a push succeeds"
            ),
            Err(_) => {}
        }
    }

    async fn try_push(&mut self) -> Result<(), AnyError> {
        let mut sink = OtlpSink::new(Period { start: self.start, now: self.clock.now().as_nanos() });
        self.metrics.write(&mut sink)?;
        for metrics in sink.messages {
            let message = self.message(metrics);
            let limit: Duration = self.settings.timeout;
            tokio::time::timeout(limit, self.client.send(message, &self.settings)).await??;
        }
        Ok(())
    }

    fn message(&self, metrics: Vec<Metric>) -> ExportMetricsServiceRequest {
        let scope = InstrumentationScope {
            name: "tidegate".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            ..InstrumentationScope::default()
        };
        let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics, ..ScopeMetrics::default() }];
        let resource = Some(self.resource.clone());
        let resource_metrics =
            vec![ResourceMetrics { resource, scope_metrics, ..ResourceMetrics::default() }];
        ExportMetricsServiceRequest { resource_metrics }
    }
}
