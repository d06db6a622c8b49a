//! Whom a connection serves requests from.

pub use super::hpack::Fields;
use super::routed::RequestBody;
use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use std::{error::Error, sync::Arc};

/// Takes the answers to calls, in the order of the calls.
pub trait Answers {
    /// The next call is answered with the body that is appended.
    fn answer(&mut self, body: impl FnOnce(&mut Vec<u8>));
}

/// What answers the requests of a connection.
///
/// Some calls it answers at once, from all of their body. They are recognised by their heads; their answers are those of
/// gRPC calls that went well: `:status` 200 and `content-type` application/grpc before the body, `grpc-status` 0 after it.
pub trait Service: Send + Sync + 'static {
    /// What it needs to know of the head of a call to answer it at once.
    type Quick: Copy + Send;

    /// What a call asks that is to be answered at once. It may borrow from the call's body.
    type Asked<'b>: Default;

    /// The body of an answer to a request that was routed.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>> + Send> + Send + 'static;

    /// Whether a call with this head, which keeps to HTTP/2, may be answered at once. It depends on nothing but the head.
    fn quick(&self, head: &Fields) -> Option<Self::Quick>;

    /// Reads what a call asks that has come whole, into where it stays. False if it has to be routed instead. Nothing
    /// happens yet.
    fn ask<'b>(&self, quick: Self::Quick, body: &'b [u8], asked: &mut Self::Asked<'b>) -> bool;

    /// Answers calls that came together, each in its turn.
    fn answer(&self, calls: &[Self::Asked<'_>], answers: &mut impl Answers);

    /// Answers any other request. If the client gives up, the future is dropped.
    fn route(
        self: Arc<Self>,
        request: Request<RequestBody>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}
