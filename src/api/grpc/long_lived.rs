//! Bounds on calls that a client may keep open for any time: watches and bidirectional streams. Each kind has places of its own,
//! which other kinds cannot take.
//!
//! Invariant: when a peer opens a call, it has no more calls of that kind than places are left free. So one peer gets at most half of the
//! places and two peers get a third each, and there is room for another peer.

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
    /// Calls of one kind of one IPv4 address, IPv6 /64 network, or user on a Unix socket. A value above half of `max` lets a peer have more
    /// calls than it leaves free.
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
    open: Arc<Mutex<Open>>,
}

/// Numbers of open calls, by kind.
#[derive(Debug, Default)]
struct Open {
    of_all: [usize; KINDS],
    /// Open calls of each peer that has any.
    of_peers: HashMap<Arc<str>, [usize; KINDS]>,
}

/// Places of an open call, in its connection and in the server. They are free once every owner is gone.
pub(in crate::api) struct Places {
    _of_connection: Option<LongLivedCall>,
    _counted: Counted,
}

/// A call that is counted.
struct Counted {
    open: Arc<Mutex<Open>>,
    peer: Arc<str>,
    kind: usize,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut open = self.open.lock();
        open.of_all[self.kind] -= 1;
        if let Some(of_peer) = open.of_peers.get_mut(&self.peer) {
            of_peer[self.kind] -= 1;
            if *of_peer == [0; KINDS] {
                open.of_peers.remove(&self.peer);
            }
        }
    }
}

impl LongLivedBounds {
    /// Whether a peer with this many calls of a kind can open another while this many places are free.
    fn has_room(&self, of_peer: usize, free: usize) -> bool {
        let of_others = self.max.saturating_sub(self.per_peer_max);
        of_peer < self.per_peer_max
            && of_peer.saturating_mul(of_others) < self.per_peer_max.max(of_others).saturating_mul(free)
    }
}

impl LongLivedCalls {
    pub(in crate::api) fn new(bounds: LongLivedBounds) -> Self {
        Self { bounds, open: Arc::default() }
    }

    /// Takes places for a call that stays open; none for other calls. The error is the refusal, RESOURCE_EXHAUSTED.
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
        let counted = self.count(peer, kind)?;
        Ok(Some(Arc::new(Places { _of_connection: of_connection, _counted: counted })))
    }

    fn count(&self, peer: &Arc<str>, kind: usize) -> Result<Counted, Status> {
        let mut open = self.open.lock();
        let free = self.bounds.max.saturating_sub(open.of_all[kind]);
        if free == 0 {
            return Err(Status::resource_exhausted(
                "too many open streaming calls on this server; try again later",
            ));
        }
        let of_peer = open.of_peers.get(peer).map_or(0, |of_peer| of_peer[kind]);
        if !self.bounds.has_room(of_peer, free) {
            return Err(Status::resource_exhausted(format!(
                "too many open streaming calls of {peer}; close some, or start the server with a higher --max-streaming-calls or --max-streaming-calls-per-peer"
            )));
        }
        open.of_all[kind] += 1;
        open.of_peers.entry(Arc::clone(peer)).or_default()[kind] += 1;
        Ok(Counted { open: Arc::clone(&self.open), peer: Arc::clone(peer), kind })
    }
}

impl Places {
    /// Keeps the places while the response's body is open.
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
        assert!(calls.open.lock().of_peers.is_empty());
    }

    /// Idle quota streams once kept out watches, the tail and reflection, and vice versa.
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
        assert!(start(4, "192.0.2.1").is_some() && calls.open.lock().of_peers.is_empty());
    }

    /// Two addresses, each with half of the places, once kept out all others.
    #[test]
    fn any_number_of_peers_leaves_room_for_another() {
        let open_all = |bounds: LongLivedBounds, peers: usize| {
            let calls = LongLivedCalls::new(LongLivedBounds { per_connection_max: usize::MAX, ..bounds });
            let mut open = Vec::new();
            for round in 0..bounds.max {
                let start = |peer| calls.start(&call(QUOTA_STREAM, &LongLived::default()), &peer);
                let peers = (0..peers).map(|peer| format!("192.0.2.{peer}").into());
                let before = open.len();
                open.extend(peers.filter_map(|peer| start(peer).ok()));
                assert!(
                    start(format!("other {round}").into()).is_ok(),
                    "{peers:?} of {bounds:?}",
                    peers = open.len()
                );
                if open.len() == before {
                    break;
                }
            }
            open.len()
        };
        let bounds = LongLivedBounds::default();
        assert_eq!([1, 2, 3, 8].map(|peers| open_all(bounds, peers)), [500, 667, 750, 889]);
        // A bound that an operator raised for each peer.
        assert_eq!(open_all(LongLivedBounds { per_peer_max: 900, ..bounds }, 1), 900);
        assert_eq!(open_all(LongLivedBounds { per_peer_max: 10, ..bounds }, 50), 500);
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
