//! Metrics of TLS: handshakes by result, reloads of certificates, and the end of their validity.

use crate::transport::{HandshakeResult, TlsCounts};
use prometheus_client::{
    encoding::{DescriptorEncoder, NoLabelSet},
    metrics::MetricType,
};
use std::{fmt, sync::Arc};

/// Writes the metrics of the ports. A port without TLS has only the count of clients that expect it.
pub(super) fn encode(
    encoder: &mut DescriptorEncoder<'_>,
    ports: &[(&'static str, Arc<TlsCounts>)],
) -> fmt::Result {
    let with_tls = || ports.iter().filter_map(|(port, counts)| Some((*port, counts, counts.not_after()?)));
    let what = "TLS handshakes, by port and result";
    let mut family = encoder.encode_descriptor("tls_handshakes", what, None, MetricType::Counter)?;
    for (port, counts) in ports {
        for result in HandshakeResult::ALL {
            // The HTTP port answers such clients by HTTP, and counts nothing.
            let is_shown = match result {
                HandshakeResult::TlsOnPlaintextPort => *port == "grpc" && counts.not_after().is_none(),
                _ => counts.not_after().is_some(),
            };
            if is_shown {
                let labels = [("port", *port), ("result", result.label())];
                let count = counts.handshakes(result);
                family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
    }
    let what = "Unix time at which the certificate in force expires";
    let name = "tls_certificate_not_after_timestamp_seconds";
    let mut family = encoder.encode_descriptor(name, what, None, MetricType::Gauge)?;
    for (port, _, not_after) in with_tls() {
        family.encode_family(&[("port", port)])?.encode_gauge(&not_after)?;
    }
    let what = "Reloads of the certificate, by result; after a failed one the certificate in force stays";
    let mut family = encoder.encode_descriptor("tls_certificate_reloads", what, None, MetricType::Counter)?;
    for (port, counts, _) in with_tls() {
        for (result, count) in [("succeeded", counts.reloads()), ("failed", counts.failed_reloads())] {
            let labels = [("port", port), ("result", result)];
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
    }
    Ok(())
}
