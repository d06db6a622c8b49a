//! The interface between a connection and the application.

use super::{
    body_memory::BodyShare,
    counts::StreamRefusal,
    deferred::{DeferredBody, OnReset},
    hpack::{FieldNames, Fields},
    request_body::RequestBody,
};
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use std::{error::Error, sync::Arc};

/// Number of classes of responses.
pub const CLASSES: usize = 2;

/// Numbers of responses by class. The service defines the classes.
pub type ClassCounts = [u32; CLASSES];

/// Receives the responses to the calls of a batch, in the order of the calls.
pub trait Responses {
    /// Responds to the next call with the body that `body` appends. `class` is below [`CLASSES`].
    fn push(&mut self, class: usize, body: impl FnOnce(&mut Vec<u8>));

    /// Responds to the next call with the body that `body` appends, without a class.
    fn push_uncounted(&mut self, body: impl FnOnce(&mut Vec<u8>));

    /// Runs the hook if the client resets the call of the last response.
    fn on_reset(&mut self, hook: OnReset);

    /// Responds to the next call later, with the body that the future returns and without a class. The future is dropped if the client
    /// cancels the call or its connection ends, but not before it was polled once.
    fn defer(&mut self, body: DeferredBody);
}

/// Responds to the requests of a connection.
///
/// Requests of the fast path are recognised by their headers and need a complete body. Their responses are those of successful gRPC calls:
/// `:status` 200 and `content-type` application/grpc before the body, `grpc-status` 0 after it.
pub trait Service: Send + Sync + 'static {
    /// State of a call on the fast path, from its headers.
    type FastPath: Copy + Send;

    /// A decoded call of the fast path. It may borrow from the call's body.
    type Call<'b>: Default;

    /// The body of a response to a routed request.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>> + Send> + Send + 'static;

    /// The names of all headers that the service reads, on the fast path or off it. Requests have no other headers: thousands of headers by
    /// index cause no work for each.
    fn field_names() -> &'static FieldNames;

    /// Whether a request with these valid headers may take the fast path. Must depend on the headers only. A request with
    /// several headers of one name does not take it.
    fn fast_path(&self, head: Fields<'_>) -> Option<Self::FastPath>;

    /// The state after one field that the service reads changed to another valid value. [`Self::fast_path`] returned `_state` for the
    /// headers before. None if all headers have to be considered again. `_value` decodes the value: call it only if needed.
    fn fast_path_after<'v>(
        &self,
        _state: Self::FastPath,
        _name: &[u8],
        _value: impl FnOnce() -> &'v [u8],
    ) -> Option<Self::FastPath> {
        None
    }

    /// Decodes a complete call in place. False if it has to be routed. Must have no other effect.
    fn decode<'b>(&self, fast_path: Self::FastPath, body: &'b [u8], call: &mut Self::Call<'b>) -> bool;

    /// Responds to the calls of a batch in their order, or defers their responses.
    fn respond(&self, calls: &[Self::Call<'_>], responses: &mut impl Responses);

    /// The share of a new connection in the memory for incomplete requests.
    fn body_share(&self) -> BodyShare {
        BodyShare::unlimited()
    }

    /// The current time in nanoseconds, if the service measures the time of responses.
    #[inline]
    fn measured_time(&self) -> Option<u64> {
        None
    }

    /// Receives the number of responses that were just written to the connection. The last bytes of their requests were read at
    /// `_received`.
    #[inline]
    fn on_written(&self, _received: u64, _responses: ClassCounts) {}

    /// Receives the number of requests that were refused, or whose streams were reset, before they reached the service.
    fn on_refused(&self, _refusal: StreamRefusal, _count: u32) {}

    /// The response to a request that is refused by its headers, without a task. None for any other request.
    fn refuse(&self, _request: &Request<RequestBody>) -> Option<Response<Bytes>> {
        None
    }

    /// Responds to any other request. The future is dropped if the client cancels the request or its connection ends, but not before it was
    /// polled once.
    fn route(
        self: Arc<Self>,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}
