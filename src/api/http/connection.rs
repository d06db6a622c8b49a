//! HTTP/1.1 on one connection.

use super::{
    refused,
    state::{HttpState, RequestProgress},
    timed_stream::{Phase, PhaseTimes, Progress, TimedStream},
};
use crate::api::client::Client;
use axum::{
    Router,
    body::Body,
    http::StatusCode,
    response::{IntoResponse as _, Response},
};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use std::{
    convert::Infallible,
    error::Error,
    io,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};
use tidegate_service::HttpRefusal;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Mutex, oneshot},
};
use tonic::codegen::Service as _;

/// Serves the connection until it ends or, once `drain` completes, until the request in progress is answered.
pub(crate) async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    (peer, names): (Arc<str>, Arc<[String]>),
    router: Router,
    state: HttpState,
    progress: Arc<Progress>,
    events: Arc<AtomicU64>,
    drain: impl Future<Output = ()>,
) -> Result<(), hyper::Error> {
    let (bounds, client) = (state.settings.bounds, Client { peer, names });
    let times = PhaseTimes { idle: bounds.idle_timeout, message: bounds.timeout };
    let stream = TimedStream::new(stream, Arc::clone(&progress), times);
    // Locked by the task of the request in progress.
    let running = Arc::<Mutex<()>>::default();
    let service = service_fn(|mut request: hyper::Request<Incoming>| {
        progress.enter(Phase::Handling);
        progress.set_recency(events.fetch_add(1, Relaxed) + 1);
        request.extensions_mut().insert(client.clone());
        request.extensions_mut().insert(RequestProgress(Arc::clone(&progress)));
        let expects_decision = refused::expects_decision(request.uri().path());
        let response = router.clone().call(request.map(Body::new));
        let (progress, state, client) = (Arc::clone(&progress), state.clone(), Arc::clone(&client.peer));
        let response = respond(response, Arc::clone(&running));
        async move {
            let response = response.await;
            refused::note(&state, expects_decision, &client, &response);
            progress.enter(Phase::Writing);
            Ok::<_, Infallible>(response)
        }
    });
    let ended = {
        let mut connection = pin!(
            http1::Builder::new()
                .max_header_size(bounds.header_bytes_max)
                // The timed stream bounds it, like the other times.
                .header_read_timeout(None)
                .serve_connection(TokioIo::new(stream), service)
        );
        let ended = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            () = drain => None,
        };
        match ended {
            Some(ended) => ended,
            None => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    // Waits for the task of a request whose client has disconnected.
    drop(running.lock().await);
    if let Some(refusal) = ended.as_ref().err().and_then(|error| refusal_of_error(error, progress.phase())) {
        state.refusals().count(refusal);
    }
    ended
}

/// Runs a request in a task, which ends with the connection, but only after its first poll. So a received request that ends a slot takes
/// effect even if its client disconnects.
fn respond(
    response: impl Future<Output = Result<Response, Infallible>> + Send + 'static,
    running: Arc<Mutex<()>>,
) -> impl Future<Output = Response> {
    let (connection, ended) = oneshot::channel::<Infallible>();
    let task = tokio::spawn(async move {
        let _running = running.lock().await;
        tokio::select! {
            biased;
            response = response => response.ok(),
            _ = ended => None,
        }
    });
    async move {
        let response = task.await;
        drop(connection);
        // A task that panicked has no response.
        response.ok().flatten().unwrap_or_else(|| StatusCode::INTERNAL_SERVER_ERROR.into_response())
    }
}

/// The reason of a refusal by hyper or by the stream, in this phase.
fn refusal_of_error(error: &hyper::Error, phase: Phase) -> Option<HttpRefusal> {
    if error.is_parse_too_large() {
        return Some(HttpRefusal::HeaderBytes);
    }
    if error.is_parse() {
        return Some(HttpRefusal::MalformedHead);
    }
    let cause = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
    match phase {
        _ if cause.is_none_or(|cause| cause.kind() != io::ErrorKind::TimedOut) => None,
        Phase::Head => Some(HttpRefusal::HeaderTimeout),
        Phase::Writing => Some(HttpRefusal::WriteTimeout),
        Phase::Idle | Phase::Handling | Phase::Body => None,
    }
}
