//! The admin listener: HTTP/1.1 pages for operators and their monitoring.

use crate::transport::{Accepted, Stream};
use axum::serve::Listener as AxumListener;
use std::time::Duration;
use tokio::sync::mpsc;

/// Pause after a failed accept: the process is most likely out of file descriptors.
pub(super) const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Serves the admin pages for as long as it is polled.
pub(super) async fn serve(connections: mpsc::Receiver<Accepted>, pages: axum::Router) {
    if let Err(error) = axum::serve(AdminListener(connections), pages).await {
        tracing::warn!(%error, "admin HTTP listener failed");
    }
}

/// Connections that are ready to be served.
struct AdminListener(mpsc::Receiver<Accepted>);

impl AxumListener for AdminListener {
    type Io = Stream;
    /// The pages do not depend on the client's address.
    type Addr = ();

    async fn accept(&mut self) -> (Stream, ()) {
        loop {
            match self.0.recv().await.map(Accepted::register) {
                Some(Ok(stream)) => return (stream, ()),
                Some(Err(error)) => tracing::warn!(%error, "cannot register an admin connection; closing it"),
                // The server is draining.
                None => std::future::pending().await,
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<()> {
        Ok(())
    }
}
