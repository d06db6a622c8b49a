//! HTTP/1.1 on one connection.

use super::{
    refused,
    state::{HttpState, RequestProgress},
    timed_stream::{Phase, PhaseTimes, Progress, TimedStream, UnlessWritten},
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
use tidegate_http2::OnReset;
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
            let (response, hook) = response.await;
            refused::note(&state, expects_decision, &client, &response);
            progress.enter(Phase::Writing);
            hook.into_iter().for_each(|hook| progress.add_unwritten(hook));
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
    progress.end();
    // Waits for the task of a request whose client has disconnected.
    drop(running.lock().await);
    if let Some(refusal) = ended.as_ref().err().and_then(|error| refusal_of_error(error, progress.phase())) {
        state.refusals().count(refusal);
    }
    ended
}

/// Runs a request in a task, which ends with the connection, but only after its first poll. So a received request that ends a slot takes
/// effect even if its client disconnects. If that request is admitted with slots or an estimate, the hook of its response ends them when the
/// response is dropped.
fn respond(
    response: impl Future<Output = Result<Response, Infallible>> + Send + 'static,
    running: Arc<Mutex<()>>,
) -> impl Future<Output = (Response, Option<UnlessWritten>)> {
    let (connection, ended) = oneshot::channel::<Infallible>();
    // Now, and not at the first poll: the connection may end before. The task of the request before has ended.
    let running = running.try_lock_owned();
    let task = tokio::spawn(async move {
        let _running = running;
        let response = tokio::select! {
            biased;
            response = response => response.ok(),
            _ = ended => None,
        };
        response.map(|mut response| {
            let hook = response.extensions_mut().remove::<OnReset>().map(UnlessWritten::new);
            (response, hook)
        })
    });
    async move {
        let response = task.await;
        drop(connection);
        // A task that panicked has no response.
        let failed = || (StatusCode::INTERNAL_SERVER_ERROR.into_response(), None);
        response.ok().flatten().unwrap_or_else(failed)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::http::HttpSettings;
    use axum::routing::get;
    use std::sync::atomic::AtomicBool;
    use tidegate_core::{
        clock::ManualClock,
        limit::{RequestLimits, Timestamp},
    };
    use tidegate_service::RateLimitService;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n";

    /// Whether the hook of the response to a request has run when the connection has ended. The connection buffers so many bytes.
    async fn runs_hook(buffered: usize, client: impl AsyncFnOnce(DuplexStream)) -> bool {
        let clock = Arc::new(ManualClock::new(Timestamp::from_nanos(0)));
        let service = RateLimitService::restoring(clock, RequestLimits::default());
        let state = HttpState::new(service, HttpSettings::default(), None);
        let has_run = Arc::<AtomicBool>::default();
        let of_route = Arc::clone(&has_run);
        let route = get(async move || {
            let mut response = "admitted".into_response();
            response.extensions_mut().insert(OnReset::new(move || of_route.store(true, Relaxed)));
            response
        });
        let router = Router::new().route("/", route);
        let (of_client, of_server) = duplex(buffered);
        let peer = ("192.0.2.1".into(), Arc::default());
        let drain = std::future::pending();
        let served = serve_connection(of_server, peer, router, state, Arc::default(), Arc::default(), drain);
        // The client first: it may be gone before anything is read.
        let (_, _) = tokio::join!(client(of_client), served);
        has_run.load(Relaxed)
    }

    /// Its slots and its estimate were kept until `max_hold`.
    #[tokio::test]
    async fn an_admission_ends_if_its_caller_is_gone_before_the_response_is_written() {
        let gone = async |mut stream: DuplexStream| stream.write_all(REQUEST).await.expect("it is buffered");
        assert!(runs_hook(1 << 10, gone).await, "closed before the response is made");
        let gone = async |mut stream: DuplexStream| {
            stream.write_all(REQUEST).await.expect("it is read");
            stream.read_u8().await.expect("the response begins");
        };
        assert!(runs_hook(16, gone).await, "closed while the response is written");
    }

    #[tokio::test]
    async fn an_admission_whose_response_is_written_stays_when_its_connection_ends() {
        for after in [&b""[..], b"malformed\r\n\r\n"] {
            let reads = async |mut stream: DuplexStream| {
                stream.write_all(REQUEST).await.expect("it is buffered");
                let mut response = Vec::new();
                while !response.ends_with(b"admitted") {
                    response.push(stream.read_u8().await.expect("the response"));
                }
                stream.write_all(after).await.expect("it is buffered");
            };
            assert!(!runs_hook(1 << 10, reads).await);
        }
    }

    /// All requests are sent before the first response is read.
    #[tokio::test]
    async fn an_admission_stays_if_further_requests_follow_before_its_response_is_read() {
        let reads = async |mut stream: DuplexStream| {
            stream.write_all(&REQUEST.repeat(3)).await.expect("it is buffered");
            let (mut response, mut admitted) = (Vec::new(), 0);
            while admitted < 3 {
                response.push(stream.read_u8().await.expect("the response"));
                admitted += usize::from(response.ends_with(b"admitted"));
            }
        };
        assert!(!runs_hook(1 << 10, reads).await);
    }
}
