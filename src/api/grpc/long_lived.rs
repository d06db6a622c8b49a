//! Bounds on calls that stay open for as long as the client likes: watches and bidirectional streams. Each kind has places of its own: those of
//! one kind are not taken by calls of another.

use http::{Request, Response};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use std::{collections::HashMap, sync::Arc};
use tidegate_http2::{LongLived, LongLivedCall};
use tonic::Status;

/// The method of quotas.
pub(in crate::api) const QUOTA_STREAM: &str =
    "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";

/// The methods with calls that stay open, each with the number of its kind.
const METHODS: [(&str, usize); 5] = [
    ("/grpc.health.v1.Health/Watch", 0),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", 1),
    ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", 1),
    ("/tidegate.v1.Control/Tail", 2),
    (QUOTA_STREAM, 3),
];

/// Number of kinds.
const KINDS: usize = 4;

/// Maximum numbers of calls that stay open. Each takes some 15 kB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LongLivedBounds {
    /// Calls of one kind, of all connections.
    pub max: usize,
    /// Calls of one connection, of all kinds.
    pub per_connection_max: usize,
    /// Calls of one kind of one IPv4 address, IPv6 /64 network, or user on a Unix socket.
    pub per_peer_max: usize,
}

impl Default for LongLivedBounds {
    fn default() -> Self {
        Self { max: 1000, per_connection_max: 100, per_peer_max: 500 }
    }
}

/// The calls of all connections that stay open.
#[derive(Clone, Debug)]
pub(in crate::api) struct LongLivedCalls {
    bounds: LongLivedBounds,
    open: [LongLived; KINDS],
    /// Those of each peer with any, by kind.
    of_peers: OfPeers,
}

type OfPeers = Arc<Mutex<HashMap<Arc<str>, [usize; KINDS]>>>;

/// The places that an open call takes, of all connections', of its connection's and of its peer's. They are free once all that has them is gone.
pub(in crate::api) struct Places {
    _of_all: LongLivedCall,
    _of_connection: Option<LongLivedCall>,
    _of_peer: OfPeer,
}

/// A call of a peer that is counted.
struct OfPeer {
    of_peers: OfPeers,
    peer: Arc<str>,
    kind: usize,
}

impl Drop for OfPeer {
    fn drop(&mut self) {
        let mut of_peers = self.of_peers.lock();
        if let Some(open) = of_peers.get_mut(&self.peer) {
            open[self.kind] -= 1;
            if *open == [0; KINDS] {
                of_peers.remove(&self.peer);
            }
        }
    }
}

impl LongLivedCalls {
    pub(in crate::api) fn new(bounds: LongLivedBounds) -> Self {
        Self { bounds, open: Default::default(), of_peers: Arc::default() }
    }

    /// Takes places for a call that stays open; none for any other call. An error is the refusal, RESOURCE_EXHAUSTED.
    pub(in crate::api) fn start<B>(
        &self,
        request: &Request<B>,
        peer: &Arc<str>,
    ) -> Result<Option<Arc<Places>>, Status> {
        let path = request.uri().path();
        let Some((_, kind)) = METHODS.into_iter().find(|(method, _)| *method == path) else {
            return Ok(None);
        };
        let of_connection = match request.extensions().get::<LongLived>() {
            Some(connection) => Some(connection.start(self.bounds.per_connection_max).ok_or_else(|| {
                Status::resource_exhausted("too many open streaming calls on this connection; close some")
            })?),
            None => None,
        };
        let of_all = self.open[kind].start(self.bounds.max).ok_or_else(|| {
            Status::resource_exhausted("too many open streaming calls on this server; try again later")
        })?;
        let of_peer = self.start_of_peer(peer, kind).ok_or_else(|| {
            Status::resource_exhausted(format!(
                "too many open streaming calls of {peer}; close some, or start the server with a higher --max-streaming-calls-per-peer"
            ))
        })?;
        Ok(Some(Arc::new(Places { _of_all: of_all, _of_connection: of_connection, _of_peer: of_peer })))
    }

    fn start_of_peer(&self, peer: &Arc<str>, kind: usize) -> Option<OfPeer> {
        let mut of_peers = self.of_peers.lock();
        if of_peers.get(peer).map_or(0, |open| open[kind]) >= self.bounds.per_peer_max {
            return None;
        }
        of_peers.entry(Arc::clone(peer)).or_default()[kind] += 1;
        Some(OfPeer { of_peers: Arc::clone(&self.of_peers), peer: Arc::clone(peer), kind })
    }
}

impl Places {
    /// Keeps the places for as long as the response's body is open.
    pub(in crate::api) fn keep(
        self: Arc<Self>,
        response: Response<tonic::body::Body>,
    ) -> Response<tonic::body::Body> {
        response.map(|body| {
            tonic::body::Body::new(body.map_frame(move |frame| {
                let _places = &self;
                frame
            }))
        })
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
        let bounds = LongLivedBounds { max: 3, per_connection_max: 2, per_peer_max: 3 };
        let calls = LongLivedCalls::new(bounds);
        let (one, other) = (LongLived::default(), LongLived::default());
        let start = |connection| calls.start(&call(METHODS[0].0, connection), &"192.0.2.1".into());
        let open = [start(&one), start(&one)];
        assert!(open.iter().all(|places| matches!(places, Ok(Some(_)))));
        let message = |refused: Result<Option<Arc<Places>>, Status>| {
            refused.err().map(|status| status.message().to_owned())
        };
        assert!(message(start(&one)).is_some_and(|text| text.contains("this connection")));
        let third = start(&other);
        assert!(message(start(&other)).is_some_and(|text| text.contains("this server")));
        drop((open, third));
        assert!(start(&other).is_ok() && start(&one).is_ok());
    }

    #[test]
    fn a_peer_does_not_take_the_places_of_others() {
        let bounds = LongLivedBounds { max: 9, per_connection_max: 9, per_peer_max: 2 };
        let calls = LongLivedCalls::new(bounds);
        let start = |peer: &str| calls.start(&call(METHODS[0].0, &LongLived::default()), &peer.into());
        let open = [start("192.0.2.1"), start("192.0.2.1")];
        let refused = start("192.0.2.1").err().map(|status| status.message().to_owned());
        assert!(refused.is_some_and(|text| text.contains("of 192.0.2.1")));
        assert!(start("192.0.2.2").is_ok());
        drop(open);
        assert!(start("192.0.2.1").is_ok());
        assert!(calls.of_peers.lock().is_empty());
    }

    /// Streams of quotas that sent nothing kept watches, the tail and reflection out, and the other way round.
    #[test]
    fn calls_of_one_kind_do_not_take_the_places_of_another() {
        let calls = LongLivedCalls::new(LongLivedBounds { max: 2, per_connection_max: 9, per_peer_max: 1 });
        let start = |method: usize, peer: &str| {
            calls.start(&call(METHODS[method].0, &LongLived::default()), &peer.into()).ok()
        };
        let quotas = [start(4, "192.0.2.1"), start(4, "192.0.2.2")];
        assert!(quotas.iter().all(Option::is_some));
        assert!(start(4, "192.0.2.1").is_none() && start(4, "192.0.2.3").is_none());
        let others = [start(0, "192.0.2.1"), start(1, "192.0.2.1"), start(3, "192.0.2.1")];
        assert!(others.iter().all(Option::is_some));
        // Both versions of reflection are one kind.
        assert!(start(2, "192.0.2.1").is_none());
        drop((quotas, others));
        assert!(start(4, "192.0.2.1").is_some() && calls.of_peers.lock().is_empty());
    }

    #[test]
    fn unary_calls_take_no_place() {
        let bounds = LongLivedBounds { max: 0, per_connection_max: 0, per_peer_max: 0 };
        let calls = LongLivedCalls::new(bounds);
        assert!(matches!(
            calls.start(&call("/grpc.health.v1.Health/Check", &LongLived::default()), &"unix".into()),
            Ok(None)
        ));
    }
}
