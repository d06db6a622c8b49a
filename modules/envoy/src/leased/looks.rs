//! The counters with credits, in the order in which they are due for a check.
//!
//! Invariant: each counter is in that order once, at its own time or earlier, or is listed as moved by a decision.

use super::{
    counter::{Counter, Moved},
    messages::CounterId,
};
use std::{
    collections::{BTreeSet, HashMap},
    hash::{BuildHasher, RandomState},
    sync::Arc,
};
use tidegate_shared::lease::{Holder, HolderTerms, Monotonic};

/// The counters.
#[derive(Default)]
pub(super) struct Looks {
    counters: HashMap<CounterId, Scheduled>,
    order: BTreeSet<(u64, CounterId)>,
    moved: Arc<Moved>,
    /// Makes the numbers of holders, which differ from those of any other process.
    numbers: RandomState,
    holders_made: u64,
}

struct Scheduled {
    counter: Arc<Counter>,
    /// Its time in the order.
    at: u64,
}

impl Looks {
    pub(super) fn len(&self) -> usize {
        self.counters.len()
    }

    pub(super) fn get(&self, id: CounterId) -> Option<&Arc<Counter>> {
        self.counters.get(&id).map(|scheduled| &scheduled.counter)
    }

    /// Makes a counter that is soon due for a check.
    pub(super) fn insert(&mut self, id: CounterId, terms: HolderTerms, now: Monotonic) -> Arc<Counter> {
        self.holders_made += 1;
        // Below 2^53, as the protocol has it.
        let number = self.numbers.hash_one(self.holders_made) >> 11;
        let counter =
            Counter::new(id, Holder::new(terms, now).numbered(number), Arc::clone(&self.moved), now);
        let at = counter.look_at();
        self.order.insert((at, id));
        self.counters.insert(id, Scheduled { counter: Arc::clone(&counter), at });
        counter
    }

    /// Takes the next counter that is due; none if none is due. [`Self::put_back`] or [`Self::remove`] must follow.
    pub(super) fn due(&mut self, now: Monotonic) -> Option<Arc<Counter>> {
        let (at, id) = self.order.first().copied().filter(|(at, _)| *at <= now.as_nanos())?;
        self.order.remove(&(at, id));
        self.get(id).map(Arc::clone)
    }

    /// The time of the next check, between `earliest` and `latest`. From now on, decisions that need an earlier check wake the thread.
    pub(super) fn next_look(&self, earliest: Monotonic, latest: Monotonic) -> Monotonic {
        let first = self.order.first().map_or(latest, |(at, _)| Monotonic::from_nanos(*at));
        let next_look = first.min(latest).max(earliest);
        if self.moved.may_sleep_until(next_look) { next_look } else { earliest }
    }

    /// Puts the counters that decisions have moved in the order again.
    pub(super) fn take_moved(&mut self) {
        for id in self.moved.take() {
            let Some(scheduled) = self.counters.get(&id) else { continue };
            scheduled.counter.is_not_moved();
            self.put_back(id);
        }
    }

    /// Puts a counter in the order again, at its current time.
    pub(super) fn put_back(&mut self, id: CounterId) {
        let Some(scheduled) = self.counters.get_mut(&id) else { return };
        self.order.remove(&(scheduled.at, id));
        scheduled.at = scheduled.counter.look_at();
        self.order.insert((scheduled.at, id));
    }

    /// Removes a counter that is not in the order.
    pub(super) fn remove(&mut self, id: CounterId) {
        self.counters.remove(&id);
    }

    /// Removes all counters.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Arc<Counter>> + use<> {
        self.order.clear();
        std::mem::take(&mut self.counters).into_values().map(|scheduled| scheduled.counter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tidegate_shared::lease::{NodeId, Settings};

    const MILLI: u64 = 1_000_000;

    #[test]
    fn a_counter_without_credits_is_due_by_its_use_only() {
        let at = |millis: u64| Monotonic::from_nanos(millis * MILLI);
        let (mut looks, id) = (Looks::default(), [7; 16]);
        let terms = HolderTerms { settings: Settings::default(), limit: 10_000, span: 1_000_000 };
        let counter = looks.insert(id, terms, at(1));
        let look = |looks: &mut Looks, now| {
            looks.take_moved();
            let counter = looks.due(now)?;
            let (claim, is_kept) = counter.claim(NodeId(1), now);
            if is_kept {
                looks.put_back(id)
            } else {
                looks.remove(id)
            }
            Some(claim)
        };
        assert_eq!(look(&mut looks, at(1)), Some(None));
        assert!((2..1_000).all(|millis| look(&mut looks, at(millis)).is_none()));
        for (used, hits) in [(1_000, 1), (1_100, 500)] {
            if let Some(holder) = &mut *counter.lock() {
                holder.evaluate(hits, at(used));
                counter.was_used(holder, at(used));
            }
            let claim = look(&mut looks, at(used)).expect("it was used");
            assert_eq!(claim.is_some(), hits > 1, "{claim:?}");
        }
        let lost = Duration::from_millis(1_100) + Settings::default().length / 8;
        assert!(look(&mut looks, at(lost.as_millis() as u64)).is_some(), "the claim is made again");
    }

    #[test]
    fn a_decision_wakes_the_thread_only_for_a_look_before_its_next_one() {
        let at = |millis: u64| Monotonic::from_nanos(millis * MILLI);
        let (mut looks, id) = (Looks::default(), [7; 16]);
        let terms = HolderTerms { settings: Settings::default(), limit: 10_000, span: 1_000_000 };
        let counter = looks.insert(id, terms, at(1));
        let wakes = |millis| {
            let mut locked = counter.lock();
            let holder = locked.as_mut().expect("it is not dropped");
            holder.evaluate(1, at(millis));
            counter.was_used(holder, at(millis))
        };
        let sleep = |looks: &mut Looks, now| {
            looks.take_moved();
            looks.due(now).expect("it is due").claim(NodeId(1), now);
            looks.put_back(id);
            looks.next_look(now.plus_nanos(2 * MILLI), now.plus_nanos(100 * MILLI))
        };
        assert_eq!(sleep(&mut looks, at(1)), at(101));
        assert!(wakes(5), "credits may be due at once");
        assert!(!wakes(5), "it is awake");
        let next = looks.next_look(at(6), at(106));
        assert_eq!(next, at(6), "a decision that was made before the thread slept is seen");
        assert!(sleep(&mut looks, at(6)) > at(6));
    }

    #[test]
    fn a_counter_that_is_not_used_is_dropped() {
        let (mut looks, id) = (Looks::default(), [7; 16]);
        let terms = HolderTerms { settings: Settings::default(), limit: 10_000, span: 1_000_000 };
        looks.insert(id, terms, Monotonic::from_nanos(MILLI));
        let (mut seen, mut millis) = (0, 1);
        while looks.len() > 0 && millis < 10_000 {
            let now = Monotonic::from_nanos(millis * MILLI);
            if let Some(counter) = looks.due(now) {
                seen += 1;
                let (_, is_kept) = counter.claim(NodeId(1), now);
                if is_kept { looks.put_back(id) } else { looks.remove(id) }
            }
            millis += 2;
        }
        assert!((1_000..1_100).contains(&millis) && seen < 5, "{seen} looks in {millis} ms");
    }
}
