//! Bounds on the number of connections, in total and per peer.
//!
//! A connection beyond a bound is admitted if an idle connection can make room: the idlest of all, or of those of the same peer, is
//! evicted. So clients that connect and send nothing cannot lock others out.
//!
//! Invariant: at most `max` connections are open, beside at most [`EVICTING_MAX`] that are being evicted.

use parking_lot::Mutex;
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};
use tidegate_core::limit::Timestamp;
use tidegate_http2::{Activity, ConnectionCounts, ConnectionRefusal};
use tidegate_transport::Peer;

/// Evicted connections that may not have ended yet.
const EVICTING_MAX: usize = 64;
/// Candidates for eviction that are found by one scan of all connections.
const CANDIDATES_MAX: usize = 64;
/// Time after a scan that found no candidate before the next.
const SCAN_INTERVAL: Duration = Duration::from_millis(100);

/// Time between log lines about refused connections.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Bounds on connections.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionBounds {
    /// Connections at once.
    pub max: usize,
    /// Connections at once of one IPv4 address, one IPv6 /64 network, or one user on a Unix socket.
    pub per_peer_max: usize,
}

/// All open connections.
pub(super) struct Connections {
    bounds: ConnectionBounds,
    counts: Arc<ConnectionCounts>,
    /// Whole between any two statements that can panic.
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    /// Open connections, without those being evicted.
    open: HashMap<u64, Open>,
    /// Numbers of connections that are being evicted.
    evicting: HashSet<u64>,
    /// Open connections of each peer; never zero.
    per_peer: HashMap<Peer, usize>,
    next_number: u64,
    /// Results of scans: of all connections, and of those of peers at their bound.
    scans: HashMap<Scope, Scan>,
    /// Time at which a refused connection was last logged.
    refusal_logged: Option<Timestamp>,
}

struct Open {
    peer: Peer,
    activity: Arc<Activity>,
}

/// The connections that may make room for a new one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Scope {
    All,
    Peer(Peer),
}

struct Scan {
    /// Time at which it found no candidate, if it did not.
    found_none: Option<Timestamp>,
    /// Numbers of connections and their ranks at the scan, the first to be evicted last.
    candidates: Vec<(u64, u64)>,
}

/// The place of one connection; given back when dropped.
pub(super) struct Admission {
    number: u64,
    pub(super) activity: Arc<Activity>,
    connections: Arc<Connections>,
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.connections.table.lock().remove(self.number);
    }
}

impl Connections {
    pub(super) fn new(bounds: ConnectionBounds, counts: Arc<ConnectionCounts>) -> Arc<Self> {
        Arc::new(Self { bounds, counts, table: Mutex::default() })
    }

    /// Admits a connection, evicting another connection if needed; none if there is no room.
    pub(super) fn admit(self: &Arc<Self>, peer: Peer, now: Timestamp) -> Option<Admission> {
        let admitted = self.table.lock().admit(peer, &self.bounds, now);
        let (number, activity) = admitted.map_err(|scope| self.count_refusal(scope)).ok()?;
        Some(Admission { number, activity, connections: Arc::clone(self) })
    }

    fn count_refusal(&self, scope: Scope) {
        self.counts.not_admitted.count(match scope {
            Scope::All => ConnectionRefusal::Max,
            Scope::Peer(_) => ConnectionRefusal::PerPeerMax,
        });
    }
}

impl Table {
    /// Admits a connection; an error is the scope that is full.
    fn admit(
        &mut self,
        peer: Peer,
        bounds: &ConnectionBounds,
        now: Timestamp,
    ) -> Result<(u64, Arc<Activity>), Scope> {
        let of_peer = self.per_peer.get(&peer).copied().unwrap_or(0);
        let full = if of_peer >= bounds.per_peer_max {
            Some(Scope::Peer(peer))
        } else {
            (self.open.len() >= bounds.max).then_some(Scope::All)
        };
        if let Some(scope) = full
            && !self.evict_one(scope, now)
        {
            self.log_refusal(scope, bounds, now);
            return Err(scope);
        }
        self.next_number += 1;
        let activity = Arc::new(Activity::new(Duration::from_nanos(now.as_nanos())));
        self.open.insert(self.next_number, Open { peer, activity: Arc::clone(&activity) });
        *self.per_peer.entry(peer).or_insert(0) += 1;
        Ok((self.next_number, activity))
    }

    /// Evicts the idlest connection; false if there is none, or too many are being evicted.
    fn evict_one(&mut self, scope: Scope, now: Timestamp) -> bool {
        if self.evicting.len() >= EVICTING_MAX {
            return false;
        }
        while let Some((number, rank)) = self.next_candidate(scope, now) {
            // It may have ended or had a request since the scan.
            if let Some(found) = self.open.get(&number).filter(|found| found.activity.rank() == Some(rank)) {
                found.activity.evict();
                self.close(number);
                self.evicting.insert(number);
                return true;
            }
        }
        false
    }

    fn next_candidate(&mut self, scope: Scope, now: Timestamp) -> Option<(u64, u64)> {
        if let Some(scan) = self.scans.get_mut(&scope) {
            let candidate = scan.candidates.pop();
            if candidate.is_some() || scan.found_none.is_some_and(|then| now.since(then) < SCAN_INTERVAL) {
                return candidate;
            }
        }
        let candidates = self.scan(scope);
        let found_none = candidates.is_empty().then_some(now);
        let scan = self.scans.entry(scope).insert_entry(Scan { found_none, candidates }).into_mut();
        scan.candidates.pop()
    }

    /// The candidates for eviction, the first to be evicted last.
    fn scan(&self, scope: Scope) -> Vec<(u64, u64)> {
        let in_scope = |open: &Open| scope == Scope::All || scope == Scope::Peer(open.peer);
        let of_scope = self.open.iter().filter(|(_, open)| in_scope(open));
        let mut found: Vec<(u64, u64)> =
            of_scope.filter_map(|(&number, open)| Some((number, open.activity.rank()?))).collect();
        // Numbers ascend with time: they order connections of one millisecond.
        let order = |&(number, rank): &(u64, u64)| (rank, number);
        if found.len() > CANDIDATES_MAX {
            found.select_nth_unstable_by_key(CANDIDATES_MAX, order);
            found.truncate(CANDIDATES_MAX);
        }
        found.sort_unstable_by_key(|candidate| std::cmp::Reverse(order(candidate)));
        found
    }

    /// Removes a connection that has ended.
    fn remove(&mut self, number: u64) {
        if !self.evicting.remove(&number) {
            self.close(number);
        }
    }

    fn close(&mut self, number: u64) {
        let Some(Open { peer, .. }) = self.open.remove(&number) else { return };
        if let Some(count) = self.per_peer.get_mut(&peer) {
            *count -= 1;
            if *count == 0 {
                self.per_peer.remove(&peer);
                self.scans.remove(&Scope::Peer(peer));
            }
        }
    }

    fn log_refusal(&mut self, scope: Scope, bounds: &ConnectionBounds, now: Timestamp) {
        if self.refusal_logged.is_some_and(|then| now.since(then) < LOG_INTERVAL) {
            return;
        }
        self.refusal_logged = Some(now);
        match scope {
            Scope::All => tracing::warn!(
                max = bounds.max,
                "too many connections, and none is idle; closing new ones (--max-connections)"
            ),
            Scope::Peer(peer) => tracing::warn!(
                ?peer,
                max = bounds.per_peer_max,
                "too many connections of one peer, and none is idle; closing new ones (--max-connections-per-peer)"
            ),
        }
    }
}

#[cfg(test)]
mod tests;
