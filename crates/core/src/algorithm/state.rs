//! The state of one counter.
//!
//! Two words are enough for most algorithms. The sliding log, the sub-windows and slots need more and keep it on the heap, as do
//! leases and reservations on a counter of any algorithm.
//! A state means something only to the algorithm that made it; any other reads it as empty, and
//! [`Algorithm::take_over`](super::Algorithm::take_over) converts one to the other.

use super::{assigned::Assigned, counts::Counts, numbers::StoredNumbers, runs::Runs, slots::Slots};
use crate::limit::Timestamp;
use std::{mem::ManuallyDrop, ops::Deref};

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
    Slots(Slots),
    /// Any other state, and leases on the counter.
    Leased(Box<Leased>),
    /// Any other state except a leased one, and the reservations on the counter.
    Reserved(Box<Reserved>),
}

impl State {
    /// No hits.
    pub const EMPTY: Self = Self::Words([0, 0]);

    /// The two words; for a state of another form, those of the empty state.
    #[inline]
    pub(super) fn words(&self) -> [u64; 2] {
        match self {
            Self::Words(words) => *words,
            Self::Log(_) | Self::Counts(_) | Self::Slots(_) | Self::Leased(_) | Self::Reserved(_) => [0, 0],
        }
    }

    /// Drops it. Two words need no drop, which the compiler finds out in a call only.
    #[inline(always)]
    pub(crate) fn discard(self) {
        match self {
            Self::Words(_) => std::mem::forget(self),
            boxed => drop(boxed),
        }
    }

    /// Whether it is more than two words.
    pub(crate) fn is_boxed(&self) -> bool {
        !matches!(self, Self::Words(_))
    }

    /// Whether it is neither leased nor has reservations.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        !matches!(self, Self::Leased(_) | Self::Reserved(_))
    }

    /// Appends the stored form. Its length must be stored with it.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Self::Words(_) => kind::WORDS,
            Self::Log(_) => kind::LOG,
            Self::Counts(_) => kind::COUNTS,
            Self::Slots(_) => kind::SLOTS,
            Self::Leased(_) => kind::LEASED,
            Self::Reserved(_) => kind::RESERVED,
        });
        match self {
            Self::Words(words) => out.extend(words.iter().flat_map(|word| word.to_le_bytes())),
            Self::Log(runs) => runs.write(out),
            Self::Counts(counts) => counts.write(out),
            Self::Slots(slots) => slots.write(out),
            Self::Leased(leased) => leased.write(out),
            Self::Reserved(reserved) => reserved.write(out),
        }
    }

    /// The state that was stored. Any state that decodes is safe to use with every algorithm, though it
    /// may count wrongly: corruption is for a checksum to detect.
    pub fn decode(bytes: &[u8]) -> Result<Self, StateError> {
        let (&kind, bytes) = bytes.split_first().ok_or(StateError::Empty)?;
        let state = match kind {
            kind::WORDS => match bytes.as_chunks() {
                ([low, high], []) => Some(Self::Words([low, high].map(|word| u64::from_le_bytes(*word)))),
                _ => None,
            },
            kind::LOG => Runs::read(bytes).map(|runs| Self::Log(Box::new(runs))),
            kind::COUNTS => Counts::read(bytes).map(|counts| Self::Counts(Box::new(counts))),
            kind::SLOTS => Slots::read(bytes).map(Self::Slots),
            kind::LEASED => Leased::read(bytes).map(|leased| Self::Leased(Box::new(leased))),
            kind::RESERVED => Reserved::read(bytes).map(|reserved| Self::Reserved(Box::new(reserved))),
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
            Self::Slots(slots) => slots.heap_bytes(),
            Self::Leased(leased) => size_of::<Leased>() + leased.heap_bytes(),
            Self::Reserved(reserved) => size_of::<Reserved>() + reserved.heap_bytes(),
        }
    }
}

/// A state to be read. Most are two words, for which no code to drop a state runs.
#[derive(Debug)]
pub enum StateView<'s> {
    /// A copy of two words.
    Words(ManuallyDrop<State>),
    /// The state of a counter.
    Borrowed(&'s State),
    /// A state that no counter has.
    Owned(State),
}

impl StateView<'_> {
    /// A view of two words.
    #[inline]
    pub fn of_words(words: [u64; 2]) -> Self {
        Self::Words(ManuallyDrop::new(State::Words(words)))
    }

    /// The state itself, copied if a counter has it.
    #[inline]
    pub fn into_owned(self) -> State {
        match self {
            Self::Words(state) => ManuallyDrop::into_inner(state),
            Self::Borrowed(state) => state.clone(),
            Self::Owned(state) => state,
        }
    }
}

impl Deref for StateView<'_> {
    type Target = State;

    #[inline]
    fn deref(&self) -> &State {
        match self {
            Self::Words(state) => state,
            Self::Borrowed(state) => state,
            Self::Owned(state) => state,
        }
    }
}

/// Bit of the stored number of leases that marks quota behind them.
const HAS_QUOTA: u64 = 1 << 63;

/// Credits of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// The node.
    pub node: u64,
    /// Number of its holder.
    pub holder: u64,
    /// Sequence number of its last request.
    pub sequence: u64,
    /// Its total of spent hits that are counted as used.
    pub settled: u64,
    /// Credits that it may spend beyond that.
    pub outstanding: u64,
    /// Time from which on it spends none of them.
    pub end: Timestamp,
    /// Hits that it expects in one lease length.
    pub demand: u64,
}

/// A counter and the leases on it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leased {
    /// Hits that are used; never leased itself.
    pub state: State,
    /// In no order. Ended leases stay until the next operation.
    pub leases: Vec<Lease>,
    /// Hits of a window from the first hit that exact decisions admitted: these are certainly in it.
    pub exact: u64,
    /// Hits of quota, if clients have any.
    pub assigned: Option<Assigned>,
}

/// A counter with open reservations.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reserved {
    /// The hits whose number is known.
    pub(super) settled: State,
    /// The settled hits, and the estimates of open reservations.
    pub(super) seen: State,
    /// In the order of their starts.
    pub(super) open: Vec<Open>,
}

/// Hits of one request until it ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reservation {
    /// The id by which it is ended; never 0.
    pub id: u64,
    /// The estimate; at least 1.
    pub hits: u32,
    /// The moment from which on it is not open, because its end did not arrive.
    pub deadline: Timestamp,
    /// Whether its hits are returned then; else they stay counted.
    pub returns: bool,
}

/// See [`Reservation`], with the date of the hits as the algorithm has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Open {
    pub(super) reservation: Reservation,
    /// The window, the sub-window or the instant of the hits; for buckets, as the head of `reserved/` defines it.
    pub(super) place: u128,
}

/// The first bytes of stored states. These numbers are in files: they never change.
mod kind {
    pub(super) const WORDS: u8 = 0;
    pub(super) const LOG: u8 = 1;
    pub(super) const COUNTS: u8 = 2;
    pub(super) const SLOTS: u8 = 3;
    pub(super) const LEASED: u8 = 4;
    pub(super) const RESERVED: u8 = 5;
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

impl Leased {
    /// Bytes on the heap beyond its own.
    pub(super) fn heap_bytes(&self) -> usize {
        self.state.heap_bytes() + self.leases.capacity() * size_of::<Lease>()
    }

    /// Appends the stored form.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut number = |number: u64| out.extend(number.to_le_bytes());
        number(self.exact);
        number(self.leases.len() as u64 | if self.assigned.is_some() { HAS_QUOTA } else { 0 });
        for lease in &self.leases {
            let Lease { node, holder, sequence, settled, outstanding, end, demand } = *lease;
            [node, holder, sequence, settled, outstanding, end.as_nanos(), demand]
                .into_iter()
                .for_each(&mut number);
        }
        if let Some(assigned) = &self.assigned {
            assigned.write(out);
        }
        self.state.encode(out);
    }

    /// Decodes the output of `write`; none for any other bytes.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut numbers = StoredNumbers(bytes);
        let (exact, count) = (numbers.long()?, numbers.long()?);
        let leases: Option<Vec<Lease>> = (0..count & !HAS_QUOTA).map(|_| Lease::read(&mut numbers)).collect();
        let leases = leases?;
        let assigned = match count & HAS_QUOTA {
            0 => None,
            _ => Some(Assigned::read(&mut numbers)?),
        };
        let state = State::decode(numbers.rest()).ok();
        let state = state.filter(|state| !matches!(state, State::Leased(_)))?;
        Some(Self { state, leases, exact, assigned })
    }
}

impl Lease {
    fn read(numbers: &mut StoredNumbers<'_>) -> Option<Self> {
        Some(Self {
            node: numbers.long()?,
            holder: numbers.long()?,
            sequence: numbers.long()?,
            settled: numbers.long()?,
            outstanding: numbers.long()?,
            end: numbers.time()?,
            demand: numbers.long()?,
        })
    }
}

impl Reserved {
    /// Bytes held beyond the struct's own.
    pub(super) fn heap_bytes(&self) -> usize {
        let open = self.open.capacity() * size_of::<Open>();
        open + self.settled.heap_bytes() + self.seen.heap_bytes()
    }

    /// Appends the stored form: the number of reservations, the reservations, and the two states, the first with its length.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend((self.open.len() as u64).to_le_bytes());
        for Open { reservation: Reservation { id, hits, deadline, returns }, place } in &self.open {
            out.extend(id.to_le_bytes());
            out.extend(deadline.as_nanos().to_le_bytes());
            out.extend(place.to_le_bytes());
            out.extend(hits.to_le_bytes());
            out.push(u8::from(*returns));
        }
        let mut settled = Vec::new();
        self.settled.encode(&mut settled);
        out.extend((settled.len() as u64).to_le_bytes());
        out.extend(settled);
        self.seen.encode(out);
    }

    /// Decodes the output of `write`; none for any other bytes.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut numbers = StoredNumbers(bytes);
        let open = (0..numbers.long()?).map(|_| Open::read(&mut numbers)).collect::<Option<Vec<Open>>>()?;
        let length = numbers.long()?;
        let settled = numbers.take(length)?;
        let plain = |bytes| State::decode(bytes).ok().filter(State::is_plain);
        let (settled, seen) = (plain(settled)?, plain(numbers.rest())?);
        (!open.is_empty()).then_some(Self { settled, seen, open })
    }
}

impl Open {
    fn read(numbers: &mut StoredNumbers<'_>) -> Option<Self> {
        let (id, deadline, place, hits) =
            (numbers.long()?, numbers.time()?, numbers.place()?, numbers.count()?);
        let returns = match numbers.byte()? {
            0 => false,
            1 => true,
            _ => return None,
        };
        let reservation = Reservation { id, hits, deadline, returns };
        (id > 0 && hits > 0).then_some(Self { reservation, place })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_takes_twenty_four_bytes() {
        assert_eq!(size_of::<State>(), 24);
    }
}
