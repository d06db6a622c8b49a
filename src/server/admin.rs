//! The admin listener: HTTP/1.1 pages for operators and their monitoring.

use crate::transport::{Accepted, Listener, Stream};
use axum::serve::Listener as AxumListener;
use std::time::Duration;

/// Pause after a failed accept: the process is most likely out of file descriptors.
pub(super) const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Serves the admin pages for as long as it is polled.
pub(super) async fn serve(listener: Listener, pages: axum::Router) {
    if let Err(error) = axum::serve(AdminListener(listener), pages).await {
        tracing::warn!(%error, "admin HTTP listener failed");
    }
}

struct AdminListener(Listener);

impl AxumListener for AdminListener {
    type Io = Stream;
    /// The pages do not depend on the client's address.
    type Addr = ();

    async fn accept(&mut self) -> (Stream, ()) {
        loop {
            match self.0.accept().await.and_then(Accepted::register) {
                Ok(stream) => return (stream, ()),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept an admin connection; retrying");
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<()> {
        Ok(())
    }
}
