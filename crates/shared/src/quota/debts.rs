//! Tokens that clients of peers gave up.

use crate::PeerId;

/// Thousandths of tokens that clients of each peer gave up and that have not drained.
#[derive(Clone, Debug, Default)]
pub(super) struct Debts(Vec<(PeerId, u64)>);

impl Debts {
    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<(PeerId, u64)>()
    }

    /// The peers with such tokens.
    pub(super) fn iter(&self) -> impl Iterator<Item = (PeerId, u64)> {
        self.0.iter().copied()
    }

    pub(super) fn add(&mut self, peer: PeerId, millitokens: u64) {
        if millitokens == 0 {
            return;
        }
        match self.0.iter_mut().find(|(known, _)| *known == peer) {
            Some((_, debt)) => *debt = debt.saturating_add(millitokens),
            None => self.0.push((peer, millitokens)),
        }
    }

    /// Drains all tokens from a sum of `before` to `after`: those of each peer in proportion.
    pub(super) fn drain(&mut self, before: u64, after: u64) {
        if after < before {
            for (_, debt) in &mut self.0 {
                *debt = (u128::from(*debt) * u128::from(after) / u128::from(before)) as u64;
            }
            self.0.retain(|(_, debt)| *debt > 0);
        }
    }
}
