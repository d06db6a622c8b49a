//! A bound on bytes or pieces of work, which peers share. What a peer caused counts for the peer until it is freed, also after its
//! connections have ended.
//!
//! Invariant: all peers together have at most the bound, and one peer at most half of it.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::hash::{BuildHasher as _, RandomState as SecretState};

/// The number of a peer, whose clients are bounded together. Zero only if no peer is known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PeerId(pub u64);

impl PeerId {
    /// No peer that is known.
    pub(crate) const NONE: Self = Self(0);
}

/// Numbers peers by their addresses, at random in each process.
#[derive(Clone, Default, Debug)]
pub struct PeerIds(SecretState);

impl PeerIds {
    /// The number of the peer with this address.
    pub fn of(&self, address: &str) -> PeerId {
        PeerId(self.0.hash_one(address) | 1)
    }
}

/// The parts of a bound that are taken, by peer.
#[derive(Debug)]
pub struct FairBound {
    max: usize,
    used: usize,
    /// What each peer with any has taken.
    of_peers: HashMap<PeerId, usize, RandomState>,
}

impl FairBound {
    /// A bound of which nothing is taken.
    pub fn new(max: usize) -> Self {
        Self { max, used: 0, of_peers: HashMap::default() }
    }

    /// The bound.
    pub fn max(&self) -> usize {
        self.max
    }

    /// What is taken.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Whether a peer can take `more`.
    pub fn has_room(&self, peer: PeerId, more: usize) -> bool {
        let of_peer = self.of_peers.get(&peer).copied().unwrap_or(0);
        let is_within = |taken: usize, max: usize| taken.saturating_add(more) <= max;
        is_within(self.used, self.max) && is_within(of_peer, self.max / 2)
    }

    /// Takes `more` for a peer. Expects [`Self::has_room`].
    pub fn take(&mut self, peer: PeerId, more: usize) {
        self.used += more;
        *self.of_peers.entry(peer).or_insert(0) += more;
    }

    /// Gives back what was taken for a peer.
    pub fn give_back(&mut self, peer: PeerId, amount: usize) {
        self.used = self.used.saturating_sub(amount);
        if let Some(taken) = self.of_peers.get_mut(&peer) {
            *taken = taken.saturating_sub(amount);
            if *taken == 0 {
                self.of_peers.remove(&peer);
            }
        }
    }

    /// Replaces an amount that counts for all peers together and for none of them.
    pub(crate) fn replace_shared(&mut self, before: usize, amount: usize) {
        self.used = self.used.saturating_sub(before).saturating_add(amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_half_at_most_and_others_the_rest() {
        let mut bound = FairBound::new(100);
        let (one, other, third) = (PeerId(1), PeerId(2), PeerId(3));
        assert!(bound.has_room(one, 50) && !bound.has_room(one, 51));
        bound.take(one, 50);
        assert!(!bound.has_room(one, 1) && bound.has_room(other, 50));
        bound.take(other, 40);
        assert!(bound.has_room(third, 10) && !bound.has_room(third, 11));
        bound.give_back(one, 20);
        assert!(bound.has_room(one, 20) && !bound.has_room(one, 21));
        bound.give_back(one, 30);
        bound.give_back(other, 40);
        assert_eq!((bound.used(), bound.of_peers.len()), (0, 0));
    }
}
