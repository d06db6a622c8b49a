//! Bounds on calls that stay open for as long as the client likes: watches and bidirectional streams.

use crate::api::rlqs;
use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use std::{
    pin::Pin,
    task::{Context, Poll},
};
use tidegate_http2::{LongLived, LongLivedCall};
use tonic::Status;

/// The methods with calls that stay open.
const METHODS: [&str; 5] = [
    "/grpc.health.v1.Health/Watch",
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    "/tidegate.v1.Control/Tail",
    rlqs::STREAM,
];

/// Maximum numbers of calls that stay open. Each takes some 15 kB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LongLivedBounds {
    /// Calls of all connections.
    pub max: usize,
    /// Calls of one connection.
    pub per_connection_max: usize,
}

impl Default for LongLivedBounds {
    fn default() -> Self {
        Self { max: 1000, per_connection_max: 100 }
    }
}

/// The calls of all connections that stay open.
#[derive(Clone, Debug)]
pub(in crate::api) struct LongLivedCalls {
    bounds: LongLivedBounds,
    open: LongLived,
}

/// The places that an open call takes, of all connections' and of its connection's.
pub(in crate::api) struct Places {
    _of_all: LongLivedCall,
    _of_connection: Option<LongLivedCall>,
}

impl LongLivedCalls {
    pub(in crate::api) fn new(bounds: LongLivedBounds) -> Self {
        Self { bounds, open: LongLived::default() }
    }

    /// Takes places for a call that stays open; none for any other call. An error is the refusal, RESOURCE_EXHAUSTED.
    pub(in crate::api) fn start<B>(&self, request: &Request<B>) -> Result<Option<Places>, Status> {
        if !METHODS.contains(&request.uri().path()) {
            return Ok(None);
        }
        let of_connection = match request.extensions().get::<LongLived>() {
            Some(connection) => Some(connection.start(self.bounds.per_connection_max).ok_or_else(|| {
                Status::resource_exhausted("too many open streaming calls on this connection; close some")
            })?),
            None => None,
        };
        let of_all = self.open.start(self.bounds.max).ok_or_else(|| {
            Status::resource_exhausted("too many open streaming calls on this server; try again later")
        })?;
        Ok(Some(Places { _of_all: of_all, _of_connection: of_connection }))
    }
}

impl Places {
    /// Keeps the places for as long as the response's body is open.
    pub(in crate::api) fn keep(self, response: Response<tonic::body::Body>) -> Response<tonic::body::Body> {
        response.map(|body| tonic::body::Body::new(WithPlaces { body, _places: self }))
    }
}

struct WithPlaces {
    body: tonic::body::Body,
    _places: Places,
}

impl Body for WithPlaces {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(path: &str, connection: &LongLived) -> Request<()> {
        let request = Request::builder().uri(path).extension(connection.clone());
        request.body(()).expect("a well-formed request")
    }

    #[test]
    fn open_calls_are_bounded_by_connection_and_in_total() {
        let calls = LongLivedCalls::new(LongLivedBounds { max: 3, per_connection_max: 2 });
        let (one, other) = (LongLived::default(), LongLived::default());
        let start = |connection| calls.start(&call(METHODS[0], connection));
        let open = [start(&one), start(&one)];
        assert!(open.iter().all(|places| matches!(places, Ok(Some(_)))));
        let message =
            |refused: Result<Option<Places>, Status>| refused.err().map(|status| status.message().to_owned());
        assert!(message(start(&one)).is_some_and(|text| text.contains("this connection")));
        let third = start(&other);
        assert!(message(start(&other)).is_some_and(|text| text.contains("this server")));
        drop((open, third));
        assert!(start(&other).is_ok() && start(&one).is_ok());
    }

    #[test]
    fn unary_calls_take_no_place() {
        let calls = LongLivedCalls::new(LongLivedBounds { max: 0, per_connection_max: 0 });
        assert!(matches!(
            calls.start(&call("/grpc.health.v1.Health/Check", &LongLived::default())),
            Ok(None)
        ));
    }
}
