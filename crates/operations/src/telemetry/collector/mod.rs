//! The OpenTelemetry collector to which traces and metrics are exported: its variables, connections, and the attributes of this process.

mod variables;

pub use variables::OtlpVariableError;
pub(super) use variables::{Environment, Export, Protocol, Signal};

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use opentelemetry_sdk::Resource;
use std::{error::Error, io, path::Path, sync::OnceLock};
use tidegate_transport::{TlsClient, read_pem};
use tonic::transport::{Certificate, ClientTlsConfig, Identity};

/// Any error of a connection.
pub(super) type AnyError = Box<dyn Error + Send + Sync>;

/// Connects to collectors by HTTP.
pub(super) type Connector = HttpsConnector<HttpConnector>;

/// TLS of a connection by gRPC. Without a file of authorities, the machine's authorities are trusted.
pub(super) fn grpc_tls(TlsClient { ca, cert_and_key, .. }: &TlsClient) -> Result<ClientTlsConfig, AnyError> {
    let read = |path: &Path| {
        read_pem(path).map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", path.display())))
    };
    let mut config = ClientTlsConfig::new();
    config = match ca {
        Some(path) => config.ca_certificate(Certificate::from_pem(read(path)?)),
        None => config.with_native_roots(),
    };
    if let Some((cert, key)) = cert_and_key {
        config = config.identity(Identity::from_pem(read(cert)?, read(key)?));
    }
    Ok(config)
}

/// Connects by HTTP, with TLS if the endpoint is `https`.
pub(super) fn connector(tls: Option<&TlsClient>) -> Result<Connector, AnyError> {
    let config = match tls {
        Some(tls) => tls.config_or_system_authorities()?,
        None => TlsClient::config_without_authorities()?,
    };
    Ok(HttpsConnectorBuilder::new().with_tls_config(config).https_or_http().enable_http1().build())
}

/// The id of this process: a random UUID, the same for traces and metrics.
fn instance_id() -> &'static str {
    static ID: OnceLock<String> = OnceLock::new();
    ID.get_or_init(|| {
        // Without randomness the id may not be unique. No decision depends on it.
        let random = || getrandom::u64().unwrap_or_default();
        let (high, low) = (random() & !0xf000 | 0x4000, random() >> 2 | 1 << 63);
        let [first, second, third] = [high >> 32, high >> 16 & 0xffff, high & 0xffff];
        format!("{first:08x}-{second:04x}-{third:04x}-{:04x}-{:012x}", low >> 48, low & 0xffff_ffff_ffff)
    })
}

/// Attributes of the process, from OpenTelemetry's variables and its SDK.
pub(super) fn resource(export: &Export) -> Resource {
    let mut resource = Resource::builder()
        .with_attribute(opentelemetry::KeyValue::new("service.version", env!("CARGO_PKG_VERSION")));
    if !export.has_instance_id {
        resource =
            resource.with_attribute(opentelemetry::KeyValue::new("service.instance.id", instance_id()));
    }
    match export.has_service_name {
        true => resource.build(),
        false => resource.with_service_name("tidegate").build(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Backends distinguish the processes of a service by the id.
    #[test]
    fn a_process_without_an_instance_id_has_a_random_one_that_stays() {
        let id = instance_id();
        let lengths: Vec<usize> = id.split('-').map(str::len).collect();
        assert_eq!((&*lengths, &id[14..15]), (&[8, 4, 4, 4, 12][..], "4"), "{id}");
        assert_eq!(instance_id(), id);
    }
}
