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
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tower_layer::Layer;
use tower_service::Service;

/// Limits the requests of a service.
///
/// A denied request is answered with 429, one without an answer under [`OnFailure::Closed`](crate::OnFailure::Closed) with
/// 503; calls of gRPC with RESOURCE_EXHAUSTED and UNAVAILABLE. The [`Decision`] of an allowed request is among its
/// extensions.
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    client: Tidegate,
    /// The keys of each descriptor.
    descriptors: Arc<[Vec<Key>]>,
    cost: u64,
    has_legacy_headers: bool,
}

impl RateLimitLayer {
    /// Creates a layer with the entries of the descriptor, in order.
    ///
    /// # Panics
    ///
    /// If there is no key: no request could be limited.
    pub fn new(client: Tidegate, keys: impl Into<Vec<Key>>) -> Self {
        Self { client, descriptors: Arc::default(), cost: 1, has_legacy_headers: false }.and(keys)
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
        Self { cost, ..self }
    }

    /// Sends `X-RateLimit-…` headers as well.
    #[must_use]
    pub fn legacy_headers(self) -> Self {
        Self { has_legacy_headers: true, ..self }
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
        slot: Option<Slot>,
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
        // The clone may not be ready: the one that is goes into the future.
        let clone = self.inner.clone();
        let mut inner = mem::replace(&mut self.inner, clone);
        let layer = self.layer.clone();
        Box::pin(async move {
            match layer.decide(&mut request).await {
                Err(refusal) => Ok(refusal.map(Either::Right)),
                Ok((slot, headers)) => {
                    let response = inner.call(request).await?;
                    let mut response = response.map(|body| Either::Left(HeldBody { body, slot }));
                    for (name, value) in &headers {
                        response.headers_mut().insert(name, value.clone());
                    }
                    Ok(response)
                }
            }
        })
    }
}

impl RateLimitLayer {
    /// Returns what an allowed request holds and the headers of its response, or the response to another one.
    async fn decide<B>(
        &self,
        request: &mut HttpRequest<B>,
    ) -> Result<(Option<Slot>, HeaderMap), Response<Full<Bytes>>> {
        let is_grpc = request
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
        let refused = |refused, text: &str| refusal(refused, is_grpc, HeaderMap::new(), format!("{text}\n"));
        let descriptors = match keys::read(&self.descriptors, info(request)) {
            Keys::Limited(descriptors) => descriptors,
            Keys::NotLimited => return Ok((None, HeaderMap::new())),
            Keys::Rejected(problem) => return Err(refused(Refused::Key, &problem)),
        };
        let slot = match self.client.limit(Request::from(descriptors).cost(self.cost)).await {
            Ok(decision) => Slot::of(decision, self.client.clone(), None),
            // Of the values of the keys, such as one that is too long.
            Err(Error::Refused { code: "INVALID_ARGUMENT" | "OUT_OF_RANGE", message }) => {
                return Err(refused(Refused::Key, &message));
            }
            Err(_) => return Err(refused(Refused::Error, "rate limit error")),
        };
        let decision = slot.decision();
        if decision.reason == Reason::FailedClosed {
            return Err(refused(Refused::NoAnswer, "Service Unavailable"));
        }
        let headers = if self.has_legacy_headers { decision.legacy_headers() } else { decision.headers() };
        if !decision.allowed {
            let text = "Too Many Requests\n".to_owned();
            let mut response = refusal(Refused::Denied, is_grpc, headers, text);
            if !is_grpc && !decision.body.is_empty() {
                *response.body_mut() = Full::new(decision.body.clone());
            }
            return Err(response);
        }
        mark(request.headers_mut(), decision);
        request.extensions_mut().insert::<Decision>(decision.clone());
        Ok((Some(slot), headers))
    }
}

/// Replaces what the client sent under the names of the decision's request headers. Headers that HTTP does not allow are left
/// out: the server has checked those of its rules.
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
