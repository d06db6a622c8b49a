//! Memory of quotas, in bytes: what a peer caused counts to it until it is freed, also after its streams have ended.
//!
//! Bytes are estimates, no less than the allocator takes for what they stand for: `tests/it/rlqs_bounds.rs` compares them with the memory of
//! the process. Invariant: all together are at most the bound, and those of one peer half of it.

use super::{member::Member, push::PeerId};
use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// A client of a bucket, without its name: its share, its places in tables, what peers of a slice spent, and an assignment that waits.
pub const SUBSCRIPTION_BYTES: usize = size_of::<Member>() + 250;

/// The memory that is taken.
#[derive(Debug)]
pub struct Memory {
    max: usize,
    used: usize,
    /// Bytes of each peer with any.
    of_peers: HashMap<PeerId, usize, RandomState>,
}

impl Memory {
    /// So much, of which nothing is taken.
    pub(super) fn new(max: usize) -> Self {
        Self { max, used: 0, of_peers: HashMap::default() }
    }

    /// The bound.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Bytes that are taken.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Whether a peer can take so much more.
    pub fn has_room(&self, peer: PeerId, bytes: usize) -> bool {
        let of_peer = self.of_peers.get(&peer).copied().unwrap_or(0);
        let is_within = |taken: usize, max: usize| taken.saturating_add(bytes) <= max;
        is_within(self.used, self.max) && is_within(of_peer, self.max / 2)
    }

    /// Takes so much for a peer. Ask first whether there is room.
    pub fn take(&mut self, peer: PeerId, bytes: usize) {
        self.used += bytes;
        *self.of_peers.entry(peer).or_insert(0) += bytes;
    }

    /// Gives back what was taken for a peer.
    pub fn give_back(&mut self, peer: PeerId, bytes: usize) {
        self.used = self.used.saturating_sub(bytes);
        if let Some(taken) = self.of_peers.get_mut(&peer) {
            *taken = taken.saturating_sub(bytes);
            if *taken == 0 {
                self.of_peers.remove(&peer);
            }
        }
    }

    /// Notes that lists of buckets, which peers share, take other memory than before. They grow only as shares of clients end, each of which
    /// took more.
    pub(super) fn replace_shared(&mut self, before: usize, bytes: usize) {
        self.used = self.used.saturating_sub(before).saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_half_at_most_and_others_the_rest() {
        let mut memory = Memory::new(100);
        let (one, other, third) = (PeerId(1), PeerId(2), PeerId(3));
        assert!(memory.has_room(one, 50) && !memory.has_room(one, 51));
        memory.take(one, 50);
        assert!(!memory.has_room(one, 1) && memory.has_room(other, 50));
        memory.take(other, 40);
        assert!(memory.has_room(third, 10) && !memory.has_room(third, 11));
        memory.give_back(one, 20);
        assert!(memory.has_room(one, 20) && !memory.has_room(one, 21));
        memory.give_back(one, 30);
        memory.give_back(other, 40);
        assert_eq!((memory.used(), memory.of_peers.len()), (0, 0));
    }
}
