//! Holding answers, as naively as it can be said: who may wait, what those are told who may not, and how a wait ends.

use crate::{
    naive::{Asked, Charge, Key, Naive, Told, Wait, gives, is_over_at, sum, takes},
    oracle::{Oracle, first},
    rules::Queue,
    waits::{Place, Waiter},
};

impl Naive {
    /// Hits of a counter that do not fit are as good as those that do if they have a turn in time.
    pub fn let_wait(&self, charges: &mut [Charge], key: Key, patience: u64, now: u64) {
        let taken = sum(charges, key, |_| true, takes);
        let mut oracle = self.oracle(charges, key, now);
        oracle.give_back(sum(charges, key, |_| true, gives), now);
        for charge in charges.iter_mut().filter(|charge| charge.key == key && takes(charge.hits) > 0) {
            charge.fits |= charge.queue.is_some_and(|queue| has_place(&oracle, queue, taken, patience, now));
        }
    }

    /// Tells those who are turned away from a queue when there will be a place for them.
    pub fn tell_until_place(&self, charges: &mut [Charge], patience: u64, now: u64) {
        for index in 0..charges.len() {
            let Charge { key, fits, hits, queue: Some(queue), .. } = charges[index] else { continue };
            if fits || takes(hits) == 0 {
                continue;
            }
            let oracle = self.oracle(charges, key, now);
            let [given, taken] = [gives, takes].map(|hits| sum(charges, key, |_| true, hits));
            let has_place = |at| {
                let mut then = oracle.clone();
                then.give_back(given, at);
                then.remaining(at) >= taken || has_place(&then, queue, taken, patience, at)
            };
            let never = taken > oracle.limit();
            let wait = if never { Wait::Never } else { Wait::After(first(now, has_place) - now) };
            charges[index].until_place = Some(wait);
        }
    }

    /// A request that was charged, as one that waits.
    pub fn waiter(&self, asked: &[Asked], charges: &[Charge], counters: &[Key], now: u64) -> Waiter {
        let is_always = |key| charges.iter().any(|charge| charge.key == key && charge.always);
        let places = counters.iter().filter_map(|&key| {
            let hits = self.counted(charges, key, false, takes);
            // One that found no room is not there, and counts nothing.
            let counter = self.counters.get(&key).filter(|_| hits > 0)?;
            let may_wait = charges.iter().any(|charge| charge.key == key && charge.queue.is_some());
            Some(Place::new(key, if is_always(key) { 0 } else { hits }, counter.clone(), may_wait))
        });
        Waiter {
            came: now,
            asked: asked.to_vec(),
            over: (0..asked.len()).filter(|&index| is_over_at(charges, index)).collect(),
            places: places.collect(),
        }
    }

    /// One who waits goes away: what is left of its hits is taken off, and whoever came later moves up.
    pub fn give_up(&mut self, index: usize, now: u64) -> Waiter {
        let waiter = self.waits.remove(index);
        for place in &waiter.places {
            let Some(counter) = self.counters.get_mut(&place.key) else { continue };
            let left = place.left(counter, waiter.came, now);
            counter.give_back(left, now);
            self.waits.move_up(index, place.key, left);
            self.is_changed = true;
        }
        waiter
    }

    /// Those whose turn has come are told what their counters say now.
    pub fn answer_all_due(&mut self, now: u64) -> Vec<Told> {
        let mut told = Vec::new();
        while let Some(Waiter { asked, over, .. }) = self.waits.next_due(now) {
            let mut charges = self.charges(&asked);
            self.convert(&charges, now);
            charges.iter_mut().for_each(|charge| charge.fits = !over.contains(&charge.descriptor));
            told.push(self.answer(false, &asked, &charges, now));
        }
        told
    }

    /// Nobody is held beyond the end: whose turn comes later goes, and is decided as one who does not wait.
    pub fn end(&mut self, ends: u64, now: u64) -> Vec<Told> {
        self.waits.end(ends);
        let mut told = Vec::new();
        while let Some(index) = self.waits.next_too_late(now) {
            let Waiter { asked, .. } = self.give_up(index, now);
            told.push(self.ask(&asked, 0, now));
        }
        told
    }
}

/// Whether hits that come at that moment and do not fit have a turn in time.
fn has_place(counter: &Oracle, queue: Queue, hits: u64, patience: u64, at: u64) -> bool {
    let mut with = counter.clone();
    with.take(hits, at);
    // Time, as counters keep it, ends.
    let (burst, latest) = (counter.limit(), at.saturating_add(queue.wait.min(patience)));
    hits <= burst && with.used(at) <= burst + queue.hits && with.used(latest) <= burst
}
