//! A counter with reservations: hits of requests whose cost becomes known when they end.
//!
//! A start counts an estimate. Its end replaces it by the actual cost, dated at the start. Invariant: **the counter equals a counter to
//! which each start was charged, at its time, with its actual cost, or with its estimate while the cost is unknown.** Past admissions stay
//! as they were made.
//!
//! `settled` is the counter of all hits whose number is known. `seen`, which decisions read, is the same with the open reservations.
//! Nothing is ever subtracted from a state: an end inserts the actual cost into `settled` at the date of the start, and `seen` is made
//! anew. Hence an end takes away no hits of others, whatever happened in between.
//!
//! **Windows and logs.** They count hits by their (sub-)window or instant; hits that are inserted there later are the same hits
//! ([`Algorithm::insert`]). Once that has left the window, there is nothing to correct.
//!
//! **Windows from the first hit.** The place of a start is the end of the window that it would open. `settled` has the window of the first
//! known hit, so `seen` has that of the first hit of all. It moves if the start that opened it ends with the cost 0. Two windows are not
//! made anew: a window that is past when the cost of its first start becomes known, if a later window has been opened since; and a window
//! opened by a start whose hits are returned at its deadline, since it would then last longer than was stated.
//!
//! **Buckets** ([`Drain`]) do not remember when hits were added, and it matters: a bucket that ran dry in between has wasted the time in
//! which it was dry. When hits of weight `w` are added at `t`, the moment at which the bucket runs dry becomes `max(dry, t) + w`. After
//! additions `1..n` it is therefore the greatest of `dry + w1 + … + wn` and, for each `i`, `ti + wi + … + wn`: the latest of all
//! paths that begin at the start or at one of the additions and pass through all later ones. Let `s` be a reservation. The paths without
//! it are those of `settled`. Of the paths through it, the latest is `place + ws`, where `place` is `max(dry, ts)` at the start
//! plus all weights added since. So `place` is all that has to be remembered to insert any `ws` later:
//! `settled = max(settled, place + ws)`. For another open reservation before `s`, all paths pass through `s` afterwards: its
//! `place` grows by `ws`. For a reservation after `s`, the paths to it through `s` are new: its `place` becomes
//! `max(place, place of s + ws)`.
//! `seen` follows in the same way, in the order of the starts.
//!
//! Hits that are given back without a ticket are settled hits: only an end gives back reserved hits.

mod converted;
mod dated;
#[cfg(test)]
mod steps;
#[cfg(test)]
mod tests;

use super::{Algorithm, Reservation, Reserved, State, state::Open};
use crate::limit::{Reset, Timestamp};
use std::{borrow::Cow, time::Duration};

/// The most open reservations of one counter. Beyond it, an estimate is charged that no end corrects.
pub const RESERVATIONS_MAX: usize = 4_096;

/// The result of an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The reservation was open.
    Reserved(Reservation),
    /// No reservation of this id is open: it was ended before, has passed its deadline, or never was.
    Unknown,
}

impl Reserved {
    /// Combines the states without and with open reservations, and these in the order of their starts, each with its place. None without
    /// any reservation, or if a state is not plain.
    pub fn from_parts(
        settled: State,
        seen: State,
        open: impl IntoIterator<Item = (Reservation, u128)>,
    ) -> Option<Self> {
        let open: Vec<Open> =
            open.into_iter().map(|(reservation, place)| Open { reservation, place }).collect();
        let is_good = settled.is_plain()
            && seen.is_plain()
            && !open.is_empty()
            && open.iter().all(|open| open.reservation.id > 0 && open.reservation.hits > 0);
        is_good.then_some(Self { settled, seen, open })
    }

    /// The parts: see [`Self::from_parts`].
    pub fn parts(&self) -> (&State, &State, impl ExactSizeIterator<Item = (&Reservation, u128)>) {
        let open = self.open.iter().map(|open| (&open.reservation, open.place));
        (&self.settled, &self.seen, open)
    }

    fn of(settled: State) -> Self {
        Self { seen: settled.clone(), settled, open: Vec::new() }
    }

    /// The open reservations, in the order of their starts; some may have passed their deadlines.
    pub fn open(&self) -> impl ExactSizeIterator<Item = &Reservation> {
        self.open.iter().map(|open| &open.reservation)
    }

    /// Whether a reservation of this id was open when those past their deadlines were last dropped.
    pub fn has(&self, id: u64) -> bool {
        self.open().any(|reservation| reservation.id == id)
    }

    /// Whether a reservation of this id is open at a moment.
    pub fn is_open(&self, id: u64, now: Timestamp) -> bool {
        self.open().any(|reservation| reservation.id == id && reservation.deadline > now)
    }

    /// Hits of the reservations that are open at a moment.
    pub fn hits(&self, now: Timestamp) -> u64 {
        let open = self.open().filter(|reservation| reservation.deadline > now);
        open.map(|reservation| u64::from(reservation.hits)).sum()
    }

    /// The counter as decisions read it.
    #[cold]
    pub(super) fn seen(&self, algorithm: &Algorithm, now: Timestamp) -> Cow<'_, State> {
        // Reservations whose hits stay change nothing in it.
        if !self.open().any(|reservation| reservation.returns && reservation.deadline <= now) {
            return Cow::Borrowed(&self.seen);
        }
        let mut later = self.clone();
        later.expire(algorithm, now);
        Cow::Owned(later.seen)
    }

    /// Ends the reservations that have passed their deadlines; returns how many.
    fn expire(&mut self, algorithm: &Algorithm, now: Timestamp) -> usize {
        let before = self.open.len();
        if algorithm.is_from_first_hit() && self.open.iter().any(|open| self.is_returned_opener(open, now)) {
            self.keep_window();
        }
        let is_expired = |open: &Open| open.reservation.deadline <= now;
        // Returned hits count nowhere: nothing but their reservations changes.
        self.open.retain(|open| !(open.reservation.returns && is_expired(open)));
        let is_changed = self.open.len() < before;
        while let Some(index) = self.open.iter().position(is_expired) {
            let hits = self.open[index].reservation.hits.into();
            self.settle(algorithm, index, hits, u64::MAX, now);
        }
        if is_changed {
            self.see(algorithm, now);
        }
        before - self.open.len()
    }

    /// Whether it opened the window from the first hit that is seen, and its hits are returned.
    fn is_returned_opener(&self, open: &Open, now: Timestamp) -> bool {
        let Open { reservation: Reservation { deadline, returns, .. }, place } = *open;
        returns && deadline <= now && place == u128::from(self.seen.words()[0])
    }

    /// Dates all hits of a window from the first hit at its beginning, so that it keeps its end.
    fn keep_window(&mut self) {
        let [last, _] = self.seen.words();
        let [of_settled, hits] = self.settled.words();
        if hits > 0 && of_settled >= last {
            self.settled = State::Words([last, hits]);
        }
        let last = u128::from(last);
        self.open.iter_mut().filter(|open| open.place >= last).for_each(|open| open.place = last);
    }

    /// Closes a reservation, and counts its hits as known; in a bucket, only as many as leave at most `most` in it. [`Self::see`] must
    /// follow if they are not the reserved hits.
    fn settle(&mut self, algorithm: &Algorithm, index: usize, hits: u64, most: u64, now: Timestamp) {
        let Open { place, .. } = self.open.remove(index);
        #[cfg(test)]
        steps::SETTLED.set(steps::SETTLED.get() + 1);
        if hits == 0 {
            return;
        }
        let settled = std::mem::take(&mut self.settled);
        self.settled = match algorithm.drain() {
            None if !algorithm.is_in_window(place, &self.seen) => settled,
            None => algorithm.insert(algorithm.of_window(settled, &self.seen), hits, place, now),
            Some(drain) => {
                // All weights added since are in the place: this is the level that remains.
                let room = drain.clock(now).saturating_add(drain.weight(most)).saturating_sub(place);
                let weight = drain.weight(hits).min(room);
                let through = place.saturating_add(weight);
                let (before, after) = self.open.split_at_mut(index);
                before.iter_mut().for_each(|open| open.place = open.place.saturating_add(weight));
                after.iter_mut().for_each(|open| open.place = open.place.max(through));
                drain.latest(settled, through, now)
            }
        };
    }

    /// Makes `seen` from `settled` and the open reservations.
    fn see(&mut self, algorithm: &Algorithm, now: Timestamp) {
        let settled = self.settled.clone();
        self.seen = match algorithm.drain() {
            None => {
                let of_window =
                    self.open.iter().filter(|open| algorithm.is_in_window(open.place, &self.seen));
                let seen = of_window.fold(
                    algorithm.of_window(settled, &self.seen),
                    |seen, Open { reservation, place }| {
                        algorithm.insert(seen, reservation.hits.into(), *place, now)
                    },
                );
                // The end of a window that has become empty stays: hits of windows before it do not count again.
                if algorithm.is_from_first_hit() && seen == State::EMPTY {
                    State::Words([self.seen.words()[0], 0])
                } else {
                    seen
                }
            }
            Some(drain) => {
                let through = self.open.iter().fold(0, |latest: u128, Open { reservation, place }| {
                    latest.max(*place).saturating_add(drain.weight(reservation.hits.into()))
                });
                drain.latest(settled, through, now)
            }
        };
    }

    /// Counts hits whose number is known.
    fn add(&mut self, algorithm: &Algorithm, hits: u64, now: Timestamp) {
        if hits == 0 {
            return;
        }
        self.seen = algorithm.add(std::mem::take(&mut self.seen), hits, now);
        let settled = std::mem::take(&mut self.settled);
        self.settled = match algorithm.drain() {
            None => {
                let settled = algorithm.of_window(settled, &self.seen);
                algorithm.insert(settled, hits, algorithm.place_at(&self.seen, now), now)
            }
            Some(drain) => {
                let weight = drain.weight(hits);
                self.open.iter_mut().for_each(|open| open.place = open.place.saturating_add(weight));
                algorithm.add(settled, hits, now)
            }
        };
    }

    /// Gives back hits whose number is known, newest first.
    fn give_back(&mut self, algorithm: &Algorithm, hits: u64, now: Timestamp) {
        // Without the settled hits that opened it, a past window would not be made anew as such.
        if algorithm.is_from_first_hit() && algorithm.used(&self.settled, now) == 0 {
            return;
        }
        let settled = std::mem::take(&mut self.settled);
        if let Some(drain) = algorithm.drain() {
            let given = drain.level(&settled, now).min(drain.weight(hits));
            self.open.iter_mut().for_each(|open| open.place = open.place.saturating_sub(given));
        }
        self.settled = algorithm.give_back(settled, hits, now);
        self.see(algorithm, now);
    }

    fn start(&mut self, algorithm: &Algorithm, reservation: Reservation, now: Timestamp) {
        let before = algorithm.drain().map(|drain| drain.dry(&self.settled).max(drain.clock(now)));
        self.seen = algorithm.add(std::mem::take(&mut self.seen), reservation.hits.into(), now);
        let place = before.unwrap_or_else(|| algorithm.place_at(&self.seen, now));
        if self.open.len() == self.open.capacity() {
            // If room doubled, as in a vector that grows by itself, most counters would hold room for nearly as many again.
            self.open.reserve_exact(2 + self.open.len() / 4);
        }
        self.open.push(Open { reservation, place });
    }

    fn end(
        &mut self,
        algorithm: &Algorithm,
        id: u64,
        hits: impl FnOnce(u32) -> u64,
        most: u64,
        now: Timestamp,
    ) -> Ended {
        let Some(index) = self.open.iter().position(|open| open.reservation.id == id) else {
            return Ended::Unknown;
        };
        let reservation = self.open[index].reservation;
        let hits = hits(reservation.hits);
        self.settle(algorithm, index, hits, most, now);
        if hits != u64::from(reservation.hits) {
            self.see(algorithm, now);
        }
        Ended::Reserved(reservation)
    }

    /// The state to be stored: a plain one without open reservations.
    fn into_state(self: Box<Self>) -> State {
        if self.open.is_empty() { self.settled } else { State::Reserved(self) }
    }

    /// The least wait until the counter is as wanted, if nothing is charged and no end arrives; `until` returns the wait of a plain state.
    /// Hits returned at a deadline shorten it. Once the counter is as wanted it stays so, hence the search.
    #[cold]
    pub(super) fn least_wait(
        &self,
        algorithm: &Algorithm,
        now: Timestamp,
        until: impl Fn(&State, Timestamp) -> Duration,
    ) -> Duration {
        let until_at = |at| until(&self.seen(algorithm, at), at);
        let longest = until_at(now);
        // Then the counter is as wanted anyway: later deadlines shorten nothing.
        let end = now.saturating_add(longest);
        let shortens = |open: &&Reservation| open.returns && open.deadline > now && open.deadline < end;
        let mut deadlines: Vec<Timestamp> =
            self.open().filter(shortens).map(|reservation| reservation.deadline).collect();
        if deadlines.is_empty() {
            return longest;
        }
        deadlines.sort_unstable();
        deadlines.dedup();
        let later = deadlines.partition_point(|&deadline| !until_at(deadline).is_zero());
        let from = later.checked_sub(1).map_or(now, |before| deadlines[before]);
        let wait = from.since(now).saturating_add(until_at(from));
        deadlines.get(later).map_or(wait, |deadline| wait.min(deadline.since(now)))
    }

    /// See [`Algorithm::expires`]. A reservation is kept until its deadline, even if its hits no longer count: its end then differs from
    /// the end of a reservation that never was.
    pub(super) fn expires(&self, algorithm: &Algorithm) -> Timestamp {
        let last = self.open().map(|reservation| reservation.deadline).max().unwrap_or_default();
        algorithm.expires(&self.seen).max(last)
    }
}

impl Algorithm {
    /// Whether hits can be reserved: not of requests in flight, which have slots, and not of denials.
    pub const fn can_reserve(&self) -> bool {
        self.counts_hits()
    }

    /// Counts the estimate of a reservation, whether it fits or not. Returns also the number of reservations that had passed their
    /// deadlines since the last change. A counter with too many reservations counts hits that no end corrects: the
    /// number is then none.
    pub fn reserve(&self, state: State, reservation: Reservation, now: Timestamp) -> (State, Option<usize>) {
        let mut is_reserved = true;
        let (state, expired) = self.with_reservations(state, now, |reserved| {
            is_reserved = reserved.open.len() < RESERVATIONS_MAX;
            match is_reserved {
                true => reserved.start(self, reservation, now),
                false => reserved.add(self, reservation.hits.into(), now),
            }
        });
        (state, is_reserved.then_some(expired))
    }

    /// Ends the reservation of this id: replaces the reserved hits by `hits`, computed from their number, dated at its start. A bucket then
    /// has at most `most` hits. Returns also the number of reservations that had passed their deadlines since the last change.
    pub fn end_reservation(
        &self,
        state: State,
        id: u64,
        hits: impl FnOnce(u32) -> u64,
        most: u64,
        now: Timestamp,
    ) -> (State, Ended, usize) {
        let mut ended = Ended::Unknown;
        let (state, expired) =
            self.with_reservations(state, now, |reserved| ended = reserved.end(self, id, hits, most, now));
        (state, ended, expired)
    }

    /// Renews the reservation of this id, if it is open: its deadline becomes this one, unless it is later. Returns the former deadline,
    /// and the number of reservations that had passed theirs since the last change.
    pub fn renew_reservation(
        &self,
        state: State,
        id: u64,
        deadline: Timestamp,
        now: Timestamp,
    ) -> (State, Option<Timestamp>, usize) {
        let mut former = None;
        let (state, expired) = self.with_reservations(state, now, |reserved| {
            if let Some(open) = reserved.open.iter_mut().find(|open| open.reservation.id == id) {
                former = Some(open.reservation.deadline);
                open.reservation.deadline = open.reservation.deadline.max(deadline);
            }
        });
        (state, former, expired)
    }

    /// As [`Algorithm::add`], to a counter with reservations.
    #[cold]
    pub(super) fn add_reserved(&self, state: State, hits: u64, now: Timestamp) -> State {
        self.with_reservations(state, now, |reserved| reserved.add(self, hits, now)).0
    }

    /// As [`Algorithm::give_back`], to a counter with reservations.
    #[cold]
    pub(super) fn give_back_reserved(&self, state: State, hits: u64, now: Timestamp) -> State {
        self.with_reservations(state, now, |reserved| reserved.give_back(self, hits, now)).0
    }

    /// Changes a counter, without the reservations that have passed their deadlines. Returns also how many there were.
    fn with_reservations(
        &self,
        state: State,
        now: Timestamp,
        change: impl FnOnce(&mut Reserved),
    ) -> (State, usize) {
        match state {
            State::Leased(mut leased) => {
                leased.expire(self, now);
                let (state, expired) = self.with_reservations(std::mem::take(&mut leased.state), now, change);
                leased.state = state;
                (leased.into_state(self, now), expired)
            }
            State::Reserved(mut reserved) => {
                let expired = reserved.expire(self, now);
                change(&mut reserved);
                (reserved.into_state(), expired)
            }
            plain => {
                let mut reserved = Box::new(Reserved::of(plain));
                change(&mut reserved);
                (reserved.into_state(), 0)
            }
        }
    }

    /// See [`Algorithm::until_admits`]; for a counter with reservations.
    pub(super) fn until_admits_reserved(&self, reserved: &Reserved, hits: u64, now: Timestamp) -> Reset {
        if self.until_admits(&reserved.seen, hits, now) == Reset::Never {
            return Reset::Never;
        }
        Reset::After(reserved.least_wait(self, now, |state, at| match self.until_admits(state, hits, at) {
            Reset::After(wait) => wait,
            Reset::Never => Duration::MAX,
        }))
    }

    /// See [`Algorithm::until_admits_after`]; for a counter with reservations. The hits that can be given back change with time: settled
    /// hits cease to count, and reserved hits are settled at their deadlines. Once the hits fit, they still do later, hence the search.
    #[cold]
    pub(super) fn until_admits_reserved_after(
        &self,
        reserved: &Reserved,
        (given, hits): (u64, u64),
        now: Timestamp,
    ) -> Reset {
        let fits_after = |nanos: u64| {
            let then = now.saturating_add_nanos(nanos);
            let mut later = reserved.clone();
            later.expire(self, then);
            later.give_back(self, given, then);
            hits <= self.remaining(&later.seen, then)
        };
        let Reset::After(most) = self.until_admits_reserved(reserved, hits, now) else { return Reset::Never };
        let (mut least, mut most) = (0, u64::try_from(most.as_nanos()).unwrap_or(u64::MAX));
        while least < most {
            let middle = least + (most - least) / 2;
            if fits_after(middle) {
                most = middle;
            } else {
                least = middle + 1;
            }
        }
        Reset::After(Duration::from_nanos(least))
    }
}

impl State {
    /// The reservations of the counter, if it has any.
    pub fn reserved(&self) -> Option<&Reserved> {
        match self {
            Self::Reserved(reserved) => Some(reserved),
            Self::Leased(leased) => leased.state.reserved(),
            _ => None,
        }
    }
}
