//! The slots of requests in flight that a counter of [`Concurrency`](super::Concurrency) has, and their form as stored.
//!
//! In memory they are one row of words, since most of the memory of such a counter is its slots. A slot takes two words if it and
//! all others of the counter were taken under the same `max_hold` and not renewed, have fewer than 65,536 hits, and end within three
//! days; otherwise each slot of the counter takes three.

use super::numbers::StoredNumbers;
use crate::limit::Timestamp;
use std::time::Duration;

pub(super) const NANOS_PER_MILLI: u64 = 1_000_000;

/// The word with the moving average of the time between taking a slot and its release, in nanoseconds; 0 before the first release.
const MEAN: usize = 0;

/// The word with the hits of all slots.
const TOTAL: usize = 1;

/// The word with the time in nanoseconds to which deadlines in narrow slots are relative.
const BASE: usize = 2;

/// The word with the milliseconds from taking each narrow slot to its deadline, or [`WIDE`].
const FORM: usize = 3;

/// The first word of the first slot.
const FIRST: usize = 4;

/// Form of slots with three words: id, deadline, and hits below the milliseconds of the hold. Narrow slots have two: id, and hits below the
/// deadline.
const WIDE: u64 = 1 << 32;

/// Bits of the hits of a narrow slot. The other bits of the word are its deadline.
const HITS_BITS: u32 = 16;

/// The nanoseconds that deadlines of narrow slots may be apart: 78 hours.
const SPAN: u64 = 1 << (u64::BITS - HITS_BITS);

/// The slots that are held, by deadline.
#[derive(Clone, Debug)]
pub struct Slots {
    /// The head, and the slots in ascending order of their deadlines.
    words: Vec<u64>,
}

/// Hits of one request in flight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Slot {
    /// The id by which it is released; 0 if it ends only at its deadline.
    pub id: u64,
    /// The moment from which on it is not held, in nanoseconds since the epoch.
    pub(super) deadline: u64,
    /// At least 1.
    pub hits: u32,
    /// Milliseconds between taking it and its deadline; the maximum, seven weeks, if it was renewed for longer.
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

    fn read(numbers: &mut StoredNumbers<'_>) -> Option<Self> {
        Self::new(numbers.long()?, numbers.time()?, numbers.count()?, numbers.count()?)
    }
}

impl Default for Slots {
    fn default() -> Self {
        Self::with_room(2)
    }
}

/// Equal whatever the form of the slots.
impl PartialEq for Slots {
    fn eq(&self, other: &Self) -> bool {
        self.mean_hold_nanos() == other.mean_hold_nanos() && self.all().eq(other.all())
    }
}

impl Eq for Slots {}

impl Slots {
    /// Without slots, with room for so many narrow slots.
    fn with_room(slots: usize) -> Self {
        let mut words = Vec::with_capacity(FIRST + 2 * slots);
        words.resize(FIRST, 0);
        Self { words }
    }

    /// From slots in ascending order of their deadlines, and the average hold; none in any other order.
    pub fn from_ascending(held: &[Slot], mean_hold_nanos: u64) -> Option<Self> {
        held.is_sorted_by_key(|slot| slot.deadline).then(|| Self::packed(held, held.len(), mean_hold_nanos))
    }

    /// These slots in the narrower form that represents all of them, with room for so many.
    fn packed(held: &[Slot], room: usize, mean_hold_nanos: u64) -> Self {
        let mut slots = Self::with_room(room);
        slots.words[MEAN] = mean_hold_nanos;
        slots.words[TOTAL] = held.iter().map(|slot| u64::from(slot.hits)).sum();
        if let Some(first) = held.first() {
            slots.set_form_for(first);
        }
        if held.iter().any(|slot| slots.narrow(slot).is_none()) {
            slots.words[FORM] = WIDE;
            slots.words.reserve_exact(3 * room);
        }
        held.iter().enumerate().for_each(|(index, slot)| slots.put(index, slot));
        slots
    }

    /// Sets the form, of a counter without slots, so that it represents narrow slots like this one.
    fn set_form_for(&mut self, slot: &Slot) {
        self.words[BASE] = slot.deadline.saturating_sub(SPAN / 2);
        self.words[FORM] = slot.hold_millis.into();
    }

    fn is_wide(&self) -> bool {
        self.words[FORM] == WIDE
    }

    /// Words of a slot.
    fn width(&self) -> usize {
        if self.is_wide() { 3 } else { 2 }
    }

    /// The second word of a narrow slot; none if it is not represented so.
    fn narrow(&self, slot: &Slot) -> Option<u64> {
        let after = slot.deadline.checked_sub(self.words[BASE])?;
        let fits =
            after < SPAN && slot.hits >> HITS_BITS == 0 && u64::from(slot.hold_millis) == self.words[FORM];
        fits.then(|| after << HITS_BITS | u64::from(slot.hits))
    }

    /// Inserts a slot that the form represents.
    fn put(&mut self, index: usize, slot: &Slot) {
        let at = FIRST + index * self.width();
        if let Some(second) = self.narrow(slot) {
            self.words.splice(at..at, [slot.id, second]);
        } else {
            let third = u64::from(slot.hold_millis) << 32 | u64::from(slot.hits);
            self.words.splice(at..at, [slot.id, slot.deadline, third]);
        }
    }

    pub(super) fn len(&self) -> usize {
        (self.words.len() - FIRST) / self.width()
    }

    /// The slot at an index that is less than their number.
    pub(super) fn get(&self, index: usize) -> Slot {
        let words = &self.words[FIRST + index * self.width()..];
        let (id, second) = (words[0], words[1]);
        if self.is_wide() {
            let (hits, hold_millis) = (words[2] as u32, (words[2] >> 32) as u32);
            return Slot { id, deadline: second, hits, hold_millis };
        }
        let deadline = self.words[BASE] + (second >> HITS_BITS);
        let hits = (second & ((1 << HITS_BITS) - 1)) as u32;
        Slot { id, deadline, hits, hold_millis: self.words[FORM] as u32 }
    }

    /// All slots, by deadline; some may have passed it.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = Slot> + ExactSizeIterator + '_ {
        (0..self.len()).map(|index| self.get(index))
    }

    /// The slots that are held at a moment, by deadline.
    pub fn held(&self, now: Timestamp) -> impl DoubleEndedIterator<Item = Slot> + ExactSizeIterator + '_ {
        (self.expired(now)..self.len()).map(|index| self.get(index))
    }

    /// Hits of all slots.
    pub(super) fn total(&self) -> u64 {
        self.words[TOTAL]
    }

    /// The index of the slot of this id.
    pub(super) fn position(&self, id: u64) -> Option<usize> {
        let mut ids = self.words[FIRST..].iter().step_by(self.width());
        ids.position(|of_slot| *of_slot == id).filter(|_| id != 0)
    }

    /// Whether a slot of this id is held, or was when slots past their deadlines were last dropped.
    pub fn has(&self, id: u64) -> bool {
        self.position(id).is_some()
    }

    /// Whether a slot of this id is held at a moment.
    pub fn holds(&self, id: u64, now: Timestamp) -> bool {
        self.position(id).is_some_and(|index| self.get(index).is_held(now))
    }

    /// The slots that are held at `at`, each for as long after the earlier time `now`.
    pub(super) fn with_ends_at(&self, at: Timestamp, now: Timestamp) -> Self {
        let moved = |slot: Slot| {
            let deadline = now.saturating_add(slot.deadline().since(at)).as_nanos();
            Slot { deadline, ..slot }
        };
        let held: Vec<Slot> = self.held(at).map(moved).collect();
        Self::packed(&held, held.len(), self.mean_hold_nanos())
    }

    /// The last deadline: from then on no slot is held.
    pub fn expires(&self) -> Timestamp {
        self.last().map_or(Timestamp::EPOCH, |slot| slot.deadline())
    }

    fn last(&self) -> Option<Slot> {
        self.all().next_back()
    }

    pub(super) fn mean_hold_nanos(&self) -> u64 {
        self.words[MEAN]
    }

    pub(super) fn set_mean_hold(&mut self, nanos: u64) {
        self.words[MEAN] = nanos;
    }

    /// The average time between taking a slot and its release; none before the first release.
    pub fn mean_hold(&self) -> Option<Duration> {
        let nanos = self.mean_hold_nanos();
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }

    /// Bytes held beyond the struct's own.
    pub(super) fn heap_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u64>()
    }

    /// Number of slots at the front that are no longer held.
    pub(super) fn expired(&self, now: Timestamp) -> usize {
        // Every take and release drops such slots, so there are few to walk over.
        self.all().take_while(|slot| !slot.is_held(now)).count()
    }

    /// Drops the slots that have passed their deadlines; returns how many.
    pub(super) fn drop_expired(&mut self, now: Timestamp) -> usize {
        let expired = self.expired(now);
        let hits: u64 = self.all().take(expired).map(|slot| u64::from(slot.hits)).sum();
        self.words[TOTAL] -= hits;
        self.words.drain(FIRST..FIRST + expired * self.width());
        expired
    }

    pub(super) fn push(&mut self, slot: Slot) {
        match self.last() {
            Some(last) if slot.id == 0 && (last.id, last.deadline) == (0, slot.deadline) => {
                self.remove(self.len() - 1);
                self.insert(Slot { hits: last.hits.saturating_add(slot.hits), ..last });
            }
            _ => self.insert(slot),
        }
    }

    /// Inserts a slot by its deadline.
    fn insert(&mut self, slot: Slot) {
        // Last, unless another was renewed, `max_hold` has become shorter or the clock was set back.
        let after = self.all().rev().take_while(|held| held.deadline > slot.deadline).count();
        let index = self.len() - after;
        if self.len() == 0 {
            self.set_form_for(&slot);
        }
        let is_full = self.words.len() + self.width() > self.words.capacity();
        if is_full && self.is_wide() || !self.is_wide() && self.narrow(&slot).is_none() {
            let mut all: Vec<Slot> = self.all().collect();
            all.insert(index, slot);
            *self = Self::packed(&all, self.len() + self.growth(), self.mean_hold_nanos());
            return;
        }
        if is_full {
            self.words.reserve_exact(self.growth() * self.width());
        }
        self.words[TOTAL] += u64::from(slot.hits);
        self.put(index, &slot);
    }

    /// Number of slots to make room for when there is none. If room doubled, as in a vector that grows by itself, most counters would hold
    /// room for nearly as many slots again.
    fn growth(&self) -> usize {
        2 + self.len() / 4
    }

    /// Removes the slot at an index.
    pub(super) fn remove(&mut self, index: usize) -> Slot {
        let (slot, at) = (self.get(index), FIRST + index * self.width());
        self.words.drain(at..at + self.width());
        self.words[TOTAL] -= u64::from(slot.hits);
        slot
    }

    /// Moves the deadline of the slot at an index, unless it is later already.
    pub(super) fn renew(&mut self, index: usize, deadline: Timestamp) {
        let slot = self.get(index);
        if slot.deadline >= deadline.as_nanos() {
            return;
        }
        self.remove(index);
        // Both in whole milliseconds, so that the time of taking it stays the same after any number of renewals.
        let [taken, ends] = [slot.taken(), deadline].map(|at| at.as_nanos() / NANOS_PER_MILLI);
        let hold_millis = u32::try_from(ends - taken).unwrap_or(u32::MAX);
        self.insert(Slot { deadline: deadline.as_nanos(), hold_millis, ..slot });
    }

    /// Gives back hits of the slot at an index, at most as many as it has; a slot without hits is removed. Returns how many, and the slot
    /// as it was.
    pub(super) fn give_back(&mut self, index: usize, hits: u64) -> (u32, Slot) {
        let (slot, width) = (self.get(index), self.width());
        let given = u32::try_from(hits).unwrap_or(u32::MAX).min(slot.hits);
        if given == slot.hits {
            self.remove(index);
        } else {
            // The lowest bits of the last word are the hits.
            self.words[FIRST + (index + 1) * width - 1] -= u64::from(given);
            self.words[TOTAL] -= u64::from(given);
        }
        (given, slot)
    }

    /// Appends the stored form.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.mean_hold_nanos().to_le_bytes());
        self.all().for_each(|slot| slot.encode(out));
    }

    /// Decodes the output of `write`; none for any other bytes.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let mut numbers = StoredNumbers(bytes);
        let (mean, mut held) = (numbers.long()?, Vec::new());
        while !numbers.is_empty() {
            held.push(Slot::read(&mut numbers)?);
        }
        Self::from_ascending(&held, mean)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Mostly alike; some with many hits, of another `max_hold`, and of a time that was corrected by days.
    fn slot() -> impl Strategy<Value = Slot> {
        let day = 86_400 * 1_000 * NANOS_PER_MILLI;
        let deadline = prop_oneof![
            9 => (0..1_000u64).prop_map(move |nanos| 20_000 * day + nanos),
            1 => (0..40_000u64).prop_map(move |days| days * day),
            1 => any::<u64>(),
        ];
        let hits = prop_oneof![9 => 1..5u32, 1 => 65_530..65_540u32, 1 => 1..=u32::MAX];
        let hold_millis = prop_oneof![9 => Just(60_000), 1 => 0..3u32, 1 => any::<u32>()];
        (0..9u64, deadline, hits, hold_millis).prop_map(|(id, deadline, hits, hold_millis)| Slot {
            id,
            deadline,
            hits,
            hold_millis,
        })
    }

    #[derive(Clone, Copy, Debug)]
    enum Event {
        Push(Slot),
        Remove(usize),
        GiveBack(usize, u64),
        DropExpired(u64),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            6 => slot().prop_map(Event::Push),
            2 => any::<usize>().prop_map(Event::Remove),
            2 => (any::<usize>(), 0..70_000u64).prop_map(|(index, hits)| Event::GiveBack(index, hits)),
            1 => slot().prop_map(|slot| Event::DropExpired(slot.deadline)),
        ]
    }

    /// Pushes a slot into a list by its deadline.
    fn push(list: &mut Vec<Slot>, slot: Slot) {
        if let Some(last) = list.last_mut()
            && slot.id == 0
            && (last.id, last.deadline) == (0, slot.deadline)
        {
            last.hits = last.hits.saturating_add(slot.hits);
            return;
        }
        let index = list.partition_point(|held| held.deadline <= slot.deadline);
        list.insert(index, slot);
    }

    proptest! {
        #[test]
        fn slots_in_either_form_are_those_of_a_list(events in prop::collection::vec(event(), 1..60)) {
            let (mut slots, mut list) = (Slots::default(), Vec::new());
            for event in events {
                match event {
                    Event::Push(slot) => {
                        slots.push(slot);
                        push(&mut list, slot);
                    }
                    Event::Remove(index) if !list.is_empty() => {
                        let index = index % list.len();
                        prop_assert_eq!(slots.remove(index), list.remove(index));
                    }
                    Event::GiveBack(index, hits) if !list.is_empty() => {
                        let index = index % list.len();
                        let given = hits.min(list[index].hits.into()) as u32;
                        prop_assert_eq!(slots.give_back(index, hits), (given, list[index]));
                        list[index].hits -= given;
                        list.retain(|slot| slot.hits > 0);
                    }
                    Event::DropExpired(nanos) => {
                        let before = list.len();
                        list.retain(|slot| slot.deadline > nanos);
                        let expired = slots.drop_expired(Timestamp::from_nanos(nanos));
                        prop_assert_eq!(expired, before - list.len());
                    }
                    Event::Remove(_) | Event::GiveBack(..) => {}
                }
                prop_assert_eq!(slots.all().collect::<Vec<_>>(), list.clone());
                prop_assert_eq!(slots.total(), list.iter().map(|slot| u64::from(slot.hits)).sum::<u64>());
                for id in 0..9 {
                    let expected = list.iter().position(|slot| slot.id == id && id != 0);
                    prop_assert_eq!(slots.position(id), expected);
                }
                let again = Slots::from_ascending(&list, slots.mean_hold_nanos());
                prop_assert_eq!(again.as_ref(), Some(&slots));
            }
        }
    }

    #[test]
    fn slots_that_are_alike_take_sixteen_bytes_and_others_twenty_four() {
        let alike = |index: u64| Slot { id: index + 1, deadline: 1 << 60, hits: 1, hold_millis: 60_000 };
        let bytes = |held: &[Slot]| Slots::from_ascending(held, 0).map(|slots| slots.heap_bytes());
        let mut held: Vec<Slot> = (0..10).map(alike).collect();
        assert_eq!(bytes(&held), Some(32 + 10 * 16));
        held[3].hold_millis = 90_000;
        assert_eq!(bytes(&held), Some(32 + 10 * 24));
    }
}
