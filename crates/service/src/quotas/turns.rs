//! Queues of reports. Peers are served in turns, with a piece of a message each, so that a peer that always reports does not delay others.
//! A round of all peers has about the same number of reports, whatever the number of peers. Reports that arrive meanwhile wait for its end.
//!
//! Invariant: reports of a stream are handled in order. A message is confirmed when its last report is handled.

use super::BucketReport;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::{collections::VecDeque, vec};
use tidegate_shared::PeerId;
use tokio::sync::oneshot;

/// Number of reports in a round, divided equally among the peers.
const ROUND: usize = 250;

/// Least number of reports of each peer in a round.
const PIECE_MIN: usize = 16;

/// A message of reports.
pub(super) struct Waiting {
    pub(super) stream: u64,
    pub(super) reports: vec::IntoIter<BucketReport>,
    /// Number of new buckets in the handled reports.
    pub(super) added: u32,
    pub(super) taken: oneshot::Sender<u32>,
}

/// The queued messages of each peer, in order.
#[derive(Default)]
pub(super) struct Turns {
    of_peers: HashMap<PeerId, VecDeque<Waiting>, RandomState>,
    /// The peers with messages, the next peer first.
    next: VecDeque<PeerId>,
}

impl Turns {
    pub(super) fn is_empty(&self) -> bool {
        self.next.is_empty()
    }

    /// Number of peers with queued messages.
    pub(super) fn peers(&self) -> usize {
        self.next.len()
    }

    /// Number of reports of each peer in this round.
    pub(super) fn piece(&self) -> usize {
        (ROUND / self.peers().max(1)).max(PIECE_MIN)
    }

    /// Adds a message behind those of the peer.
    pub(super) fn add(&mut self, peer: PeerId, waiting: Waiting) {
        let of_peer = self.of_peers.entry(peer).or_default();
        if of_peer.is_empty() {
            self.next.push_back(peer);
        }
        of_peer.push_back(waiting);
    }

    /// The first message of the next peer, and at most `most` of its next reports.
    pub(super) fn take(&mut self, most: usize) -> Option<(PeerId, Waiting, Vec<BucketReport>)> {
        let peer = self.next.pop_front()?;
        let mut waiting = self.of_peers.get_mut(&peer)?.pop_front()?;
        let piece = waiting.reports.by_ref().take(most).collect();
        Some((peer, waiting, piece))
    }

    /// Notes that this piece was handled. The rest of the message has another turn.
    pub(super) fn took(&mut self, peer: PeerId, waiting: Waiting) {
        let Some(of_peer) = self.of_peers.get_mut(&peer) else { return };
        if waiting.reports.as_slice().is_empty() {
            // The stream may have ended.
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

#[cfg(test)]
mod tests {
    use super::{
        super::{BucketName, Usage},
        *,
    };

    /// Eight addresses that always reported made a round of 2,000 reports, for which the reports of another address waited.
    #[test]
    fn a_round_of_many_peers_has_as_many_reports_as_one_of_a_single_peer() {
        let message = |reports| {
            let report =
                BucketReport { bucket: BucketName::new([("plan", "gold")]), usage: Usage::default() };
            let reports = vec![report; reports].into_iter();
            Waiting { stream: 0, reports, added: 0, taken: oneshot::channel().0 }
        };
        let round_of = |peers: u64| {
            let mut turns = Turns::default();
            (0..peers).for_each(|peer| turns.add(PeerId(peer), message(4_000)));
            turns.add(PeerId(peers), message(1));
            let (turn, most) = (turns.peers(), turns.piece());
            let mut taken = 0;
            for _ in 0..turn {
                let (peer, waiting, piece) = turns.take(most).expect("a peer has its turn");
                taken += piece.len();
                turns.took(peer, waiting);
            }
            assert_eq!(turns.peers(), peers as usize, "a message of one report is taken in in a round");
            taken
        };
        assert_eq!([0, 1, 8, 99].map(round_of), [1, 126, 217, 1_585]);
    }
}
