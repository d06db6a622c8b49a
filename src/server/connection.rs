//! Serves one connection until it ends, or until the drain ends it.

use super::tls::TlsOnPlaintext;
use crate::api::GrpcPort;
use std::sync::Arc;
use tidegate_http2::{Activity, ConnectionCounts, Http2Settings};
use tidegate_transport::Accepted;
use tokio::sync::watch;

/// True once connections have to end.
pub(super) type Drain = watch::Receiver<bool>;

/// Serves the connection. Its errors concern its client alone.
pub(super) async fn serve(
    accepted: Accepted,
    port: Arc<GrpcPort>,
    settings: Http2Settings,
    (activity, counts): (Arc<Activity>, Option<Arc<ConnectionCounts>>),
    mut drain: Drain,
    tls_on_plaintext: TlsOnPlaintext,
) {
    let drain = async move {
        // An error means that the sender was dropped with the server, which ends the connection too.
        let _ = drain.wait_for(|draining| *draining).await;
    };
    let peer = accepted.peer;
    let port = port.for_peer(accepted.peer.to_string(), accepted.names());
    let stream = match accepted.register() {
        Ok(stream) => stream,
        Err(error) => {
            tracing::warn!(%error, "cannot register a connection with its runtime; closing it");
            return;
        }
    };
    // Without randomness, ages have no jitter.
    let settings = settings.with_age_jitter(getrandom::u64().unwrap_or(1 << 63));
    if let Err(error) = tidegate_http2::serve(stream, port, settings, activity, counts, drain).await {
        if tidegate_http2::is_tls_client(&error) {
            tls_on_plaintext.report(peer);
        }
        tracing::debug!(%error, "connection failed");
    }
}
