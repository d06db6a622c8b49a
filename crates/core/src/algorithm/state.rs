//! The state of one counter.
//!
//! Two words are enough for most algorithms. The sliding log, the sub-windows and slots need more and keep it on the heap, as do
//! leases and reservations on a counter of any algorithm.
//! A state means something only to the algorithm that made it; any other reads it as empty, and
//! [`Algorithm::take_over`](super::Algorithm::take_over) converts one to the other.

use super::{assigned::Assigned, counts::Counts, runs::Runs, slots::Slots};
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
            kind if kind == Kind::Slots as u8 => Slots::read(bytes).map(Self::Slots),
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

/// Bytes of a stored lease: seven numbers.
const LEASE_BYTES: usize = 7 * 8;

/// Bit of the stored number of leases that marks quota behind them.
const HAS_QUOTA: u64 = 1 << 63;

/// Bytes of a reservation as stored.
const RESERVATION_BYTES: usize = 8 + 8 + 16 + 4 + 1;

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
        let (&exact, bytes) = bytes.split_first_chunk::<8>()?;
        let (&count, bytes) = bytes.split_first_chunk::<8>()?;
        let (count, has_quota) =
            (u64::from_le_bytes(count) & !HAS_QUOTA, u64::from_le_bytes(count) & HAS_QUOTA);
        let length = usize::try_from(count).ok()?.checked_mul(LEASE_BYTES)?;
        let (leases, bytes) = bytes.split_at_checked(length)?;
        let (assigned, state) = bytes.split_at_checked(if has_quota > 0 { Assigned::BYTES } else { 0 })?;
        let leases = leases.as_chunks::<LEASE_BYTES>().0.iter().map(|lease| {
            let mut numbers = lease.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number));
            let mut next = || numbers.next().unwrap_or_default();
            Lease {
                node: next(),
                holder: next(),
                sequence: next(),
                settled: next(),
                outstanding: next(),
                end: Timestamp::from_nanos(next()),
                demand: next(),
            }
        });
        let leases = leases.collect();
        let assigned = Assigned::read(assigned);
        let state = State::decode(state).ok().filter(|state| !matches!(state, State::Leased(_)))?;
        Some(Self { state, leases, exact: u64::from_le_bytes(exact), assigned })
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
        let (&count, bytes) = bytes.split_first_chunk::<8>()?;
        let length = usize::try_from(u64::from_le_bytes(count)).ok()?.checked_mul(RESERVATION_BYTES)?;
        let (reservations, bytes) = bytes.split_at_checked(length)?;
        let open: Option<Vec<Open>> =
            reservations.as_chunks::<RESERVATION_BYTES>().0.iter().map(|bytes| Open::read(bytes)).collect();
        let (&length, bytes) = bytes.split_first_chunk::<8>()?;
        let (settled, seen) = bytes.split_at_checked(usize::try_from(u64::from_le_bytes(length)).ok()?)?;
        let plain = |bytes| State::decode(bytes).ok().filter(State::is_plain);
        Some(Self {
            settled: plain(settled)?,
            seen: plain(seen)?,
            open: open.filter(|open| !open.is_empty())?,
        })
    }
}

impl Open {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (&id, bytes) = bytes.split_first_chunk::<8>()?;
        let (&deadline, bytes) = bytes.split_first_chunk::<8>()?;
        let (&place, bytes) = bytes.split_first_chunk::<16>()?;
        let (&hits, bytes) = bytes.split_first_chunk::<4>()?;
        let returns = match bytes {
            [0] => false,
            [1] => true,
            _ => return None,
        };
        let (id, hits) = (u64::from_le_bytes(id), u32::from_le_bytes(hits));
        let deadline = Timestamp::from_nanos(u64::from_le_bytes(deadline));
        let reservation = Reservation { id, hits, deadline, returns };
        (id > 0 && hits > 0).then_some(Self { reservation, place: u128::from_le_bytes(place) })
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
