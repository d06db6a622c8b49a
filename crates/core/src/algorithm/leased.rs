//! A counter for which nodes hold credits: hits that they may spend without a request.
//!
//! Pure. The part of the lease protocol that every decision needs (`crates/shared/src/lease/` has the rest).
//! Invariants:
//!
//! - outstanding credits count as hits of the present moment, whether they are spent or not;
//! - credits of a lease that has ended count as hits at its end: the node did not report how many it spent;
//! - only an exact decision opens a window from the first hit, and give-backs do not close it once it was leased: how many of the hits that
//!   nodes report are in this window is unknown;
//! - hits of quota count the same way ([`Assigned`]): hits that clients may spend at any moment as hits of the present, hits that they may
//!   spend at a rate as time passes.

use super::{Algorithm, Assigned, Lease, Leased, State};
use crate::limit::{Reset, Timestamp};
use std::{borrow::Cow, cmp::Reverse, collections::BinaryHeap};

/// Moments to try for a wait.
const MOMENTS_MAX: usize = 64;

impl Leased {
    /// The counter of a state, without outstanding credits unless the state has them.
    pub fn of(algorithm: &Algorithm, state: State, now: Timestamp) -> Self {
        match state {
            State::Leased(leased) => *leased,
            state => {
                let exact = if algorithm.is_from_first_hit() { algorithm.used(&state, now) } else { 0 };
                Self { state, exact, ..Self::default() }
            }
        }
    }

    /// The state to be stored: without leases, a plain one.
    pub fn into_state(self, algorithm: &Algorithm, now: Timestamp) -> State {
        let is_plain = self.leases.is_empty()
            && self.assigned.is_none()
            && (!algorithm.is_from_first_hit() || self.exact >= algorithm.used(&self.state, now));
        if is_plain { self.state } else { State::Leased(Box::new(self)) }
    }

    /// Outstanding credits, including those of quota.
    pub fn outstanding(&self) -> u64 {
        let held = self.assigned.map_or(0, |assigned| assigned.held);
        self.leases.iter().fold(held, |sum, lease| sum.saturating_add(lease.outstanding))
    }

    /// The hits that are used, with the outstanding credits as hits of this moment.
    pub(super) fn seen(&self, algorithm: &Algorithm, now: Timestamp) -> Cow<'static, State> {
        let mut leased = self.clone();
        leased.expire(algorithm, now);
        let state = match leased.outstanding() {
            0 => leased.state,
            credits => algorithm.add(leased.state, credits, now),
        };
        match state {
            State::Reserved(reserved) => Cow::Owned(reserved.seen(algorithm, now).into_owned()),
            state => Cow::Owned(state),
        }
    }

    /// The wait until hits are admitted if nothing else arrives: outstanding credits count until their ends and beyond, and the rate of
    /// quota counts as time passes. Usually the least wait; if quota has nearly all of a rate, or very many leases end one after the other,
    /// the wait until all of it has ended.
    pub(super) fn until_admits(&self, algorithm: &Algorithm, hits: u64, now: Timestamp) -> Reset {
        if algorithm.until_admits(&State::EMPTY, hits, now) == Reset::Never {
            return Reset::Never;
        }
        // A denial is frequent, and a counter may have a thousand leases: each is read once.
        let mut then = Self { state: self.state.clone(), assigned: self.assigned, ..Self::default() };
        let mut leases: BinaryHeap<Reverse<(Timestamp, u64)>> =
            self.leases.iter().map(|lease| Reverse((lease.end, lease.outstanding))).collect();
        let mut outstanding = self.outstanding() - self.assigned.map_or(0, |assigned| assigned.held);
        let mut at = now;
        // No moment before the next one admits: until then hits are only added.
        for _ in 0..MOMENTS_MAX {
            outstanding = outstanding.saturating_sub(then.expire_next(algorithm, &mut leases, at));
            let next_end = leases.peek().map(|Reverse((end, _))| *end);
            let ends = next_end.into_iter().chain(then.assigned.map(|assigned| assigned.end));
            let next_end = ends.min().unwrap_or(Timestamp::from_nanos(u64::MAX));
            let held = then.outstanding().saturating_add(outstanding);
            match algorithm.until_admits(&then.state, hits.saturating_add(held), at) {
                Reset::NOW if self.assigned.is_none() => return Reset::After(at.since(now)),
                Reset::NOW => break,
                Reset::After(wait) if at.saturating_add(wait) < next_end => at = at.saturating_add(wait),
                Reset::After(_) | Reset::Never => at = next_end,
            }
        }
        let end = self.ends().max().unwrap_or(now).max(now);
        if self.assigned.is_some() {
            // Windows that are not read in between date the hits of a rate later.
            if algorithm.remaining(&self.seen(algorithm, at), at) >= hits {
                return Reset::After(at.since(now));
            }
            then = self.clone();
            then.expire(algorithm, end);
        } else {
            then.expire_next(algorithm, &mut leases, end);
        }
        match algorithm.until_admits(&then.state, hits, end) {
            Reset::After(wait) => Reset::After(end.since(now).saturating_add(wait)),
            Reset::Never => Reset::Never,
        }
    }

    /// As [`Self::expire`], for a counter whose leases are in `leases`; returns the credits of ended leases.
    fn expire_next(
        &mut self,
        algorithm: &Algorithm,
        leases: &mut BinaryHeap<Reverse<(Timestamp, u64)>>,
        now: Timestamp,
    ) -> u64 {
        self.accrue(algorithm, now);
        let mut ended: u64 = 0;
        while let Some(&Reverse((end, outstanding))) = leases.peek().filter(|Reverse((end, _))| *end <= now) {
            leases.pop();
            self.add_reported(algorithm, outstanding, end);
            ended = ended.saturating_add(outstanding);
        }
        ended
    }

    /// The ends of leases and quota.
    fn ends(&self) -> impl Iterator<Item = Timestamp> {
        self.leases.iter().map(|lease| lease.end).chain(self.assigned.map(|assigned| assigned.end))
    }

    /// Counts as used the hits of ended leases and quota, dated at their ends, and those of the rate of quota.
    pub fn expire(&mut self, algorithm: &Algorithm, now: Timestamp) {
        self.accrue(algorithm, now);
        let mut ended: Vec<Lease> = self.leases.extract_if(.., |lease| lease.end <= now).collect();
        // In the order of their ends, so that the state is written in the order of time.
        ended.sort_by_key(|lease| lease.end);
        for lease in ended {
            self.add_reported(algorithm, lease.outstanding, lease.end);
        }
        if !algorithm.is_from_first_hit() || algorithm.used(&self.state, now) == 0 {
            self.exact = 0;
        }
    }

    /// Counts the hits spent at the rate of quota, and all of the quota once it has ended.
    fn accrue(&mut self, algorithm: &Algorithm, now: Timestamp) {
        let Some(mut assigned) = self.assigned else { return };
        let (hits, since, last) = assigned.accrue(now);
        // A bucket that drains no slower than it is filled has the same level as if all hits had been there from the beginning, except the
        // last, which may not be spent yet. Hits that are refilled at once, or leave a window, are not known to be older than the end.
        if algorithm.drains_evenly() {
            self.add_reported(algorithm, hits.saturating_sub(1), since);
            self.add_reported(algorithm, hits.min(1), last);
        } else {
            self.add_reported(algorithm, hits, assigned.counted);
        }
        self.assigned = (assigned.end > now).then_some(assigned);
        if self.assigned.is_none() {
            self.add_reported(algorithm, assigned.held, assigned.end);
        }
    }

    /// Sets what clients of quota may spend from now on, until the end. Hits that they may no longer spend count as spent now.
    /// Precondition: leases have been expired.
    pub fn assign(&mut self, algorithm: &Algorithm, held: u64, rate: u64, end: Timestamp, now: Timestamp) {
        let mut assigned = self.assigned.unwrap_or(Assigned::until(end, now));
        self.add_reported(algorithm, assigned.held.saturating_sub(held), now);
        (assigned.held, assigned.rate, assigned.end) = (held, rate, end);
        self.assigned = Some(assigned);
    }

    /// Counts hits of an exact decision.
    pub fn add_exact(&mut self, algorithm: &Algorithm, hits: u64, now: Timestamp) {
        self.add(algorithm, hits, now);
        self.note_demand(hits);
        self.exact = self.exact.saturating_add(hits);
    }

    /// Notes hits of an exact decision, admitted or not, beside quota.
    pub fn note_demand(&mut self, hits: u64) {
        if let Some(assigned) = &mut self.assigned {
            assigned.demanded = assigned.demanded.saturating_add(hits);
        }
    }

    /// Counts hits of a lease. If no window from the first hit is open, they are of an earlier window, and open none.
    pub fn add_reported(&mut self, algorithm: &Algorithm, hits: u64, at: Timestamp) {
        if !algorithm.is_from_first_hit() || algorithm.used(&self.state, at) > 0 {
            self.add(algorithm, hits, at);
        }
    }

    /// Counts hits.
    pub fn add(&mut self, algorithm: &Algorithm, hits: u64, at: Timestamp) {
        if hits > 0 {
            self.state = algorithm.add(std::mem::take(&mut self.state), hits, at);
        }
    }

    /// Gives back the newest hits, and returns their number. Precondition: leases have been expired.
    pub fn give_back(&mut self, algorithm: &Algorithm, hits: u64, now: Timestamp) -> u64 {
        let used = algorithm.used(&self.state, now);
        let is_leased = self.outstanding() > 0 || used > self.exact;
        let stays_open = algorithm.is_from_first_hit() && is_leased;
        let given = hits.min(if stays_open { self.exact.saturating_sub(1) } else { used });
        if given > 0 {
            self.state = algorithm.give_back(std::mem::take(&mut self.state), given, now);
            self.exact = self.exact.saturating_sub(given);
        }
        given
    }

    /// Frees all hits, and returns the number of those that stay. Outstanding credits stay valid, and count.
    ///
    /// While there are any, a window from the first hit stays open with one hit: a hit that a node reports later has to be in it.
    pub fn reset(&mut self, algorithm: &Algorithm, now: Timestamp) -> u64 {
        self.expire(algorithm, now);
        let used = algorithm.used(&self.state, now);
        let state = std::mem::take(&mut self.state);
        let stays_open = algorithm.is_from_first_hit() && used > 0 && self.outstanding() > 0;
        if self.outstanding() == 0 {
            self.leases.clear();
        }
        self.exact = u64::from(stays_open);
        if stays_open {
            self.state = algorithm.give_back(state, used - 1, now);
        }
        self.exact
    }

    /// The counter under another algorithm: at most `most` of the used hits stay used, credits stay outstanding until their end.
    pub fn take_over(mut self, algorithm: &Algorithm, former: &Algorithm, most: u64, now: Timestamp) -> Self {
        self.expire(former, now);
        self.state = algorithm.take_over(former, self.state, most, now);
        self
    }

    /// The counter of a clock that was set back: see [`Algorithm::set_back`].
    pub(super) fn set_back(mut self, algorithm: &Algorithm, at: Timestamp, now: Timestamp) -> Self {
        self.expire(algorithm, at);
        self.state = algorithm.set_back(self.state, at, now);
        for lease in &mut self.leases {
            lease.end = now.saturating_add(lease.end.since(at));
        }
        if let Some(assigned) = &mut self.assigned {
            (assigned.counted, assigned.end) = (now, now.saturating_add(assigned.end.since(at)));
        }
        self
    }

    /// The time from which on the counter may be dropped: all leases have ended, and their hits, as if all were of the last end, no
    /// longer count.
    pub fn expires(&self, algorithm: &Algorithm) -> Timestamp {
        let last = self.ends().max().unwrap_or_default();
        let mut at_end = Self { state: self.state.clone(), assigned: self.assigned, ..Self::default() };
        at_end.accrue(algorithm, last);
        let leased = self.leases.iter().fold(0, |sum: u64, lease| sum.saturating_add(lease.outstanding));
        at_end.add_reported(algorithm, leased, last);
        algorithm.expires(&at_end.state).max(last)
    }
}

impl Algorithm {
    /// As [`Algorithm::add`], to a counter with outstanding credits.
    #[cold]
    pub(super) fn add_leased(&self, mut leased: Leased, hits: u64, now: Timestamp) -> State {
        leased.expire(self, now);
        leased.add_exact(self, hits, now);
        leased.into_state(self, now)
    }

    /// As [`Algorithm::give_back`], to a counter with outstanding credits.
    #[cold]
    pub(super) fn give_back_leased(&self, mut leased: Leased, hits: u64, now: Timestamp) -> State {
        leased.expire(self, now);
        leased.give_back(self, hits, now);
        leased.into_state(self, now)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::assigned::MILLIHIT_SECONDS, *};
    use crate::{
        algorithm::{SlidingLog, TokenBucket},
        limit::Window,
    };
    use proptest::prelude::*;
    use std::{num::NonZeroU32, time::Duration};

    fn log() -> Algorithm {
        Algorithm::SlidingLog(SlidingLog { limit: 100, window: Window::from_secs(10).unwrap() })
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn leased(outstanding: u64, end: Timestamp) -> State {
        let log = log();
        let lease = Lease { node: 1, holder: 2, sequence: 3, settled: 0, outstanding, end, demand: 9 };
        let state = log.add(State::EMPTY, 10, at(1_000));
        State::Leased(Box::new(Leased { state, leases: vec![lease], ..Leased::default() }))
    }

    #[test]
    fn credits_count_as_hits_of_the_present_and_then_of_the_end_of_their_lease() {
        let (log, state) = (log(), leased(40, at(1_200)));
        assert_eq!((log.used(&state, at(1_100)), log.remaining(&state, at(1_100))), (50, 50));
        assert_eq!(log.used(&state, at(11_100)), 40, "the ten are too old, the credits are not");
        assert_eq!(log.used(&state, at(11_200)), 0);
        assert_eq!(log.expires(&state), at(11_200));
        let admitted = log.add(state.clone(), 50, at(1_100));
        assert_eq!(log.remaining(&admitted, at(1_100)), 0);
        assert!(matches!(log.add(state, 1, at(1_200)), State::Log(_)), "a plain state without leases");
    }

    #[test]
    fn a_bound_on_used_hits_under_another_algorithm_leaves_credits_outstanding() {
        let (log, bucket, state) = (log(), bucket(), leased(40, at(1_200)));
        let state = bucket.take_over(&log, state, 3, at(1_100));
        assert_eq!(bucket.used(&state, at(1_100)), 43);
        assert!(matches!(state, State::Leased(_)));
    }

    #[test]
    fn the_last_hit_of_the_rate_of_quota_drains_from_when_its_time_began() {
        let rate = NonZeroU32::new(100).unwrap();
        let bucket = Algorithm::TokenBucket(TokenBucket::greedy(200, rate, Window::from_secs(1).unwrap()));
        let mut leased = Leased::default();
        leased.assign(&bucket, 0, 10_000, at(60_000), at(1_000));
        // Ten hits in the first second, and one hit that a client may spend from then on.
        leased.expire(&bucket, at(2_005));
        assert_eq!(bucket.remaining(&leased.state, at(2_005)), 199);
        assert_eq!(bucket.remaining(&leased.state, at(2_010)), 200);
    }

    #[test]
    fn hits_are_given_back_but_not_credits() {
        let (log, state) = (log(), leased(40, at(1_200)));
        let given = log.give_back(state, u64::MAX, at(1_100));
        assert_eq!(log.used(&given, at(1_100)), 40);
    }

    fn bucket() -> Algorithm {
        let tokens = NonZeroU32::new(10).unwrap();
        Algorithm::TokenBucket(TokenBucket::greedy(100, tokens, Window::from_secs(1).unwrap()))
    }

    fn with_quota(algorithm: &Algorithm, held: u64, rate: u64, end: Timestamp, now: Timestamp) -> State {
        let mut leased = Leased::of(algorithm, State::EMPTY, now);
        leased.assign(algorithm, held, rate, end, now);
        leased.into_state(algorithm, now)
    }

    #[test]
    fn hits_of_quota_count_while_it_lasts_and_then_as_spent_at_its_end() {
        let (bucket, log) = (bucket(), log());
        let state = with_quota(&bucket, 40, 6_000, at(11_000), at(1_000));
        assert_eq!(bucket.remaining(&state, at(1_000)), 60);
        let taken = bucket.add(state, 60, at(1_000));
        // Clients may have spent six of the ten that drain in a second.
        assert_eq!(bucket.remaining(&taken, at(2_000)), 4);
        assert_eq!(bucket.remaining(&taken, at(10_999)), 39);
        assert_eq!(bucket.used(&taken, at(11_000)), 60);
        assert_eq!(bucket.used(&taken, at(13_000)), 40);
        assert_eq!(bucket.expires(&taken), at(17_000));
        let state = with_quota(&log, 40, 0, at(11_000), at(1_000));
        assert_eq!((log.used(&state, at(10_999)), log.used(&state, at(20_999))), (40, 40));
        assert_eq!(log.used(&state, at(21_000)), 0);
    }

    /// A bucket of 100 per second that holds 40; quota has half of the rate: the wait was that of the whole rate.
    #[test]
    fn a_denial_waits_for_its_part_of_a_rate_that_quota_has_a_half_of() {
        let rate = NonZeroU32::new(100).unwrap();
        let bucket = Algorithm::TokenBucket(TokenBucket::greedy(40, rate, Window::from_secs(1).unwrap()));
        let full = bucket.add(with_quota(&bucket, 20, 50_000, at(16_000), at(0)), 20, at(0));
        for (hits, millis) in [(1, 20), (3, 60), (20, 400), (21, 16_000 + 10), (40, 16_000 + 200)] {
            let Reset::After(wait) = bucket.until_admits(&full, hits, at(0)) else { panic!("{hits}: never") };
            // A hit of the rate that is counted ahead is there a little earlier.
            let (least, most) = (Duration::from_millis(millis - 10), Duration::from_millis(millis + 10));
            assert!(least <= wait && wait <= most, "{hits} hits: {wait:?}");
        }
        assert_eq!(bucket.until_admits(&full, 41, at(0)), Reset::Never);
    }

    #[test]
    fn what_quota_gives_up_counts_as_spent() {
        let bucket = bucket();
        let mut leased = Leased::of(&bucket, with_quota(&bucket, 40, 0, at(9_000), at(1_000)), at(1_000));
        leased.assign(&bucket, 10, 0, at(9_000), at(1_000));
        let state = leased.into_state(&bucket, at(1_000));
        assert_eq!(bucket.used(&state, at(1_000)), 40);
        assert_eq!(bucket.used(&state, at(4_000)), 10);
    }

    proptest! {
        /// However often the counter is read, and rounded up once.
        #[test]
        fn a_rate_of_quota_counts_as_time_passes(rate in 1..100_000_u64, steps in prop::collection::vec(1..2_000_u64, 1..20)) {
            let never = Algorithm::TokenBucket(TokenBucket::greedy(u32::MAX, NonZeroU32::MIN, Window::from_secs(86_400).unwrap()));
            let mut state = with_quota(&never, 0, rate, Timestamp::from_nanos(u64::MAX), at(0));
            let mut now = 0;
            for step in steps {
                now += step;
                let mut leased = Leased::of(&never, state, at(now));
                leased.expire(&never, at(now));
                state = leased.into_state(&never, at(now));
                let spent = (rate * now).div_ceil(1_000_000);
                let used = never.used(&state, at(now));
                prop_assert!(used == spent || used + 1 == spent && now > 0, "{used} instead of {spent}");
            }
        }

        #[test]
        fn a_leased_state_is_read_as_it_was_written(numbers in prop::collection::vec(any::<[u64; 7]>(), 0..5), exact: u64, quota: Option<[u64; 6]>) {
            let leases = numbers.iter().map(|&[node, holder, sequence, settled, outstanding, end, demand]| {
                let end = Timestamp::from_nanos(end);
                Lease { node, holder, sequence, settled, outstanding, end, demand }
            });
            let assigned = quota.map(|[held, rate, counted, ahead, end, demanded]| {
                let [counted, end] = [counted, end].map(Timestamp::from_nanos);
                Assigned { held, rate, counted, ahead: ahead % MILLIHIT_SECONDS as u64, end, demanded }
            });
            let leased = Leased { state: log().add(State::EMPTY, 7, at(5)), leases: leases.collect(), exact, assigned };
            let mut bytes = Vec::new();
            State::Leased(Box::new(leased.clone())).encode(&mut bytes);
            prop_assert_eq!(State::decode(&bytes), Ok(State::Leased(Box::new(leased))));
            bytes.truncate(bytes.len() / 2);
            prop_assert!(State::decode(&bytes).is_err());
        }
    }
}
