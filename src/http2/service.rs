//! Whom a connection serves requests from.

pub use super::hpack::Fields;
use super::routed::RequestBody;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use std::{error::Error, sync::Arc};

/// Takes the answers to calls, in the order of the calls.
pub trait Responses {
    /// The next call is answered with the body that is appended.
    fn push(&mut self, body: impl FnOnce(&mut Vec<u8>));
}

/// What answers the requests of a connection.
///
/// Some calls it answers at once, from all of their body. They are recognised by their heads; their answers are those of
/// gRPC calls that went well: `:status` 200 and `content-type` application/grpc before the body, `grpc-status` 0 after it.
pub trait Service: Send + Sync + 'static {
    /// What it needs to know of the head of a call to answer it at once.
    type FastPath: Copy + Send;

    /// What a call asks that is to be answered at once. It may borrow from the call's body.
    type Call<'b>: Default;

    /// The body of an answer to a request that was routed.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>> + Send> + Send + 'static;

    /// Whether a call with this head, which keeps to HTTP/2, may be answered at once. It depends on nothing but the head.
    fn fast_path(&self, head: &Fields) -> Option<Self::FastPath>;

    /// Reads what a call asks that has come whole, into where it stays. False if it has to be routed instead. Nothing
    /// happens yet.
    fn decode<'b>(&self, fast_path: Self::FastPath, body: &'b [u8], call: &mut Self::Call<'b>) -> bool;

    /// Responses calls that came together, each in its turn.
    fn respond(&self, calls: &[Self::Call<'_>], responses: &mut impl Responses);

    /// Responses any other request. If the client gives up, the future is dropped.
    fn route(
        self: Arc<Self>,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}
