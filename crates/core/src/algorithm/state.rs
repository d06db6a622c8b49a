//! The state of one counter.
//!
//! Two words are enough for most algorithms. The sliding log, the sub-windows and slots need more and keep it behind a box, as do
//! leases and reservations on a counter of any algorithm.
//! A state means something only to the algorithm that made it; any other reads it as empty, and
//! [`Algorithm::take_over`](super::Algorithm::take_over) converts one to the other.

use super::{concurrency::Slots, leased::Leased, reserved::Reserved, runs::Runs, sub_windows::Counts};

/// The state of one counter. [`State::EMPTY`] is empty to every algorithm.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// Each algorithm packs its own meaning into the two.
    Words([u64; 2]),
    /// Sliding log: the time of each hit.
    Log(Box<Runs>),
    /// Sliding window with several sub-windows: the number of hits in each.
    Counts(Box<Counts>),
    /// Concurrency: the slots that are held.
    Slots(Box<Slots>),
    /// Any other state, and leases on the counter.
    Leased(Box<Leased>),
    /// Any other but a leased one, and the reservations on the counter.
    Reserved(Box<Reserved>),
}

impl State {
    /// No hits.
    pub const EMPTY: Self = Self::Words([0, 0]);

    /// The two words; of a state that is not made of words, those of the empty one.
    #[inline]
    pub(super) fn words(&self) -> [u64; 2] {
        match self {
            Self::Words(words) => *words,
            Self::Log(_) | Self::Counts(_) | Self::Slots(_) | Self::Leased(_) | Self::Reserved(_) => [0, 0],
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
            Self::Slots(slots) => {
                out.push(Kind::Slots as u8);
                slots.write(out);
            }
            Self::Leased(leased) => {
                out.push(Kind::Leased as u8);
                leased.write(out);
            }
            Self::Reserved(reserved) => {
                out.push(Kind::Reserved as u8);
                reserved.write(out);
            }
        }
    }

    /// The state that was stored. Any state that decodes is safe to use with every algorithm, though it
    /// may count wrongly: corruption is for a checksum to detect.
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
            kind if kind == Kind::Slots as u8 => Slots::read(bytes).map(|slots| Self::Slots(Box::new(slots))),
            kind if kind == Kind::Leased as u8 => {
                Leased::read(bytes).map(|leased| Self::Leased(Box::new(leased)))
            }
            kind if kind == Kind::Reserved as u8 => {
                Reserved::read(bytes).map(|reserved| Self::Reserved(Box::new(reserved)))
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
            Self::Slots(slots) => size_of::<Slots>() + slots.heap_bytes(),
            Self::Leased(leased) => size_of::<Leased>() + leased.heap_bytes(),
            Self::Reserved(reserved) => size_of::<Reserved>() + reserved.heap_bytes(),
        }
    }
}

/// The first byte of a stored state. These numbers are in files: they never change.
enum Kind {
    Words = 0,
    Log = 1,
    Counts = 2,
    Slots = 3,
    Leased = 4,
    Reserved = 5,
}

/// Reason why bytes do not decode.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StateError {
    /// No bytes.
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
