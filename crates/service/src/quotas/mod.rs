//! Quotas: limits that clients enforce by themselves, by assignments that they are sent on a stream (RLQS).
//!
//! One thread has all of their state, and decides no requests. Streams send it their reports, and take their assignments from an outbox.
//! The thread serves peers in turns, and their memory is bounded. The shares are those of [`tidegate_shared::quota`], of the same counters
//! that decide other requests.
//!
//! Invariants: a stream has at most one message of reports that the thread has not handled; an outbox has one assignment of each bucket.

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

/// The requests of a client to one bucket since its last report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BucketReport {
    /// The bucket.
    pub bucket: BucketName,
    /// Its requests.
    pub usage: Usage,
}

/// Assignments of buckets that no limit divides, which admit or deny all requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlanketCounts {
    /// Assignments that admit all.
    pub allowed: u64,
    /// Assignments that deny all.
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
    /// Sum of what may be in force at clients, over all limits.
    pub in_force: Part,
    /// Reports of buckets.
    pub reports: u64,
    /// Requests to a shared store for parts of its limits.
    pub part_requests: u64,
    /// Responses to these requests.
    pub part_grants: u64,
    /// Assignments of shares.
    pub counts: QuotaCounts,
    /// Assignments of buckets that no limit divides.
    pub blanket: BlanketCounts,
    /// Reports without an assignment, because there are too many buckets.
    pub refused: u64,
    /// Reports without an assignment, because the memory of quotas is used up, or one peer's part of it.
    pub refused_memory: u64,
    /// Bytes that buckets and clients take, and their bound.
    pub memory: u64,
    /// See `memory`.
    pub memory_max: u64,
    /// Whether unknown assignments of a former process may be in force.
    pub is_learning: bool,
    /// Reports without an assignment, because there is no room for a counter.
    pub refused_counters: u64,
    /// Requests that clients admitted, as they reported.
    pub admitted: u64,
    /// Requests that clients denied.
    pub denied: u64,
}

/// Records the ceilings of limits, by rule.
pub type Recorder = dyn Fn(Vec<(RuleId, Ceiling)>) + Send;

/// What the thread starts with.
pub struct QuotaStart {
    /// The most bytes that buckets and clients take.
    pub memory_max: usize,
    /// What is known of the assignments of the former process.
    pub former: Former,
    /// The recorded ceilings, if this process records them.
    pub ceilings: Option<Vec<(RuleId, Ceiling)>>,
    /// Records ceilings, and then calls [`Quotas::recorded`].
    pub record: Box<Recorder>,
    /// The shared store, if there is one, and the number of this server in it.
    pub store: Option<(NodeId, PartCalls)>,
    /// Whether the former process had the same number: its parts then belong to this process.
    pub had_number: bool,
}

impl QuotaStart {
    /// Without a record or a store, after a process that recorded nothing.
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

/// The other end of a stream. Reports do not contain their sender.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QuotaPeer {
    /// Its address, as in the decision log. Empty if it is unknown.
    pub address: Arc<str>,
    /// The verified names in its certificate.
    pub names: Arc<[String]>,
}

/// An event for the thread.
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
        /// Number of reports that were not read.
        beyond: u64,
        /// Gets the number of new buckets.
        taken: oneshot::Sender<u32>,
    },
    /// The client acts on what was put into its outbox until this time.
    Received {
        stream: u64,
        until: Timestamp,
    },
    Close {
        stream: u64,
    },
    /// These ceilings are recorded.
    Recorded(Vec<(RuleId, Ceiling)>),
    /// A store has responded to a request for this server's part of a bucket.
    Granted {
        bucket: Key,
        sequence: u64,
        grant: PartGrant,
    },
    /// Reads a part of the state.
    List(PieceRequest),
    /// Ends all streams, including those opened later.
    Drain,
    /// Ends the thread.
    Stop,
}

/// The quotas of the server. Clones share everything.
#[derive(Clone)]
pub struct Quotas(Arc<Shared>);

struct Shared {
    events: Sender<Event>,
    /// Taken by the thread when it starts.
    receiver: Mutex<Option<Receiver<Event>>>,
    streams: AtomicU64,
    /// Numbers peers.
    peers: PeerIds,
    figures: Mutex<QuotaFigures>,
}

/// Receipt for what a stream was sent until a time.
pub struct Receipt {
    stream: u64,
    quotas: Quotas,
    until: Timestamp,
}

impl Receipt {
    /// Notes that the client has received everything and acts on it.
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
    /// Its assignments to send.
    pub outbox: Arc<Outbox>,
}

impl Default for Quotas {
    /// Quotas without a thread: reports wait until it runs.
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

    /// The buckets that a query selects, those with the most demand first. Reads them in pieces, so that reports are handled in between.
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

    /// Ends all streams, including those opened later.
    pub fn drain(&self) {
        self.send(Event::Drain);
    }

    /// The figures.
    pub fn figures(&self) -> QuotaFigures {
        *self.0.figures.lock()
    }

    /// Notes that these ceilings are recorded.
    pub fn recorded(&self, parts: Vec<(RuleId, Ceiling)>) {
        self.send(Event::Recorded(parts));
    }

    /// Passes on the response of a shared store.
    pub fn granted(&self, bucket: Key, sequence: u64, grant: PartGrant) {
        self.send(Event::Granted { bucket, sequence, grant });
    }

    fn send(&self, event: Event) {
        // After the thread has ended, events are dropped.
        let _ = self.0.events.send(event);
    }
}

impl QuotaStream {
    /// A receipt for what was put into the outbox until `until`.
    pub fn receipt(&self, until: Timestamp) -> Receipt {
        Receipt { stream: self.number, quotas: self.quotas.clone(), until }
    }

    /// Passes on reports of the client, and the number of those that were not read. Waits until they are handled. Returns the number of new
    /// buckets.
    pub async fn report(&self, reports: Vec<BucketReport>, beyond: u64) -> u32 {
        let (taken, is_taken) = oneshot::channel();
        self.quotas.send(Event::Report { stream: self.number, reports, beyond, taken });
        // An error means that the thread has ended.
        is_taken.await.unwrap_or(0)
    }
}

impl Drop for QuotaStream {
    fn drop(&mut self) {
        self.quotas.send(Event::Close { stream: self.number });
    }
}
