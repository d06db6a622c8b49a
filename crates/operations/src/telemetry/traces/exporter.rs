//! The exporter: OTLP over gRPC or HTTP. A failure is logged once, until an export succeeds again.

use super::TracesError;
use crate::telemetry::collector::{Connector, Export, Protocol, connector, grpc_tls};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response, hyper::HyperClient};
use opentelemetry_otlp::{
    ExporterBuildError, SpanExporter as Otlp, WithExportConfig as _, WithHttpConfig as _,
    WithTonicConfig as _,
};
use opentelemetry_sdk::{
    Resource,
    error::OTelSdkResult,
    trace::{SpanData, SpanExporter},
};
use std::{
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};
use tidegate_shared::without_userinfo;
use tokio::runtime::Handle;

/// Time limit of an HTTP request, in addition to the exporter's.
const HTTP_TIMEOUT: Duration = Duration::from_secs(30);

/// Exports spans and logs failures.
#[derive(Debug)]
pub(super) struct Reported {
    exporter: Otlp,
    is_failing: AtomicBool,
}

impl Reported {
    /// An exporter to the collector. It does IO on the caller's runtime. OpenTelemetry's crate reads the variables of headers itself; it
    /// gets those of the export too, because it takes an empty variable of traces for no headers.
    pub(super) fn new(export: &Export) -> Result<Self, TracesError> {
        let failed = |source| TracesError::Tls { endpoint: without_userinfo(&export.endpoint), source };
        let not_built = |error: ExporterBuildError| TracesError::Exporter(export.without_userinfo(&error));
        let exporter = match (export.protocol, &export.tls) {
            (Protocol::Grpc, tls) => {
                let grpc = Otlp::builder().with_tonic().with_protocol(opentelemetry_otlp::Protocol::Grpc);
                let grpc = grpc.with_metadata(export.metadata().map_err(|error| failed(error.into()))?);
                match tls {
                    None => grpc.build().map_err(not_built)?,
                    Some(tls) => {
                        grpc.with_tls_config(grpc_tls(tls).map_err(failed)?).build().map_err(not_built)?
                    }
                }
            }
            (Protocol::Http, tls) => {
                let connector = connector(tls.as_ref()).map_err(failed)?;
                let client = OnRuntime {
                    runtime: Handle::current(),
                    client: HyperClient::new(connector, HTTP_TIMEOUT, None),
                };
                let http = Otlp::builder().with_http().with_http_client(client);
                let http = http.with_headers(export.headers.iter().cloned().collect());
                http.with_protocol(opentelemetry_otlp::Protocol::HttpBinary).build().map_err(not_built)?
            }
        };
        Ok(Self { exporter, is_failing: AtomicBool::new(false) })
    }
}

impl SpanExporter for Reported {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let exported = self.exporter.export(batch).await;
        match &exported {
            Ok(()) if self.is_failing.swap(false, Ordering::Relaxed) => {
                tracing::info!("traces are exported again")
            }
            Ok(()) => {}
            Err(error) if !self.is_failing.swap(true, Ordering::Relaxed) => {
                tracing::warn!(%error, spans, "spans were not exported; further failures are not logged until one succeeds");
            }
            Err(_) => {}
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

type Sent = Result<Response<Bytes>, HttpError>;

/// Sends requests on a runtime, as the exporting thread has none.
#[derive(Clone, Debug)]
struct OnRuntime {
    runtime: Handle,
    client: HyperClient<Connector>,
}

impl HttpClient for OnRuntime {
    // Written out, because the trait is declared with a macro of a crate that is no dependency here.
    fn send_bytes<'s, 'f>(
        &'s self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Sent> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        let client = self.client.clone();
        let sent = self.runtime.spawn(async move { client.send_bytes(request).await });
        Box::pin(async move { sent.await? })
    }
}
