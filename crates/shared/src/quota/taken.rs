//! Hits that clients of each peer spent of a limit that is divided by slices.

use crate::PeerId;
use tidegate_core::{
    algorithm::{Algorithm, State},
    limit::Timestamp,
};

/// A counter for each peer, of the hits that its clients spent and that still count.
#[derive(Clone, Debug, Default)]
pub(super) struct Taken(Vec<(PeerId, State)>);

impl Taken {
    /// Memory in bytes. Includes an estimate for states of many hits, which are stored elsewhere.
    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * (size_of::<(PeerId, State)>() + 64)
    }

    pub(super) fn of(&self, peer: PeerId, algorithm: &Algorithm, now: Timestamp) -> u64 {
        let state = self.0.iter().find(|(known, _)| *known == peer).map(|(_, state)| state);
        state.map_or(0, |state| algorithm.used(state, now))
    }

    pub(super) fn add(&mut self, peer: PeerId, algorithm: &Algorithm, hits: u64, now: Timestamp) {
        if peer == PeerId::NONE || hits == 0 {
            return;
        }
        let known = self.0.iter().position(|(known, _)| *known == peer);
        let index = known.unwrap_or_else(|| {
            // Drops peers without hits that count.
            self.0.retain(|(_, state)| algorithm.used(state, now) > 0);
            self.0.push((peer, State::EMPTY));
            self.0.len() - 1
        });
        let state = std::mem::replace(&mut self.0[index].1, State::EMPTY);
        self.0[index].1 = algorithm.add(state, hits, now);
    }
}
