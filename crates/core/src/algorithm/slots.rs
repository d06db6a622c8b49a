//! The slots of requests in flight that a counter of [`Concurrency`](super::Concurrency) has, and their form as stored.

use crate::limit::Timestamp;
use std::time::Duration;

pub(super) const NANOS_PER_MILLI: u64 = 1_000_000;

/// Bytes of the average, before the slots, as stored.
const HEADER_BYTES: usize = 8;

/// Bytes of a slot as stored.
const SLOT_BYTES: usize = 24;

/// The slots that are held, by deadline.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Slots {
    /// Deadlines ascend.
    pub(super) held: Vec<Slot>,
    /// Hits of all.
    pub(super) total: u64,
    /// Moving average of the time between taking a slot and its release, in nanoseconds; 0 before the first release.
    pub(super) mean_hold_nanos: u64,
}

/// Hits of one request in flight, in 24 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// By which it is released; 0 if it only ends by its deadline.
    pub id: u64,
    /// From this moment on it is not held, in nanoseconds since the epoch.
    pub(super) deadline: u64,
    /// At least 1.
    pub hits: u32,
    /// Between taking it and its deadline, in milliseconds.
    pub(super) hold_millis: u32,
}

impl Slot {
    /// A slot with its end and the milliseconds from taking it until then; none without hits.
    pub fn new(id: u64, deadline: Timestamp, hits: u32, hold_millis: u32) -> Option<Self> {
        (hits > 0).then_some(Self { id, deadline: deadline.as_nanos(), hits, hold_millis })
    }

    /// Milliseconds between taking it and its end.
    pub fn hold_millis(&self) -> u32 {
        self.hold_millis
    }

    /// The end of its hold.
    pub fn deadline(&self) -> Timestamp {
        Timestamp::from_nanos(self.deadline)
    }

    /// The moment at which it was taken, to the millisecond.
    pub fn taken(&self) -> Timestamp {
        Timestamp::from_nanos(self.deadline.saturating_sub(u64::from(self.hold_millis) * NANOS_PER_MILLI))
    }

    pub(super) fn is_held(&self, now: Timestamp) -> bool {
        self.deadline > now.as_nanos()
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.id.to_le_bytes());
        out.extend(self.deadline.to_le_bytes());
        out.extend(self.hits.to_le_bytes());
        out.extend(self.hold_millis.to_le_bytes());
    }

    fn decode(bytes: &[u8; SLOT_BYTES]) -> Option<Self> {
        let [id, deadline, last] = *bytes.as_chunks::<8>().0 else { return None };
        let (hits, hold) = last.split_first_chunk::<4>()?;
        let deadline = Timestamp::from_nanos(u64::from_le_bytes(deadline));
        let hold_millis = u32::from_le_bytes(hold.try_into().ok()?);
        Self::new(u64::from_le_bytes(id), deadline, u32::from_le_bytes(*hits), hold_millis)
    }
}

impl Slots {
    /// From slots in ascending order of their deadlines, and the average hold; none in any other order.
    pub fn from_ascending(held: Vec<Slot>, mean_hold_nanos: u64) -> Option<Self> {
        let total = held.iter().map(|slot| u64::from(slot.hits)).sum();
        held.is_sorted_by_key(|slot| slot.deadline).then_some(Self { held, total, mean_hold_nanos })
    }

    /// All slots, by deadline; some may have passed it.
    pub fn all(&self) -> &[Slot] {
        &self.held
    }

    /// The slots that are held at a moment, by deadline.
    pub fn held(&self, now: Timestamp) -> &[Slot] {
        &self.held[self.expired(now)..]
    }

    /// Whether a slot of this id is held, or was when slots past their deadlines were last dropped.
    pub fn has(&self, id: u64) -> bool {
        id != 0 && self.held.iter().any(|slot| slot.id == id)
    }

    /// The last deadline: from then on no slot is held.
    pub fn expires(&self) -> Timestamp {
        self.held.last().map_or(Timestamp::EPOCH, Slot::deadline)
    }

    /// The average time between taking a slot and its release; none before the first release.
    pub fn mean_hold(&self) -> Option<Duration> {
        (self.mean_hold_nanos > 0).then(|| Duration::from_nanos(self.mean_hold_nanos))
    }

    /// Bytes held beyond the struct's own.
    pub(super) fn heap_bytes(&self) -> usize {
        self.held.capacity() * size_of::<Slot>()
    }

    /// Number of slots at the front that are not held any more.
    pub(super) fn expired(&self, now: Timestamp) -> usize {
        // Every take and release drops those that are not held, so that there are few of them to walk over.
        self.held.iter().take_while(|slot| !slot.is_held(now)).count()
    }

    /// Drops the slots that have passed their deadlines; returns how many.
    pub(super) fn drop_expired(&mut self, now: Timestamp) -> usize {
        let expired = self.expired(now);
        self.total -= self.held.drain(..expired).map(|slot| u64::from(slot.hits)).sum::<u64>();
        expired
    }

    pub(super) fn push(&mut self, slot: Slot) {
        self.total += u64::from(slot.hits);
        match self.held.last_mut() {
            Some(last) if slot.id == 0 && (last.id, last.deadline) == (0, slot.deadline) => {
                let sum = last.hits.saturating_add(slot.hits);
                self.total -= u64::from(last.hits) + u64::from(slot.hits) - u64::from(sum);
                last.hits = sum;
                return;
            }
            _ => {}
        }
        if self.held.len() == self.held.capacity() {
            // Doubled, as a vector grows by itself, most counters would hold room for nearly as many slots again.
            self.held.reserve_exact(2 + self.held.len() / 4);
        }
        // Last, unless `max_hold` has become shorter or the clock was set back.
        let after = self.held.iter().rev().take_while(|held| held.deadline > slot.deadline).count();
        self.held.insert(self.held.len() - after, slot);
    }

    /// Appends the slots as they are to be stored.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.mean_hold_nanos.to_le_bytes());
        self.held.iter().for_each(|slot| slot.encode(out));
    }

    /// Decodes the output of `write`; none for any other bytes.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (mean, bytes) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let (chunks, rest) = bytes.as_chunks::<SLOT_BYTES>();
        let held: Option<Vec<Slot>> = chunks.iter().map(Slot::decode).collect();
        Self::from_ascending(held.filter(|_| rest.is_empty())?, u64::from_le_bytes(*mean))
    }
}
