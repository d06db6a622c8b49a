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

    /// Appends the state as it is to be stored. Its length must be stored with it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Words(words) => {
                out.push(Kind::Words as u8);
                out.extend(words.iter().flat_map(|word| word.to_le_bytes()));
            }
            Self::Log(runs) => {
                out.push(Kind::Log as u8);
                runs.write(out);
            }
            Self::Counts(counts) => {
                out.push(Kind::Counts as u8);
                counts.write(out);
            }
        }
    }

    /// The state that was stored. Bytes that pass as a state, though none wrote them, are a state that can do no harm
    /// but to count wrongly: whether they are the ones that were written is for a checksum to say.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let (&kind, bytes) = bytes.split_first().ok_or(StateError::Empty)?;
        let state = match kind {
            kind if kind == Kind::Words as u8 => <[u8; 16]>::try_from(bytes).ok().map(|bytes| {
                let [low, high] = [&bytes[..8], &bytes[8..]]
                    .map(|word| u64::from_le_bytes(word.try_into().expect("half of sixteen bytes")));
                Self::Words([low, high])
            }),
            kind if kind == Kind::Log as u8 => Runs::read(bytes).map(|runs| Self::Log(Box::new(runs))),
            kind if kind == Kind::Counts as u8 => {
                Counts::read(bytes).map(|counts| Self::Counts(Box::new(counts)))
            }
            kind => return Err(StateError::Kind { kind }),
        };
        state.ok_or(StateError::Damaged)
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

/// The first byte of a stored state. These numbers are in files: they never change.
enum Kind {
    Words = 0,
    Log = 1,
    Counts = 2,
}

/// Why bytes are no stored state.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StateError {
    /// There are none.
    #[error("a stored state has at least one byte")]
    Empty,
    /// A later version may have written it.
    #[error("{kind} is not a kind of state that this version knows")]
    Kind {
        /// The first byte.
        kind: u8,
    },
    /// The kind is known, but not what follows.
    #[error("the bytes of a stored state are damaged")]
    Damaged,
}

impl Default for State {
    fn default() -> Self {
        Self::EMPTY
    }
}
