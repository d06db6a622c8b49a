//! Whom a connection serves requests from.

pub use super::hpack::Fields;
use super::routed::RequestBody;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use std::{error::Error, sync::Arc};

/// What answers the requests of a connection.
///
/// Some calls it answers at once, from all of their body. They are recognised by their heads; their answers are those of
/// gRPC calls that went well: `:status` 200 and `content-type` application/grpc before the body, `grpc-status` 0 after it.
pub trait Service: Send + Sync + 'static {
    /// What it needs to know of the head of a call to answer it at once.
    type Quick: Copy + Send;

    /// The body of an answer to a request that was routed.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>> + Send> + Send + 'static;

    /// Whether a call with this head, which keeps to HTTP/2, may be answered at once. It depends on nothing but the head.
    fn quick(&self, head: &Fields) -> Option<Self::Quick>;

    /// Appends the body of the answer to a call. False if the call has to be routed instead: then nothing has happened.
    fn answer(&self, quick: Self::Quick, body: &[u8], out: &mut Vec<u8>) -> bool;

    /// Answers any other request. If the client gives up, the future is dropped.
    fn route(
        self: Arc<Self>,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}
