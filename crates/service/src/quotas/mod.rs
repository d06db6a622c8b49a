//! Quotas: limits that clients enforce by themselves, by the assignments that they are sent on a stream (RLQS).
//!
//! A thread beside those with decisions has all of their state: streams pass it their reports, and take what they have to send from an
//! outbox. Peers take turns at it, and their memory is bounded. The shares are those of [`tidegate_shared::quota`], of the counters that decide other requests too.
//!
//! Invariants: a stream has one report at most that the thread has not taken in; an outbox has one assignment of each bucket.

mod bucket_name;
mod client;
mod divider;
mod listing;
mod names;
mod outbox;
mod pieces;
mod run;
mod subscriptions;
#[cfg(test)]
mod tests;
mod turns;

pub use bucket_name::BucketName;
pub use listing::{BucketFilter, QuotaBucket, QuotaList, QuotaQuery, QuotaSubscriber};
pub use outbox::{Outbox, SentAssignment, StreamEnd};
pub use tidegate_shared::quota::Assignment;

use listing::PieceRequest;
use parking_lot::Mutex;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
    mpsc::{Receiver, Sender, channel},
};
use tidegate_core::{limit::Timestamp, store::Key};
use tidegate_shared::{
    PeerId, PeerIds,
    lease::NodeId,
    quota::{Ceiling, Former, Part, PartGrant, QuotaCounts, RuleId, Usage},
    store::PartCalls,
};
use tokio::sync::oneshot;

/// The requests of a client to one bucket, since its report before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BucketReport {
    /// The bucket.
    pub bucket: BucketName,
    /// Its requests.
    pub usage: Usage,
}

/// Assignments of buckets that no limit divides: all requests are admitted, or all denied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlanketCounts {
    /// Those that admit all.
    pub allowed: u64,
    /// Those that deny all.
    pub denied: u64,
    /// Buckets abandoned.
    pub abandoned: u64,
}

/// Figures of quotas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct QuotaFigures {
    /// Open streams.
    pub streams: u64,
    /// Buckets that clients report, of all streams.
    pub buckets: u64,
    /// What clients may have in force of all limits.
    pub in_force: Part,
    /// Reports of buckets.
    pub reports: u64,
    /// Requests to a shared store for parts of its limits.
    pub part_requests: u64,
    /// Their responses.
    pub part_grants: u64,
    /// Assignments of shares.
    pub counts: QuotaCounts,
    /// Assignments of buckets that no limit divides.
    pub blanket: BlanketCounts,
    /// Reports that got no assignment, since there are too many buckets.
    pub refused: u64,
    /// Reports that got no assignment, since the memory of quotas is used up, or the part of one peer.
    pub refused_memory: u64,
    /// Bytes that buckets and clients take, and the most that they may.
    pub memory: u64,
    /// See `memory`.
    pub memory_max: u64,
    /// Whether assignments of a former process may be in force that are not known.
    pub is_learning: bool,
    /// Reports that got no assignment, since there is no room for a counter.
    pub refused_counters: u64,
    /// Requests that clients admitted, as they reported.
    pub admitted: u64,
    /// Requests that clients denied.
    pub denied: u64,
}

/// Writes the parts of limits that clients may have, by rule.
pub type Recorder = dyn Fn(Vec<(RuleId, Ceiling)>) + Send;

/// What the thread starts with.
pub struct QuotaStart {
    /// The most bytes that buckets and clients take.
    pub memory_max: usize,
    /// What is known of the assignments of the process before this one.
    pub former: Former,
    /// What is recorded, if what is assigned is.
    pub ceilings: Option<Vec<(RuleId, Ceiling)>>,
    /// Records more, and calls [`Quotas::recorded`] then.
    pub record: Box<Recorder>,
    /// The shared store, if there is one, and this server's number there.
    pub store: Option<(NodeId, PartCalls)>,
    /// Whether the process before this one had that number: its parts are those of this one.
    pub had_number: bool,
}

impl QuotaStart {
    /// Without a record or a store, and after a process that recorded nothing.
    pub fn unrecorded(memory_max: usize) -> Self {
        Self {
            memory_max,
            former: Former::Unrecorded,
            ceilings: None,
            record: Box::new(drop),
            store: None,
            had_number: false,
        }
    }
}

/// The other end of a stream: nothing in a report names its sender.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QuotaPeer {
    /// Its address, as the decision log has it. Empty if nothing shows it.
    pub address: Arc<str>,
    /// The verified names in its certificate.
    pub names: Arc<[String]>,
}

/// What the thread takes in.
enum Event {
    Open {
        stream: u64,
        domain: Arc<str>,
        peer: QuotaPeer,
        peer_id: PeerId,
        outbox: Arc<Outbox>,
    },
    Report {
        stream: u64,
        reports: Vec<BucketReport>,
        /// Number of those that were not read.
        beyond: u64,
        /// Gets the number of buckets that were new.
        taken: oneshot::Sender<u32>,
    },
    /// The client acts on what was put into its outbox until then.
    Received {
        stream: u64,
        until: Timestamp,
    },
    Close {
        stream: u64,
    },
    /// What was to be recorded is.
    Recorded(Vec<(RuleId, Ceiling)>),
    /// A store has responded to a request for this server's part of a bucket.
    Granted {
        bucket: Key,
        sequence: u64,
        grant: PartGrant,
    },
    /// Reads a part of the state.
    List(PieceRequest),
    /// Ends all streams, those opened later too.
    Drain,
    /// Ends the thread.
    Stop,
}

/// The quotas of the server. Clones share everything.
#[derive(Clone)]
pub struct Quotas(Arc<Shared>);

struct Shared {
    events: Sender<Event>,
    /// Until the thread takes it.
    receiver: Mutex<Option<Receiver<Event>>>,
    streams: AtomicU64,
    /// Numbers peers.
    peers: PeerIds,
    figures: Mutex<QuotaFigures>,
}

/// What a stream was sent, until a time.
pub struct Receipt {
    stream: u64,
    quotas: Quotas,
    until: Timestamp,
}

impl Receipt {
    /// Notes that the client has received it and acts on it.
    pub fn confirm(self) {
        self.quotas.send(Event::Received { stream: self.stream, until: self.until });
    }
}

/// An open stream; closed when it is dropped.
pub struct QuotaStream {
    /// Its number since the start.
    pub number: u64,
    /// Its domain.
    pub domain: Arc<str>,
    quotas: Quotas,
    /// What it has to send.
    pub outbox: Arc<Outbox>,
}

impl Default for Quotas {
    /// Without a thread: reports wait for it.
    fn default() -> Self {
        let (events, receiver) = channel();
        let (receiver, streams, peers) = (Mutex::new(Some(receiver)), AtomicU64::new(0), PeerIds::default());
        Self(Arc::new(Shared { events, receiver, streams, peers, figures: Mutex::default() }))
    }
}

impl Quotas {
    /// Opens a stream of a client for a domain.
    pub fn open(&self, domain: &str, peer: QuotaPeer) -> QuotaStream {
        let number = self.0.streams.fetch_add(1, Ordering::Relaxed);
        let outbox = Arc::<Outbox>::default();
        let domain = Arc::<str>::from(domain);
        let (of_thread, to_send) = (Arc::clone(&domain), Arc::clone(&outbox));
        let peer_id = self.0.peers.of(&peer.address);
        self.send(Event::Open { stream: number, domain: of_thread, peer, peer_id, outbox: to_send });
        QuotaStream { number, domain, quotas: self.clone(), outbox }
    }

    /// The buckets that a query selects, those with most demand first. Reads them in pieces, so that reports are taken in meanwhile.
    pub async fn list(&self, query: QuotaQuery) -> QuotaList {
        let (query, mut list) = (Arc::new(query), QuotaList::default());
        let mut place = Some(0);
        while let Some(from) = place {
            let (respond, piece) = oneshot::channel();
            let demand_above = list.demand_above(&query);
            self.send(Event::List(PieceRequest { query: Arc::clone(&query), from, demand_above, respond }));
            // The thread has ended: nothing is assigned any more.
            let Ok((piece, next)) = piece.await else { break };
            place = next;
            list.add(piece, &query);
        }
        list
    }

    /// Ends all streams, and those that are opened later.
    pub fn drain(&self) {
        self.send(Event::Drain);
    }

    /// The figures.
    pub fn figures(&self) -> QuotaFigures {
        *self.0.figures.lock()
    }

    /// Notes that what was to be recorded is.
    pub fn recorded(&self, parts: Vec<(RuleId, Ceiling)>) {
        self.send(Event::Recorded(parts));
    }

    /// Takes in the response of a shared store.
    pub fn granted(&self, bucket: Key, sequence: u64, grant: PartGrant) {
        self.send(Event::Granted { bucket, sequence, grant });
    }

    fn send(&self, event: Event) {
        // After the thread has ended, nothing is taken in.
        let _ = self.0.events.send(event);
    }
}

impl QuotaStream {
    /// For what was put into the outbox until then.
    pub fn receipt(&self, until: Timestamp) -> Receipt {
        Receipt { stream: self.number, quotas: self.quotas.clone(), until }
    }

    /// Passes reports of the client on, with the number of those that were not read, and waits until they are taken in. Returns the number of
    /// buckets that were new.
    pub async fn report(&self, reports: Vec<BucketReport>, beyond: u64) -> u32 {
        let (taken, is_taken) = oneshot::channel();
        self.quotas.send(Event::Report { stream: self.number, reports, beyond, taken });
        // An error: the thread has ended.
        is_taken.await.unwrap_or(0)
    }
}

impl Drop for QuotaStream {
    fn drop(&mut self) {
        self.quotas.send(Event::Close { stream: self.number });
    }
}
