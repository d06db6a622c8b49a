//! What one counter remembers between two requests.
//!
//! Two words are enough for most algorithms. The sliding log and the sub-windows need more and keep it behind a box.
//! A state means something only to the algorithm that made it; any other reads it as empty, and
//! [`Algorithm::take_over`](super::Algorithm::take_over) is the way from one to the other.

use super::{runs::Runs, sub_windows::Counts};

/// What one counter remembers. [`State::EMPTY`] is empty to every algorithm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// Each algorithm packs its own meaning into the two.
    Words([u64; 2]),
    /// Of a sliding log: when each hit came.
    Log(Box<Runs>),
    /// Of a sliding window of several sub-windows: how many hits came in each.
    Counts(Box<Counts>),
}

impl State {
    /// Never hit.
    pub const EMPTY: Self = Self::Words([0, 0]);

    /// The two words; of a state that is not made of words, those of the empty one.
    #[inline]
    pub(super) fn words(&self) -> [u64; 2] {
        match self {
            Self::Words(words) => *words,
            Self::Log(_) | Self::Counts(_) => [0, 0],
        }
    }

    /// Bytes that it holds beyond its own size.
    pub fn heap_bytes(&self) -> usize {
        match self {
            Self::Words(_) => 0,
            Self::Log(runs) => size_of::<Runs>() + runs.heap_bytes(),
            Self::Counts(counts) => size_of::<Counts>() + counts.heap_bytes(),
        }
    }
}

impl Default for State {
    fn default() -> Self {
        Self::EMPTY
    }
}
