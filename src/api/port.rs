//! The gRPC port: serves `ShouldRateLimit` and checks of the health on the fast path where it can, and routes every other request to
//! tonic.
//!
//! The fast path takes the common form only: one uncompressed message, complete and within the limits. It decodes the message where the
//! connection put it, and encodes the response where the connection sends it from. Any other request goes to the router unchanged, before
//! anything was decided or charged; so does a request that reaches a rule with a queue. Responses to calls that a shared store decides are
//! deferred. So calls are refused in one place, and both paths respond alike. Requests that are no calls are refused by their headers
//! alone: a few bytes cannot cause much work.

use super::{
    client::Client,
    grpc::{
        LongLivedBounds, LongLivedCalls, OfCall, QUOTA_STREAM, WholeMessages, compressed_call,
        explain_unknown_method, is_grpc, malformed_timeout, not_a_call, one_message, timeout,
    },
    health::Health,
    refusals::{self, refuse, undecodable},
    rlqs,
    rls::{PRECISION_HEADER, Precision, WINDOWS_HEADER, fast_path, precision_of, response},
};
use bytes::Bytes;
use http::{Request, Response};
use std::{
    fmt::Display,
    sync::{Arc, LazyLock},
    task::{Context, Poll, Waker},
    time::Duration,
};
use tidegate_core::limit::{self, Timestamp};
use tidegate_counts::{Label as _, LogTimes};
use tidegate_http2::{
    BodyMemory, BodyShare, ClassCounts, DeferredBody, DeferredResponse, FieldNames, Fields, OnReset,
    RequestBody, Responses, Service, StreamRefusal,
};
use tidegate_service::{
    CallOrigin, CodeCounts, Dispatch, Propagators, REFUSAL_LOG_INTERVAL, RateLimitService, Refusal,
    TraceContext,
};
use tidegate_shared::store::SharedStore;
use tonic::{Status, body::Body, codegen::Service as _, service::Routes};

/// Bytes of most responses.
const RESPONSE_BYTES: usize = 64;

const SHOULD_RATE_LIMIT: &[u8] = b"/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

const HEALTH_CHECK: &[u8] = b"/grpc.health.v1.Health/Check";

/// The headers that are read here, by the router, or by a service behind it.
static FIELD_NAMES: LazyLock<FieldNames> = LazyLock::new(|| {
    let of_grpc = ["content-type", "grpc-timeout", "grpc-encoding", "authorization"];
    FieldNames::new(
        of_grpc.into_iter().chain([PRECISION_HEADER, WINDOWS_HEADER]).chain(Propagators::all_headers()),
    )
});

/// The headers that matter for a call on the fast path.
#[derive(Clone, Copy, Default)]
pub struct Head {
    /// Whether it is a check of the health, not a decision.
    is_health: bool,
    precision: Precision,
    /// None where decisions have no readers.
    trace: Option<TraceContext>,
    /// Time that the caller waits, if it sends one.
    timeout: Option<Duration>,
}

/// A decoded call of the common form.
#[derive(Default)]
pub struct Call<'b> {
    request: limit::Request<'b>,
    head: Head,
    /// The message, if the response may be deferred, or is not that of a decision.
    deferred: Option<&'b [u8]>,
}

/// Serves every request of the port, for the connections of one peer.
#[derive(Clone)]
pub struct GrpcPort {
    service: RateLimitService,
    /// The service for tasks.
    of_tasks: Arc<RateLimitService>,
    routes: Routes,
    health: Health,
    message_bytes_max: usize,
    long_lived: LongLivedCalls,
    /// See [`CallOrigin::peer`].
    peer: Arc<str>,
    /// The verified names in the certificate of the client.
    names: Arc<[String]>,
    /// Times of the last log line for each reason for which connections refuse requests.
    streams_logged: Arc<LogTimes<StreamRefusal>>,
    /// Memory for incomplete requests; none without a bound.
    bodies: Option<Arc<BodyMemory>>,
}

impl GrpcPort {
    /// Sends `ShouldRateLimit` and health checks on the fast path to `service`, all else to `routes`, which has the same service and
    /// health.
    pub fn new(
        service: RateLimitService,
        (routes, health): (Routes, Health),
        message_bytes_max: usize,
        long_lived: LongLivedBounds,
    ) -> Self {
        Self {
            of_tasks: Arc::new(service.clone()),
            service,
            routes,
            health,
            message_bytes_max,
            long_lived: LongLivedCalls::new(long_lived),
            peer: Arc::default(),
            names: Arc::default(),
            streams_logged: Arc::new(LogTimes::every(REFUSAL_LOG_INTERVAL)),
            bodies: None,
        }
    }

    /// Sets the memory for incomplete requests that its connections share.
    pub fn with_body_memory(self, bodies: Arc<BodyMemory>) -> Self {
        Self { bodies: Some(bodies), ..self }
    }

    /// The store of shared counters, if there is one.
    pub fn shared_store(&self) -> Option<&Arc<SharedStore>> {
        self.service.shared_store()
    }

    /// The port for connections of this peer, with these verified names in its certificate.
    pub fn for_peer(&self, peer: String, names: Vec<String>) -> Arc<Self> {
        Arc::new(Self { peer: peer.into(), names: names.into(), ..self.clone() })
    }
}

impl GrpcPort {
    #[inline]
    fn respond_inline(&self, calls: &[Call<'_>], responses: &mut impl Responses) {
        let origin = |call: &Call<'_>| CallOrigin { peer: &self.peer, trace: call.head.trace };
        self.service.decide_batch(
            calls,
            |call| &call.request,
            origin,
            |Call { request, head, .. }, decision| {
                responses
                    .push(class(decision.code), |out| encode(&self.service, request, *head, decision, out));
                if decision.slot.is_some()
                    && let Some(release) = self.service.release_of(request, decision, &self.peer)
                {
                    responses.on_reset(OnReset::new(release));
                }
            },
        );
    }

    /// Responds at once by a lease in hand or free slots; otherwise defers the response until the store has decided or slots are free.
    #[inline]
    fn respond_or_defer(&self, call: &Call<'_>, responses: &mut impl Responses) {
        let Call { request, head, .. } = call;
        if head.is_health {
            return responses.push_uncounted(|out| self.health.write_response(out));
        }
        let origin = CallOrigin { peer: &self.peer, trace: head.trace };
        let is_decided = self.service.decide_at_once(request, origin, |decision| {
            responses.push(class(decision.code), |out| encode(&self.service, request, *head, decision, out));
            if let Some(release) = self.service.release_of(request, decision, &self.peer) {
                responses.on_reset(OnReset::new(release));
            }
        });
        if is_decided {
            return;
        }
        let mut deferred = self.deferred(call);
        // Polled at once: so the call is queued before later calls, and the end of a slot takes effect even if the connection ends now.
        match deferred.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(DeferredResponse { body, on_reset }) => {
                responses.push_uncounted(|out| out.extend_from_slice(&body));
                on_reset.into_iter().for_each(|on_reset| responses.on_reset(on_reset));
            }
            Poll::Pending => responses.defer(deferred),
        }
    }

    fn count_refusal(&self, refusal: Refusal, cause: &dyn Display) {
        refuse(&self.service, refusal, &self.peer, cause);
    }

    /// The response to a call that takes time, from a copy of its message.
    fn deferred(&self, call: &Call<'_>) -> DeferredBody {
        let (service, peer, head) = (Arc::clone(&self.of_tasks), Arc::clone(&self.peer), call.head);
        let message: Box<[u8]> = call.deferred.unwrap_or_default().into();
        Box::pin(async move {
            let mut request = limit::Request::default();
            fast_path::read(&message, service.request_limits(), &mut request)
                .expect("the message was decoded before");
            let (origin, wait_max) =
                (CallOrigin { peer: &peer, trace: head.trace }, head.timeout.unwrap_or(Duration::MAX));
            let respond = |decision: &limit::Decision<'_>| {
                let mut body = Vec::with_capacity(RESPONSE_BYTES);
                encode(&service, &request, head, decision, &mut body);
                let on_reset = service.release_of(&request, decision, &peer).map(OnReset::new);
                DeferredResponse { body: Bytes::from(body), on_reset }
            };
            service.decide(&request, origin, wait_max, respond).await.expect("the service was ready before")
        })
    }
}

/// Appends the response to a call.
#[inline]
fn encode(
    service: &RateLimitService,
    request: &limit::Request<'_>,
    head: Head,
    decision: &limit::Decision<'_>,
    out: &mut Vec<u8>,
) {
    if service.has_additions(decision) {
        let message = response(service, request, decision, head.precision);
        fast_path::framed_message(&message, out);
    } else {
        fast_path::framed(decision, head.precision, out);
    }
}

/// The reason and the cause if tonic refused the message. Other statuses have been counted.
fn refusal_of_message(response: &Response<Body>) -> Option<(Refusal, String)> {
    let status = Status::from_header_map(response.headers())?;
    Some((undecodable(status.code())?, status.message().to_owned()))
}

/// The class of responses with this code.
#[inline]
fn class(code: limit::Code) -> usize {
    match code {
        limit::Code::Ok => 0,
        limit::Code::OverLimit => 1,
    }
}

impl Service for GrpcPort {
    type FastPath = Head;
    type Call<'b> = Call<'b>;
    type Body = Body;

    fn field_names() -> &'static FieldNames {
        &FIELD_NAMES
    }

    fn body_share(&self) -> BodyShare {
        self.bodies.as_ref().map_or_else(BodyShare::unlimited, BodyMemory::share)
    }

    fn fast_path(&self, head: Fields<'_>) -> Option<Head> {
        let (mut call, mut is_grpc_body, mut is_traced) = (Head::default(), false, false);
        let propagators = self.service.propagators();
        for (name, value) in head.iter() {
            let is_common = match name {
                b":method" => value == b"POST",
                b":path" => {
                    call.is_health = value == HEALTH_CHECK;
                    call.is_health || value == SHOULD_RATE_LIMIT
                }
                b"content-type" => {
                    is_grpc_body = is_grpc(value);
                    is_grpc_body
                }
                // Calls with other encodings are refused.
                b"grpc-encoding" => value == b"identity",
                _ if name == WINDOWS_HEADER.as_bytes() => false,
                b"grpc-timeout" => {
                    call.timeout = timeout::parse(value);
                    call.timeout.is_some()
                }
                _ if name == PRECISION_HEADER.as_bytes() => {
                    call.precision = precision_of(value)?;
                    true
                }
                _ if propagators.is_some_and(|propagators| propagators.read(name)) => {
                    is_traced = true;
                    true
                }
                _ => true,
            };
            if !is_common {
                return None;
            }
        }
        if let Some(propagators) = propagators.filter(|_| is_traced) {
            call.trace = propagators.context(|name| head.get(name.as_bytes()));
        }
        is_grpc_body.then_some(call)
    }

    #[inline]
    fn fast_path_after<'v>(
        &self,
        state: Head,
        name: &[u8],
        value: impl FnOnce() -> &'v [u8],
    ) -> Option<Head> {
        match name {
            b":method" | b":path" | b"content-type" | b"grpc-encoding" => None,
            b"grpc-timeout" => {
                timeout::parse(value()).map(|timeout| Head { timeout: Some(timeout), ..state })
            }
            _ if name == PRECISION_HEADER.as_bytes() => None,
            _ => match self.service.propagators() {
                Some(propagators) if propagators.read(name) => {
                    propagators.context_of(name, value()).map(|trace| Head { trace, ..state })
                }
                _ => Some(state),
            },
        }
    }

    #[inline]
    fn decode<'b>(&self, head: Head, body: &'b [u8], call: &mut Call<'b>) -> bool {
        let Some(message) = one_message(body, self.message_bytes_max) else { return false };
        call.head = head;
        if head.is_health {
            call.deferred = Some(message);
            return Health::is_known(message);
        }
        if fast_path::read(message, self.service.request_limits(), &mut call.request).is_err() {
            return false;
        }
        match self.service.dispatch(&call.request) {
            Some(Dispatch::Inline) => true,
            Some(Dispatch::Remote | Dispatch::Slots) => {
                call.deferred = Some(message);
                true
            }
            Some(Dispatch::Queue | Dispatch::Call) | None => false,
        }
    }

    #[inline]
    fn respond(&self, calls: &[Call<'_>], responses: &mut impl Responses) {
        for calls in calls.chunk_by(|call, next| call.deferred.is_some() == next.deferred.is_some()) {
            if calls.iter().any(|call| call.deferred.is_some()) {
                calls.iter().for_each(|call| self.respond_or_defer(call, responses));
            } else {
                self.respond_inline(calls, responses);
            }
        }
    }

    #[inline]
    fn measured_time(&self) -> Option<u64> {
        self.service.measured_time().map(Timestamp::as_nanos)
    }

    fn on_refused(&self, refusal: StreamRefusal, count: u32) {
        let now = Duration::from_nanos(self.service.clock().now().as_nanos());
        for _ in 0..count {
            if let Some(count) = self.streams_logged.event(refusal, now) {
                refusals::log(refusal.name(), &self.peer, count, &"by the bounds of the connection");
            }
        }
    }

    #[inline]
    fn on_written(&self, received: u64, [admitted, denied]: ClassCounts) {
        self.service.count_written(Timestamp::from_nanos(received), CodeCounts { admitted, denied });
    }

    fn refuse(&self, request: &Request<RequestBody>) -> Option<Response<Bytes>> {
        let refusal = not_a_call(request)?;
        self.count_refusal(Refusal::NotGrpc, &refusal.status());
        Some(refusal)
    }

    async fn route(self: Arc<Self>, request: Request<RequestBody>) -> Response<Body> {
        if let Some(refusal) = malformed_timeout(&request) {
            self.count_refusal(Refusal::MalformedTimeout, &"grpc-timeout is malformed");
            return refusal;
        }
        if let Some(refusal) = compressed_call(&request) {
            self.count_refusal(Refusal::UndecodableMessage, &refusal.message());
            return refusal.into_http();
        }
        let places = match self.long_lived.start(&request, &self.peer) {
            Ok(places) => places,
            Err(refusal) => {
                let reason = match request.uri().path() {
                    QUOTA_STREAM => Refusal::QuotaStreams,
                    _ => Refusal::StreamingCalls,
                };
                self.count_refusal(reason, &refusal.message());
                return refusal.into_http();
            }
        };
        // Reflection and quotas stream their requests; every other method takes one message.
        let uri = request.uri().clone();
        let path = uri.path();
        let is_lease = path.starts_with("/tidegate.v1.Leases/");
        let (messages, bytes_max) = match path {
            QUOTA_STREAM => {
                (OfCall::Stream(rlqs::screen), self.message_bytes_max.max(rlqs::REPORT_BYTES_MAX))
            }
            _ if path.starts_with("/grpc.reflection.") => {
                (OfCall::Stream(|_| Ok(())), self.message_bytes_max)
            }
            _ => (OfCall::One, self.message_bytes_max),
        };
        let share = request.body().share();
        let delivery = (path == QUOTA_STREAM).then(|| request.body().delivery());
        let of_connection = share.clone();
        let mut request = request.map(|body| Body::new(WholeMessages::new(body, messages, bytes_max, share)));
        if let Some(places) = &places
            && delivery.is_some()
        {
            request.extensions_mut().insert(Arc::clone(places));
            request.extensions_mut().insert(of_connection);
        }
        let (peer, names) = (Arc::clone(&self.peer), Arc::clone(&self.names));
        request.extensions_mut().insert(Client { peer, names });
        let mut routes = self.routes.clone();
        let mut response = match routes.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        if explain_unknown_method(&mut response, is_lease) {
            self.count_refusal(Refusal::UnknownMethod, &path);
        } else if let Some((refusal, cause)) = refusal_of_message(&response) {
            self.count_refusal(refusal, &cause);
        }
        let receipts = response.extensions_mut().remove::<rlqs::Receipts>();
        if let (Some(receipts), Some(delivery)) = (receipts, delivery) {
            response = receipts.confirm_frames(response, delivery);
        }
        match places {
            Some(places) => places.keep(response),
            None => response,
        }
    }
}
