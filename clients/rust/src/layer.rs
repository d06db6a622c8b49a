//! A tower layer: limits the requests of axum, tonic, and any other service of `http` requests.

use crate::{
    client::{Error, Tidegate},
    decision::{Decision, Reason, insert},
    keys::{self, Key, Keys, RequestInfo},
    request::Request,
    slot::Slot,
};
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Request as HttpRequest, Response, StatusCode,
    header::{CONTENT_TYPE, HeaderName},
};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{Either, Full};
use std::{
    fmt, mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tower_layer::Layer;
use tower_service::Service;

/// Limits the requests of a service.
///
/// A denied request is answered with 429, a request without an answer under [`OnFailure::Closed`](crate::OnFailure::Closed) with 503; gRPC
/// calls with RESOURCE_EXHAUSTED and UNAVAILABLE. The [`Decision`] of an allowed request is among its extensions.
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    client: Tidegate,
    /// The keys of each descriptor.
    descriptors: Arc<[Vec<Key>]>,
    options: Arc<Options>,
}

type Cost = Arc<dyn Fn(RequestInfo<'_>) -> u64 + Send + Sync>;
type Skip = Arc<dyn Fn(RequestInfo<'_>) -> bool + Send + Sync>;
type DeniedBody = Arc<dyn Fn(&Decision) -> (HeaderValue, Bytes) + Send + Sync>;
type Counts = Arc<dyn Fn(StatusCode) -> bool + Send + Sync>;

/// Settings beside the keys.
#[derive(Clone, Default)]
struct Options {
    /// 1 if not set.
    cost: Option<Cost>,
    skip: Option<Skip>,
    denied_body: Option<DeniedBody>,
    counts: Option<Counts>,
    has_legacy_headers: bool,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("has_legacy_headers", &self.has_legacy_headers)
            .finish_non_exhaustive()
    }
}

/// The slots that a request holds by all layers so far, among its extensions if there are any. They are released when the response's body
/// and all clones of this are dropped.
///
/// The body of a response ends before its WebSocket: a handler has to move a clone into the task that serves the upgraded connection.
#[derive(Clone, Debug)]
pub struct RequestSlot(#[expect(dead_code, reason = "it is held until it is dropped")] Arc<Held>);

/// The slots of a layer, and those of the layers around it.
#[derive(Debug)]
#[expect(dead_code, reason = "they are held until they are dropped")]
struct Held {
    own: Slot,
    outer: Option<RequestSlot>,
}

impl RateLimitLayer {
    /// Creates a layer with the entries of the descriptor, in order.
    ///
    /// # Panics
    ///
    /// If there is no key: no request could be limited.
    pub fn new(client: Tidegate, keys: impl Into<Vec<Key>>) -> Self {
        Self { client, descriptors: Arc::default(), options: Arc::default() }.and(keys)
    }

    /// Adds a descriptor; all are decided as one request.
    ///
    /// # Panics
    ///
    /// If there is no key.
    #[must_use]
    pub fn and(self, keys: impl Into<Vec<Key>>) -> Self {
        let keys = keys.into();
        assert!(!keys.is_empty(), "no keys; name at least one, such as Key::constant(\"route\", \"all\")");
        let descriptors = self.descriptors.iter().cloned().chain([keys]).collect();
        Self { descriptors, ..self }
    }

    /// Sets the hits of each request; 1 if not set.
    #[must_use]
    pub fn cost(self, cost: u64) -> Self {
        self.cost_by(move |_| cost)
    }

    /// Sets a function that returns the hits of a request.
    #[must_use]
    pub fn cost_by(self, cost: impl Fn(RequestInfo<'_>) -> u64 + Send + Sync + 'static) -> Self {
        self.with(|options| options.cost = Some(Arc::new(cost)))
    }

    /// Exempts requests for which a function returns true, such as health checks.
    #[must_use]
    pub fn skip(self, skip: impl Fn(RequestInfo<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.with(|options| options.skip = Some(Arc::new(skip)))
    }

    /// Sets a function that returns the content type and the body of a denial over HTTP.
    #[must_use]
    pub fn denied_body(
        self,
        body: impl Fn(&Decision) -> (HeaderValue, Bytes) + Send + Sync + 'static,
    ) -> Self {
        self.with(|options| options.denied_body = Some(Arc::new(body)))
    }

    /// Sets a function that returns whether a request counts, by the status of its response. The hits of other requests are given back: use
    /// it only for limits without `reserve`.
    #[must_use]
    pub fn counts(self, counts: impl Fn(StatusCode) -> bool + Send + Sync + 'static) -> Self {
        self.with(|options| options.counts = Some(Arc::new(counts)))
    }

    /// Sends `X-RateLimit-…` headers as well.
    #[must_use]
    pub fn legacy_headers(self) -> Self {
        self.with(|options| options.has_legacy_headers = true)
    }

    /// Changes an option, of this layer alone.
    fn with(self, set: impl FnOnce(&mut Options)) -> Self {
        let mut options = (*self.options).clone();
        set(&mut options);
        Self { options: Arc::new(options), ..self }
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimit<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit { inner, layer: self.clone() }
    }
}

/// The service that [`RateLimitLayer`] makes.
#[derive(Clone, Debug)]
pub struct RateLimit<S> {
    inner: S,
    layer: RateLimitLayer,
}

/// The future of a limited service's response.
pub type ResponseFuture<B, E> =
    Pin<Box<dyn Future<Output = Result<Response<Either<HeldBody<B>, Full<Bytes>>>, E>> + Send>>;

pin_project_lite::pin_project! {
    /// The body of a response, which holds the slots of its request until it is dropped: when it was sent, or its client has gone.
    #[derive(Debug)]
    pub struct HeldBody<B> {
        #[pin]
        body: B,
        slot: Option<RequestSlot>,
    }
}

impl<B: Body> Body for HeldBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        self.project().body.poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<S, B, R> Service<HttpRequest<B>> for RateLimit<S>
where
    S: Service<HttpRequest<B>, Response = Response<R>> + Clone + Send + 'static,
    S::Future: Send,
    B: Send + 'static,
{
    type Response = Response<Either<HeldBody<R>, Full<Bytes>>>;
    type Error = S::Error;
    type Future = ResponseFuture<R, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: HttpRequest<B>) -> Self::Future {
        // The clone may not be ready: the ready service goes into the future.
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        let layer = self.layer.clone();
        Box::pin(async move {
            match layer.decide(&mut request).await {
                Err(refusal) => Ok(refusal.map(Either::Right)),
                Ok(Admitted { slot, descriptors, headers }) => {
                    let response = inner.call(request).await?;
                    if let Some(descriptors) = descriptors {
                        layer.count(response.status(), descriptors);
                    }
                    let mut response = response.map(|body| Either::Left(HeldBody { body, slot }));
                    add(response.headers_mut(), &headers);
                    Ok(response)
                }
            }
        })
    }
}

/// The state of an allowed request until its end.
#[derive(Default)]
struct Admitted {
    slot: Option<RequestSlot>,
    /// The descriptors of a request that may not count.
    descriptors: Option<Request>,
    /// Headers of the response.
    headers: HeaderMap,
}

impl RateLimitLayer {
    /// Gives back the hits of a request that does not count.
    fn count(&self, status: StatusCode, request: Request) {
        if self.options.counts.as_ref().is_none_or(|counts| counts(status)) {
            return;
        }
        let client = self.client.clone();
        tokio::spawn(async move {
            if let Err(error) = client.give_back(request).await {
                tracing::warn!(%error, "hits of a request that does not count are not given back");
            }
        });
    }

    /// Returns the state of an allowed request, or the response to any other request.
    async fn decide<B>(&self, request: &mut HttpRequest<B>) -> Result<Admitted, Response<Full<Bytes>>> {
        let options = &*self.options;
        if options.skip.as_ref().is_some_and(|skip| skip(info(request))) {
            return Ok(Admitted::default());
        }
        let is_grpc = request
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        let refused = |refused, text: &str| refusal(refused, is_grpc, HeaderMap::new(), format!("{text}\n"));
        let descriptors = match keys::read(&self.descriptors, info(request)) {
            Keys::Limited(descriptors) => descriptors,
            Keys::NotLimited => return Ok(Admitted::default()),
            Keys::Rejected(problem) => return Err(refused(Refused::Key, &problem)),
        };
        let cost = options.cost.as_ref().map_or(1, |cost| cost(info(request)));
        let limited = Request::from(descriptors).cost(cost);
        let counted = options.counts.is_some().then(|| limited.clone());
        let slot = match self.client.hold(limited).await {
            Ok(slot) => slot,
            // The value of a key is at fault, such as a value that is too long.
            Err(Error::Refused { code: "INVALID_ARGUMENT" | "OUT_OF_RANGE", message }) => {
                return Err(refused(Refused::Key, &message));
            }
            Err(error) => {
                tracing::error!(%error, "a request is refused, since it cannot be decided");
                return Err(refused(Refused::Error, "rate limit error"));
            }
        };
        let decision = slot.decision();
        if decision.reason == Reason::FailedClosed && decision.statuses.is_empty() {
            return Err(refused(Refused::NoAnswer, "Service Unavailable"));
        }
        let headers = if options.has_legacy_headers { decision.legacy_headers() } else { decision.headers() };
        if !decision.allowed {
            let text = "Too Many Requests\n".to_owned();
            let mut response = refusal(Refused::Denied, is_grpc, headers, text);
            if !is_grpc && let Some(made) = &options.denied_body {
                let (content_type, body) = made(decision);
                response.headers_mut().insert(CONTENT_TYPE, content_type);
                *response.body_mut() = Full::new(body);
            } else if !is_grpc && !decision.body.is_empty() {
                *response.body_mut() = Full::new(decision.body.clone());
            }
            return Err(response);
        }
        mark(request.headers_mut(), decision);
        request.extensions_mut().insert::<Decision>(decision.clone());
        // Without an answer nothing was taken.
        let descriptors = counted.filter(|_| decision.error.is_none());
        if decision.ticket.is_none() {
            return Ok(Admitted { slot: None, descriptors, headers });
        }
        // A handler finds one value, whatever the number of layers.
        let outer = request.extensions_mut().remove();
        let slot = RequestSlot(Arc::new(Held { own: slot, outer }));
        request.extensions_mut().insert(slot.clone());
        Ok(Admitted { slot: Some(slot), descriptors, headers })
    }
}

/// Adds headers of a decision to a response that may have those of an inner layer: lists name the limits of both.
fn add(response: &mut HeaderMap, decided: &HeaderMap) {
    for (name, value) in decided {
        let inner: Vec<_> = response.get_all(name).iter().cloned().collect();
        if inner.is_empty() {
            response.insert(name, value.clone());
        } else if matches!(name.as_str(), "ratelimit" | "ratelimit-policy") {
            response.insert(name, value.clone());
            inner.into_iter().for_each(|inner| _ = response.append(name, inner));
        }
    }
}

/// Replaces the client's headers of the same names by the decision's request headers. Invalid headers are left out: the server has checked
/// those of its rules.
fn mark(headers: &mut HeaderMap, decision: &Decision) {
    for (name, _) in &decision.request_headers {
        headers.remove(name.as_str());
    }
    for (name, value) in &decision.request_headers {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
            headers.append(name, value);
        }
    }
}

fn info<B>(request: &HttpRequest<B>) -> RequestInfo<'_> {
    RequestInfo {
        method: request.method(),
        uri: request.uri(),
        headers: request.headers(),
        extensions: request.extensions(),
    }
}

#[derive(Clone, Copy)]
enum Refused {
    Key,
    Denied,
    NoAnswer,
    Error,
}

impl Refused {
    fn http(self) -> StatusCode {
        match self {
            Self::Key => StatusCode::BAD_REQUEST,
            Self::Denied => StatusCode::TOO_MANY_REQUESTS,
            Self::NoAnswer => StatusCode::SERVICE_UNAVAILABLE,
            Self::Error => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn grpc(self) -> tonic::Code {
        match self {
            Self::Key => tonic::Code::InvalidArgument,
            Self::Denied => tonic::Code::ResourceExhausted,
            Self::NoAnswer => tonic::Code::Unavailable,
            Self::Error => tonic::Code::Internal,
        }
    }
}

fn refusal(refused: Refused, is_grpc: bool, headers: HeaderMap, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.headers_mut() = headers;
    if is_grpc {
        // A response of trailers only.
        let status = tonic::Status::new(refused.grpc(), text.trim());
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        let message = status.message().replace('%', "%25");
        insert(response.headers_mut(), "grpc-message", &message);
        response
            .headers_mut()
            .insert(HeaderName::from_static("grpc-status"), HeaderValue::from(i32::from(status.code())));
        return response;
    }
    *response.status_mut() = refused.http();
    response.headers_mut().entry(CONTENT_TYPE).or_insert(HeaderValue::from_static("text/plain"));
    *response.body_mut() = Full::from(text);
    response
}
