//! Reports that wait to be taken in. Peers take turns, a piece of a message each: a peer that reports all the time does not delay others.
//!
//! Invariant: reports of a stream are taken in in their order, and a message is taken once its last report is.

use super::BucketReport;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::{collections::VecDeque, vec};
use tidegate_shared::PeerId;
use tokio::sync::oneshot;

/// Reports that are taken in at a turn.
const PIECE: usize = 250;

/// A message of reports.
pub(super) struct Waiting {
    pub(super) stream: u64,
    pub(super) reports: vec::IntoIter<BucketReport>,
    /// Buckets that are new, of those that were taken in.
    pub(super) added: u32,
    pub(super) taken: oneshot::Sender<u32>,
}

/// The messages that wait, of each peer in their order.
#[derive(Default)]
pub(super) struct Turns {
    of_peers: HashMap<PeerId, VecDeque<Waiting>, RandomState>,
    /// The peers with messages, the next one first.
    next: VecDeque<PeerId>,
}

impl Turns {
    pub(super) fn is_empty(&self) -> bool {
        self.next.is_empty()
    }

    /// Number of peers with messages that wait.
    pub(super) fn peers(&self) -> usize {
        self.next.len()
    }

    /// Adds a message behind those of the peer.
    pub(super) fn add(&mut self, peer: PeerId, waiting: Waiting) {
        let of_peer = self.of_peers.entry(peer).or_default();
        if of_peer.is_empty() {
            self.next.push_back(peer);
        }
        of_peer.push_back(waiting);
    }

    /// The first message of the next peer, and its next reports.
    pub(super) fn take(&mut self) -> Option<(PeerId, Waiting, Vec<BucketReport>)> {
        let peer = self.next.pop_front()?;
        let mut waiting = self.of_peers.get_mut(&peer)?.pop_front()?;
        let piece = waiting.reports.by_ref().take(PIECE).collect();
        Some((peer, waiting, piece))
    }

    /// Notes that this piece was taken in. The rest of the message has another turn.
    pub(super) fn took(&mut self, peer: PeerId, waiting: Waiting) {
        let Some(of_peer) = self.of_peers.get_mut(&peer) else { return };
        if waiting.reports.as_slice().is_empty() {
            // The stream has ended meanwhile.
            let _ = waiting.taken.send(waiting.added);
        } else {
            of_peer.push_front(waiting);
        }
        if of_peer.is_empty() {
            self.of_peers.remove(&peer);
        } else {
            self.next.push_back(peer);
        }
    }
}
