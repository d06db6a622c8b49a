//! HTTP/1.1 on one connection.

use super::{
    ClientAddress, HttpBounds,
    timed_stream::{Phase, PhaseTimes, Progress, TimedStream},
};
use axum::{Router, body::Body};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use std::{
    convert::Infallible,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::codegen::Service as _;

/// Serves the connection until it ends, or until the request in progress when `drain` completes is answered.
pub(crate) async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    client: Arc<str>,
    router: Router,
    bounds: HttpBounds,
    progress: Arc<Progress>,
    requests: Arc<AtomicU64>,
    drain: impl Future<Output = ()>,
) -> Result<(), hyper::Error> {
    let times = PhaseTimes { idle: bounds.idle_timeout, message: bounds.timeout };
    let stream = TimedStream::new(stream, Arc::clone(&progress), times);
    let service = service_fn(|mut request: hyper::Request<Incoming>| {
        progress.enter(Phase::Handling);
        progress.set_recency(requests.fetch_add(1, Relaxed) + 1);
        request.extensions_mut().insert(ClientAddress(Arc::clone(&client)));
        let response = router.clone().call(request.map(Body::new));
        let progress = Arc::clone(&progress);
        async move {
            let response = response.await;
            progress.enter(Phase::Writing);
            response as Result<_, Infallible>
        }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .max_header_size(bounds.header_bytes_max)
            // The stream bounds it, together with the other times.
            .header_read_timeout(None)
            .serve_connection(TokioIo::new(stream), service)
    );
    tokio::select! {
        ended = connection.as_mut() => return ended,
        () = drain => connection.as_mut().graceful_shutdown(),
    }
    connection.await
}
