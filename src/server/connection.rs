//! One HTTP/2 connection: served until it ends by itself, or until the drain asks it to.

use super::listen::{Registered, Stream};
use crate::grpc::Front;
use http::Request;
use hyper::{body::Incoming, server::conn::http2, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::{convert::Infallible, pin::pin, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::watch,
};

/// True once connections are to end.
pub(super) type Drain = watch::Receiver<bool>;

/// The bounds of a connection. The defaults fit Envoy, which opens one connection a worker thread with many streams each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Http2Settings {
    /// Requests under way at once.
    pub streams_max: u32,
    /// Bytes of one request's headers.
    pub header_bytes_max: u32,
    /// How long a connection may be silent before it is pinged.
    pub keep_alive_interval: Duration,
    /// How long it may take to answer the ping before it is closed.
    pub keep_alive_timeout: Duration,
}

impl Default for Http2Settings {
    fn default() -> Self {
        Self {
            streams_max: 1024,
            header_bytes_max: 16 * 1024,
            keep_alive_interval: Duration::from_secs(60),
            keep_alive_timeout: Duration::from_secs(20),
        }
    }
}

/// Serves the connection. What goes wrong on it concerns its client alone.
pub(super) async fn serve(stream: Stream, front: Arc<Front>, settings: Http2Settings, drain: Drain) {
    let served = match stream.register() {
        Ok(Registered::Tcp(stream)) => serve_io(stream, front, settings, drain).await,
        Ok(Registered::Unix(stream)) => serve_io(stream, front, settings, drain).await,
        Err(error) => {
            tracing::warn!(%error, "cannot register a connection; it is closed");
            return;
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn serve_io(
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    front: Arc<Front>,
    settings: Http2Settings,
    mut drain: Drain,
) -> hyper::Result<()> {
    let service = service_fn(move |request: Request<Incoming>| {
        let front = Arc::clone(&front);
        async move { Ok::<_, Infallible>(front.answer(request).await) }
    });
    let connection = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .max_concurrent_streams(settings.streams_max)
        // After a pause of the machine a proxy cancels all that it asked meanwhile, at once. That is no attack: ending
        // the connection for it would fail the requests that are still wanted.
        .max_pending_accept_reset_streams(settings.streams_max as usize)
        .max_header_list_size(settings.header_bytes_max)
        .keep_alive_interval(settings.keep_alive_interval)
        .keep_alive_timeout(settings.keep_alive_timeout)
        .serve_connection(TokioIo::new(io), service);
    let mut connection = pin!(connection);
    tokio::select! {
        ended = connection.as_mut() => return ended,
        // An error means that the server is gone, which ends the connection too.
        _ = drain.wait_for(|draining| *draining) => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}
