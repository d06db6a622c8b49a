//! Concurrency: how many requests are in flight at once.
//!
//! A request takes a slot, which has an id, and holds it until it is released by that id or its deadline passes. Hits in
//! flight are those of slots that are held; a request is admitted if they and its own do not exceed the limit.
//!
//! Invariants:
//!
//! - an admitted take never makes the hits of held slots exceed the limit;
//! - a release ends the slot that it names, once. No other release changes anything, so nothing is ever given back that
//!   was not taken;
//! - a deadline is fixed when the slot is taken: another `max_hold` applies to later slots, and to renewals;
//! - a renewal moves the deadline of a slot that is held, and nothing else: a slot that has ended is not held again.
//!
//! The end of a request is not known in advance. [`Algorithm::until_admits`](super::Algorithm::until_admits) is therefore
//! the wait until enough slots have passed their deadlines, if none is released: an upper bound. See
//! [`Concurrency::expected_wait`] for an estimate.

use super::{
    Freeing, NotShareable, Queue, State, StoredBytes, StoredNumbers,
    facts::Facts,
    memory::HeapBytes,
    microseconds,
    slots::{NANOS_PER_MILLI, Slot, Slots},
    stored::{self, Stored},
    taken::until_room,
};
use crate::limit::{Reset, Timestamp, Window};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// At most `limit` hits in flight.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Concurrency {
    /// Hits in flight at once.
    pub limit: u32,
    /// The longest time that a slot is held.
    pub max_hold: Window,
    /// The queue for requests that wait for a slot, if there is one.
    pub queue: Option<Queue>,
}

/// The result of a release.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Released {
    /// The slot was held, and holds this much less.
    Hits(u32),
    /// No slot of this id is held: it was released before, has passed its deadline, or never was.
    Unknown,
}

/// Each hold has a weight of one in this many in [`Slots::mean_hold_nanos`].
const MEAN_OF: u64 = 8;

impl Concurrency {
    /// The most hits in flight: each has a slot in the memory of its counter, and a release searches them.
    pub const LIMIT_MAX: u32 = 10_000;

    /// The longest wait for a slot, unless a rule has another. Envoy sends the end of a request and the next start over two
    /// connections, and either may arrive first.
    pub const WAIT_DEFAULT: Duration = Duration::from_millis(10);

    #[inline]
    pub(super) fn used(&self, state: &State, now: Timestamp) -> u64 {
        let State::Slots(slots) = state else { return 0 };
        let expired = slots.all().take_while(|slot| !slot.is_held(now));
        slots.total() - expired.map(|slot| u64::from(slot.hits)).sum::<u64>()
    }

    #[inline]
    pub(super) fn remaining(&self, state: &State, now: Timestamp) -> u64 {
        u64::from(self.limit).saturating_sub(self.used(state, now))
    }

    /// Takes a slot that nothing can release.
    pub(super) fn add(&self, state: State, hits: u64, now: Timestamp) -> State {
        self.take(state, 0, hits, now).0
    }

    /// Takes a slot of this id, whether the hits fit or not. Returns the number of slots that had passed their deadlines
    /// since the last take or release.
    pub fn take(&self, state: State, id: u64, hits: u64, now: Timestamp) -> (State, usize) {
        let hits = u32::try_from(hits).unwrap_or(u32::MAX);
        if hits == 0 {
            return (state, 0);
        }
        let mut slots = match state {
            State::Slots(slots) => slots,
            State::Words(_) | State::Log(_) | State::Counts(_) | State::Leased(_) | State::Reserved(_) => {
                Slots::default()
            }
        };
        let expired = slots.drop_expired(now);
        let nanos = self.max_hold.nanos().get();
        let hold_millis = u32::try_from(nanos / NANOS_PER_MILLI).unwrap_or(u32::MAX);
        let deadline = now.saturating_add_nanos(nanos).as_nanos();
        slots.push(Slot { id, deadline, hits, hold_millis });
        (State::Slots(slots), expired)
    }

    pub(super) fn give_back(&self, state: State, mut hits: u64, now: Timestamp) -> State {
        let State::Slots(mut slots) = state else { return State::EMPTY };
        slots.drop_expired(now);
        while hits > 0
            && let Some(newest) = slots.len().checked_sub(1)
        {
            hits -= u64::from(slots.give_back(newest, hits).0);
        }
        if slots.len() == 0 { State::EMPTY } else { State::Slots(slots) }
    }

    pub(super) fn until_admits(&self, state: &State, hits: u64, now: Timestamp) -> Reset {
        until_room(self.limit, hits, |target| {
            last_to_end(state, target, now).map_or(Duration::ZERO, |slot| slot.deadline().since(now))
        })
    }

    /// The wait after which `hits` will probably fit, from the average time that slots of this counter were held: an estimate,
    /// at most the bound of [`Algorithm::until_admits`](super::Algorithm::until_admits). Before the first release it is that bound.
    pub fn expected_wait(&self, state: &State, hits: u64, now: Timestamp) -> Reset {
        let bound = self.until_admits(state, hits, now);
        let (Reset::After(most), State::Slots(slots)) = (bound, state) else { return bound };
        let target = u64::from(self.limit).saturating_sub(hits);
        let (Some(last), Some(mean)) = (last_to_end(state, target, now), slots.mean_hold()) else {
            return bound;
        };
        let expected = last.taken().saturating_add(mean).since(now);
        // Held for longer than the average already: any of the hits in flight may end next.
        let next = mean / u32::try_from(self.used(state, now)).unwrap_or(u32::MAX).max(1);
        Reset::After(expected.max(next).min(most))
    }

    /// The time for which a slot is probably held: the average, or `max_hold` before the first release.
    pub fn expected_hold(&self, state: &State) -> Duration {
        state.slots().and_then(Slots::mean_hold).unwrap_or(self.max_hold.duration())
    }

    #[inline]
    pub(super) fn until_full(&self, state: &State, now: Timestamp) -> Duration {
        self.expires(state).since(now)
    }

    #[inline]
    pub(super) fn expires(&self, state: &State) -> Timestamp {
        match state {
            State::Slots(slots) => slots.expires(),
            State::Words(_) | State::Log(_) | State::Counts(_) | State::Leased(_) | State::Reserved(_) => {
                Timestamp::EPOCH
            }
        }
    }
}

/// The last of the slots that must end before at most `target` hits are in flight; none if that is so now.
fn last_to_end(state: &State, target: u64, now: Timestamp) -> Option<Slot> {
    let State::Slots(slots) = state else { return None };
    let mut left: u64 = slots.total();
    let in_excess = slots.all().take_while(|slot| {
        let in_excess = left > target;
        left -= u64::from(slot.hits);
        in_excess
    });
    in_excess.last().filter(|slot| slot.is_held(now))
}

impl State {
    /// Releases the slot of this id: all of its hits, or at most as many as given. Returns also the number of slots that
    /// had passed their deadlines since the last take or release.
    pub fn release_slot(&mut self, id: u64, hits: Option<u64>, now: Timestamp) -> (Released, usize) {
        let Self::Slots(slots) = self else { return (Released::Unknown, 0) };
        let expired = slots.drop_expired(now);
        let Some(index) = slots.position(id) else {
            return (Released::Unknown, expired);
        };
        let (released, slot) = slots.give_back(index, hits.unwrap_or(u64::MAX));
        if released == slot.hits {
            let held_nanos = now.since(slot.taken()).as_nanos().min(u128::from(u64::MAX)) as u64;
            let mean = slots.mean_hold_nanos();
            slots.set_mean_hold(match mean {
                0 => held_nanos.max(1),
                _ => (mean - mean / MEAN_OF + held_nanos / MEAN_OF).max(1),
            });
        }
        (Released::Hits(released), expired)
    }

    /// Renews the slot of this id, if it is held: it ends `max_hold` from now, unless it already ended later. Returns also the number of
    /// slots that had passed their deadlines since the last take, release or renewal.
    pub fn renew_slot(&mut self, id: u64, max_hold: Window, now: Timestamp) -> (bool, usize) {
        let Self::Slots(slots) = self else { return (false, 0) };
        let expired = slots.drop_expired(now);
        let held = slots.position(id);
        if let Some(index) = held {
            slots.renew(index, now.saturating_add_nanos(max_hold.nanos().get()));
        }
        (held.is_some(), expired)
    }

    /// The slots, if it is of this algorithm.
    pub fn slots(&self) -> Option<&Slots> {
        if let Self::Slots(slots) = self { Some(slots) } else { None }
    }
}

/// The signature of limits of requests in flight, with its length before it. Each slot has its own deadline, so that no parameter is in it.
pub const SLOT_SIGNATURE: &[u8] = b"\x01N";

/// The longest time that a slot is held after its start or its last renewal.
pub const HOLD_MAX: Duration = Duration::from_secs(86_400);

/// Bytes of a slot in the store.
const STORED_SLOT_BYTES: usize = 24;

impl Stored for Concurrency {
    fn write_signature(&self, out: &mut StoredBytes) {
        out.extend_from_slice(&SLOT_SIGNATURE[1..]);
    }

    fn write_parameters(&self, _: Timestamp, out: &mut StoredBytes) {
        stored::double(out, self.limit.into());
        stored::window(out, self.max_hold);
    }

    fn of_signature(letter: u8, _: &mut StoredNumbers<'_>) -> Option<Self> {
        (letter == b'N').then_some(())?;
        // The store does not have the longest hold either.
        let max_hold = Window::from_secs(HOLD_MAX.as_secs()).ok()?;
        Some(Self { limit: u32::MAX, max_hold, queue: None })
    }

    fn read(&self, numbers: &mut StoredNumbers<'_>) -> Option<State> {
        let (mean_hold_nanos, _total) = (numbers.double()?, numbers.double()?);
        let mut held = Vec::with_capacity(numbers.0.len() / STORED_SLOT_BYTES);
        while !numbers.is_empty() {
            let (id, deadline) = (numbers.long()?, numbers.nanos()?);
            let (hits, hold_millis) = (numbers.count()?, numbers.count()?);
            held.push(Slot::new(id, Timestamp::from_nanos(deadline), hits, hold_millis)?);
        }
        Some(State::Slots(Slots::from_ascending(&held, mean_hold_nanos)?))
    }

    fn write(&self, state: &State, out: &mut StoredBytes) -> Option<()> {
        let State::Slots(slots) = state else { return None };
        stored::double(out, slots.mean_hold().map_or(0, |mean| mean.as_nanos() as u64));
        stored::double(out, slots.all().map(|slot| u64::from(slot.hits)).sum());
        for slot in slots.all() {
            out.extend_from_slice(&slot.id.to_le_bytes());
            stored::double(out, slot.deadline().as_nanos().div_ceil(microseconds::NANOS));
            stored::count(out, slot.hits);
            stored::count(out, slot.hold_millis());
        }
        Some(())
    }
}

impl Facts for Concurrency {
    const NAME: &'static str = "concurrency";
    const LIMIT_MAX: u32 = Concurrency::LIMIT_MAX;
    const KEEPS_WORDS: bool = false;
    const COUNTS_HITS: bool = false;

    fn heap_bytes(&self) -> HeapBytes {
        HeapBytes::of_slots(self.limit)
    }

    fn freeing(&self) -> Freeing {
        Freeing::Otherwise(self.max_hold.nanos().get())
    }

    /// Each slot has its own deadline.
    fn reads_as(&self, _: &Self) -> bool {
        true
    }

    fn with_requests(&self, requests: u32, _: u32, _: Window) -> Self {
        Self { limit: requests, ..*self }
    }

    fn with_ends_at(&self, state: &State, at: Timestamp, now: Timestamp) -> Option<State> {
        state.slots().map(|slots| State::Slots(slots.with_ends_at(at, now)))
    }

    /// Requests in flight have no window: it is their number that changes.
    fn replaced(&self, limit: u32, _: Window, _: u32) -> Option<Self> {
        Some(Self { limit: limit.min(Self::LIMIT_MAX), ..*self })
    }

    fn in_microseconds(&self, _: &dyn Fn(u32) -> u32) -> Result<Self, NotShareable> {
        microseconds::whole(self.max_hold).map(|()| *self)
    }

    fn numbers(&self, _: fn(Duration) -> String) -> String {
        format!("{} in flight for up to {}", self.limit, self.max_hold)
    }
}

#[cfg(test)]
mod tests;
