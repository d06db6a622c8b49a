//! One connection: served until it ends by itself, or until the drain asks it to.

use super::listen::{Registered, Stream};
use crate::{
    api::GrpcPort,
    http2::{self, Http2Settings},
};
use std::sync::Arc;
use tokio::sync::watch;

/// True once connections are to end.
pub(super) type Drain = watch::Receiver<bool>;

/// Serves the connection. What goes wrong on it concerns its client alone.
pub(super) async fn serve(stream: Stream, front: Arc<GrpcPort>, settings: Http2Settings, mut drain: Drain) {
    let drain = async move {
        // An error means that the server is gone, which ends the connection too.
        let _ = drain.wait_for(|draining| *draining).await;
    };
    let served = match stream.register() {
        Ok(Registered::Tcp(stream)) => http2::serve(stream, front, settings, drain).await,
        Ok(Registered::Unix(stream)) => http2::serve(stream, front, settings, drain).await,
        Err(error) => {
            tracing::warn!(%error, "cannot register a connection; it is closed");
            return;
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended early");
    }
}
