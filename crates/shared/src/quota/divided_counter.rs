//! Parts of a bucket, where several servers share its counter in a store: the store's side. These are the functions of `script/quota.lua`,
//! in whole microseconds.
//!
//! Each server has a part: a rate and a burst, of which its clients have shares, or a burst alone, of which they have slices. The counter
//! counts each part as it does the part of all clients of a single server: the burst as hits of the present, the rate as hits that are spent
//! as time passes, until the end of the part.
//! Invariants:
//!
//! - all that clients of a server may have in force is within its part, and has ended when the part ends;
//! - rates of all parts add up to no more than that of the limit, and a part grows only into what others have given up, or what was
//!   counted at their end;
//! - of a window, hits of the rate are held for as long as it lasts: those of all parts, and of what was given up within its length
//!   ([`LeavingRate`]);
//! - a part shrinks only by a request of its server, whose clients have less by then; what it states as spent counts as spent now, and the
//!   rest of what it gives up is free;
//! - after a loss of the store, parts are what their servers declare, and no part grows until all of them have ended that are not declared.
//!
//! A request that is not newer than the last one of its server changes nothing: it was late, and the server has others in mind.

use super::{
    part::{KNOWN_BURST, OtherPart, Part, PartGrant, PartRequest},
    settings::PART_LIFE,
};
use crate::lease::NodeId;
use tidegate_core::{
    algorithm::{Algorithm, State},
    limit::Timestamp,
};

/// Thousandths of a hit per second and microseconds, of a hit.
const HIT: u128 = 1_000 * 1_000_000;

/// The part of a server, in the counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct StoredPart {
    server: NodeId,
    sequence: u64,
    part: Part,
    /// Microsecond up to which the rate is counted; a part of a hit is counted ahead.
    counted: u64,
    /// Microsecond from which on nothing is spent.
    end: u64,
    demand: u64,
    clients: u64,
    /// [`PartRequest::spent`] that is counted.
    settled: u64,
    /// [`PartRequest::span`].
    span: u64,
}

/// A counter with the parts of servers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DividedCounter {
    /// The hits that are used.
    pub state: State,
    parts: Vec<StoredPart>,
    leaving: LeavingRate,
    exact: u64,
}

impl DividedCounter {
    /// Hits that can be admitted now.
    pub fn free(&mut self, algorithm: &Algorithm, now: Timestamp) -> u64 {
        self.settle(algorithm, now);
        algorithm.remaining(&self.state, now).saturating_sub(self.held(now.as_nanos() / 1_000))
    }

    /// Bursts of parts, and hits of rates of a window.
    fn held(&self, present: u64) -> u64 {
        let of_rates = self.parts.iter().map(|stored| in_time(stored.part.rate, stored.span));
        let of_rates = of_rates.fold(self.leaving.hits(present), u128::saturating_add).div_ceil(HIT);
        let of_rates = u64::try_from(of_rates).unwrap_or(u64::MAX);
        self.parts.iter().fold(of_rates, |sum, stored| sum.saturating_add(stored.part.burst))
    }

    /// Whether no server has a part.
    pub fn is_undivided(&self) -> bool {
        self.parts.is_empty()
    }

    /// Counts a hit of a request to a server if it can be admitted.
    pub fn decide(&mut self, algorithm: &Algorithm, now: Timestamp) -> bool {
        let is_admitted = self.free(algorithm, now) > 0;
        self.add(algorithm, is_admitted.into(), now);
        // Those of a window from the first hit that are denied are of no window.
        self.exact += u64::from(is_admitted || !self.is_undivided() && !algorithm.is_from_first_hit());
        is_admitted
    }

    fn add(&mut self, algorithm: &Algorithm, hits: u64, at: Timestamp) {
        if hits > 0 {
            self.state = algorithm.add(std::mem::take(&mut self.state), hits, at);
        }
    }

    /// Counts the hits of rates up to now, and then bursts of parts that have ended, in the order of their ends.
    fn settle(&mut self, algorithm: &Algorithm, now: Timestamp) {
        let present = now.as_nanos() / 1_000;
        // Of each part the last hit may not be spent yet: it is dated when its time began.
        let mut last_hits = Vec::new();
        for index in 0..self.parts.len() {
            let stored = &mut self.parts[index];
            let (since, rate) = (stored.counted, stored.part.rate);
            let hits = stored.accrue(present);
            if let Some(before) = hits.checked_sub(1) {
                last_hits.push(since + (u128::from(before) * HIT / u128::from(rate)) as u64);
                self.add(algorithm, before, of_micros(since));
            }
        }
        last_hits.sort_unstable();
        for at in last_hits {
            self.add(algorithm, 1, of_micros(at));
        }
        let mut ended: Vec<StoredPart> = self.parts.extract_if(.., |stored| stored.end <= present).collect();
        ended.sort_by_key(|stored| stored.end);
        for stored in ended {
            self.add(algorithm, stored.part.burst, of_micros(stored.end));
            self.leaving.add(stored.part.rate, stored.span, stored.end);
        }
        if self.parts.is_empty() {
            self.exact = 0;
        }
    }

    /// Changes the part of a server; none for a request that is not newer than its last one.
    pub fn report(
        &mut self,
        algorithm: &Algorithm,
        request: &PartRequest,
        is_learning: bool,
        now: Timestamp,
    ) -> Option<PartGrant> {
        let present = now.as_nanos() / 1_000;
        let is_newer = |stored: &StoredPart| {
            stored.server == request.server && stored.end > present && request.sequence <= stored.sequence
        };
        if self.parts.iter().any(is_newer) {
            return None;
        }
        self.settle(algorithm, now);
        let known = self.parts.iter().position(|stored| stored.server == request.server);
        let former = known.map(|known| self.parts.remove(known));
        let had = former.map_or(Part::default(), |former| former.part);
        let kept = if is_learning && request.kept.burst != KNOWN_BURST {
            request.kept
        } else {
            request.kept.min(had)
        };
        self.add(algorithm, request.newly_spent(former.as_ref(), is_learning), now);
        if let Some(StoredPart { span, .. }) = former {
            // Under another limit, all of it is held for as long as under the former one.
            let stays = if span == request.span { kept.rate } else { 0 };
            self.leaving.add(had.rate.saturating_sub(stays), span, present);
        }
        let others = self.parts.iter().map(|other| other.view(present)).collect();
        let PartRequest { server, sequence, demand, clients, spent: settled, span, .. } = *request;
        let end = present + PART_LIFE.as_micros() as u64;
        let counted = present;
        let mut stored =
            StoredPart { server, sequence, part: kept, counted, end, demand, clients, settled, span };
        self.parts.push(stored);
        if !is_learning {
            stored.part = self.grow(algorithm, request, now);
        }
        stored.counted = former.map_or(present, |former| former.counted_at(stored.part.rate, present));
        if let Some(last) = self.parts.last_mut() {
            *last = stored;
        }
        let (part, free) = (stored.part, self.free(algorithm, now));
        Some(PartGrant { part, others, free, exact: self.exact, leased: 0 })
    }

    /// Lets the last part grow into what is free. Of a window, the rate takes the place of another one that is leaving first: only what was
    /// not spent of it since is needed.
    fn grow(&mut self, algorithm: &Algorithm, request: &PartRequest, now: Timestamp) -> Part {
        let present = now.as_nanos() / 1_000;
        let rates = self.parts.iter().fold(0, |sum: u64, stored| sum.saturating_add(stored.part.rate));
        let Some(index) = self.parts.len().checked_sub(1) else { return Part::default() };
        let Part { rate, burst } = self.parts[index].part;
        let missing = request.wanted.burst.saturating_sub(burst);
        self.parts[index].part.burst += missing.min(self.free(algorithm, now));
        let missing = request.wanted.rate.saturating_sub(rate).min(request.rate_max.saturating_sub(rates));
        let free = self.free(algorithm, now);
        let replaced = self.leaving.replace(missing, request.span, free, present);
        self.parts[index].part.rate += replaced;
        let free = self.free(algorithm, now);
        self.parts[index].part.rate += affordable(missing - replaced, request.span, free);
        self.parts[index].part
    }
}

/// Rates of a window that servers have given up. What was spent of them leaves the window with the time since.
///
/// One rate stands for all: of several it is one with as many hits in the window now, and no fewer at any later time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct LeavingRate {
    rate: u64,
    /// Microsecond at which it was given up.
    since: u64,
    /// Microseconds of the window.
    span: u64,
}

impl LeavingRate {
    /// Microseconds of its time that are still in the window.
    fn left(&self, present: u64) -> u64 {
        self.span.saturating_sub(present.saturating_sub(self.since))
    }

    fn hits(&self, present: u64) -> u128 {
        in_time(self.rate, self.left(present))
    }

    /// Adds a rate that is given up now.
    fn add(&mut self, rate: u64, span: u64, present: u64) {
        let hits = self.hits(present);
        if rate == 0 || span == 0 {
            return;
        }
        let longest = if hits > 0 { span.max(self.span) } else { span };
        let of_both = hits.div_ceil(longest.into()) + in_time(rate, span).div_ceil(longest.into());
        *self = Self { rate: of_both as u64, since: present, span: longest };
    }

    /// Gives up to so much of it to a part that grows, for which there are so many free hits. Since it was given up it was not in the
    /// window: the hits of that time are needed.
    fn replace(&mut self, rate: u64, span: u64, free: u64, present: u64) -> u64 {
        if span != self.span || self.left(present) == 0 {
            return 0;
        }
        let replaced = affordable(rate.min(self.rate), self.span - self.left(present), free);
        self.rate -= replaced;
        replaced
    }
}

/// Hits of a rate in so many microseconds, in the unit of [`HIT`].
fn in_time(rate: u64, micros: u64) -> u128 {
    u128::from(rate) * u128::from(micros)
}

/// The part of a rate for whose hits in so many microseconds there is room.
fn affordable(rate: u64, micros: u64, free: u64) -> u64 {
    let most = (u128::from(free) * HIT).checked_div(micros.into());
    most.map_or(rate, |most| rate.min(u64::try_from(most).unwrap_or(u64::MAX)))
}

impl PartRequest {
    /// Spent hits that are not counted, by what the store has of the server. Where it has nothing, the part has ended, and all of it counts,
    /// or it was lost.
    fn newly_spent(&self, former: Option<&StoredPart>, is_learning: bool) -> u64 {
        match (former, self.acknowledged) {
            (Some(former), Some(_)) => self.spent.saturating_sub(former.settled),
            (Some(former), None) => former.part.burst,
            (None, Some(acknowledged)) if is_learning => self.spent.saturating_sub(acknowledged),
            (None, _) => 0,
        }
    }
}

impl StoredPart {
    /// Hits of the rate that were not counted: whole ones, rounded up.
    fn accrue(&mut self, present: u64) -> u64 {
        let until = present.min(self.end);
        if self.part.rate == 0 || self.span > 0 {
            self.counted = until;
            return 0;
        }
        let spent = u128::from(self.part.rate) * u128::from(until.saturating_sub(self.counted));
        let hits = spent.div_ceil(HIT);
        self.counted += (hits * HIT / u128::from(self.part.rate)) as u64;
        hits as u64
    }

    /// The microsecond up to which another rate is counted from now on: of the part of a hit that is counted ahead, as much as before.
    fn counted_at(&self, rate: u64, present: u64) -> u64 {
        let ahead = u128::from(self.counted.saturating_sub(present)) * u128::from(self.part.rate);
        present + ahead.checked_div(u128::from(rate)).unwrap_or(0) as u64
    }

    fn view(&self, present: u64) -> OtherPart {
        let ends_in = self.end.saturating_sub(present);
        OtherPart { part: self.part, ends_in, demand: self.demand, clients: self.clients }
    }
}

fn of_micros(micros: u64) -> Timestamp {
    Timestamp::from_nanos(micros.saturating_mul(1_000))
}

#[cfg(test)]
impl DividedCounter {
    pub(super) fn forget(&mut self, server: NodeId) {
        self.parts.retain(|stored| stored.server != server);
    }

    pub(super) fn take_over(&mut self, algorithm: &Algorithm, former: &Algorithm, now: Timestamp) {
        self.settle(former, now);
        self.state = algorithm.take_over(former, std::mem::take(&mut self.state), now);
    }

    pub(super) fn forget_rates(&mut self) {
        self.leaving = LeavingRate::default();
    }

    pub(super) fn hold_nothing(&mut self) {
        self.parts.iter_mut().for_each(|stored| stored.part.burst = 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::num::NonZeroU32;
    use tidegate_core::{
        algorithm::{FixedWindow, Schedule, SlidingLog, TokenBucket},
        limit::Window,
    };

    const RATE: u64 = 100;
    const SIZE: u64 = 200;

    fn bucket() -> Algorithm {
        let rate = NonZeroU32::new(RATE as u32).unwrap();
        Algorithm::TokenBucket(TokenBucket::greedy(SIZE as u32, rate, Window::from_secs(1).unwrap()))
    }

    fn request(server: u64, sequence: u64, kept: Part, wanted: Part) -> PartRequest {
        let server = NodeId(server);
        let (spent, acknowledged, rate_max) = (0, Some(0), RATE * 1_000);
        let (span, demand, clients) = (0, 1, 1);
        PartRequest { server, sequence, kept, spent, acknowledged, wanted, rate_max, span, demand, clients }
    }

    fn burst(burst: u64) -> Part {
        Part { rate: 0, burst }
    }

    #[test]
    fn a_part_counts_until_its_end_and_its_burst_then_as_spent() {
        let (bucket, at) = (bucket(), |millis: u64| Timestamp::from_millis(1_000_000 + millis));
        let mut counter = DividedCounter::default();
        let wanted = Part { rate: 60_000, burst: 150 };
        let granted = counter.report(&bucket, &request(1, 1, Part::default(), wanted), false, at(0));
        assert_eq!(granted.map(|grant| grant.part), Some(wanted));
        // Requests have the rest, of the burst and of the rate.
        assert_eq!((0..300).filter(|_| counter.decide(&bucket, at(0))).count(), 50);
        assert_eq!((0..300).filter(|_| counter.decide(&bucket, at(1_000))).count(), 40);
        // Another server gets what is left, also while the first one is silent.
        let second = counter.report(&bucket, &request(2, 1, Part::default(), wanted), false, at(1_000));
        assert_eq!(second.map(|grant| grant.part), Some(Part { rate: 40_000, burst: 0 }));
        assert_eq!(counter.free(&bucket, at(19_999)), 0);
        let third = counter.report(&bucket, &request(2, 2, Part::default(), wanted), false, at(20_000));
        assert_eq!(third.map(|grant| grant.part), Some(Part { rate: 60_000, burst: 0 }));
    }

    /// It was granted the whole limit beside the parts of the others.
    #[test]
    fn a_server_that_starts_again_gets_nothing_of_a_store_that_has_lost_its_keys() {
        let (bucket, at) = (bucket(), |millis: u64| Timestamp::from_millis(1_000_000 + millis));
        let mut counter = DividedCounter::default();
        let part_of = |counter: &mut DividedCounter, request: PartRequest, millis| {
            counter.report(&bucket, &request, true, at(millis)).map(|grant| grant.part)
        };
        let known = Part { rate: 100_000, burst: KNOWN_BURST };
        let starts_again = |sequence| request(1, sequence, known, Part::default());
        assert_eq!(part_of(&mut counter, starts_again(1), 0), Some(Part::default()));
        // What it has declared to this store before is known.
        let declared = Part { rate: 30_000, burst: 20 };
        assert_eq!(part_of(&mut counter, request(1, 2, declared, declared), 10), Some(declared));
        assert_eq!(part_of(&mut counter, starts_again(3), 20), Some(declared));
    }

    #[test]
    fn the_last_hit_of_a_rate_drains_from_when_its_time_began() {
        let (bucket, at) = (bucket(), |millis: u64| Timestamp::from_millis(1_000_000 + millis));
        let mut counter = DividedCounter::default();
        let wanted = Part { rate: 10_000, burst: 0 };
        assert!(counter.report(&bucket, &request(1, 1, Part::default(), wanted), false, at(0)).is_some());
        // Ten in the first second, and one that a client may spend from then on.
        assert_eq!(counter.free(&bucket, at(1_005)), SIZE - 1);
        assert_eq!(counter.free(&bucket, at(1_010)), SIZE);
    }

    #[test]
    fn of_what_is_given_up_spent_hits_count_and_others_are_free() {
        let per_day = Window::from_secs(86_400).unwrap();
        let day = Algorithm::FixedWindow(FixedWindow { limit: 100, schedule: Schedule::Clock(per_day) });
        let at = |secs: u64| Timestamp::from_millis(1_000_000 + secs * 1_000);
        let mut counter = DividedCounter::default();
        let send = |counter: &mut DividedCounter, request: PartRequest, secs| {
            counter.report(&day, &request, false, at(secs)).map(|grant| (grant.part.burst, grant.free))
        };
        let first = PartRequest { acknowledged: None, ..request(1, 1, Part::default(), burst(60)) };
        assert_eq!(send(&mut counter, first, 0), Some((60, 40)));
        let second = PartRequest { spent: 15, ..request(1, 2, burst(20), burst(20)) };
        assert_eq!(send(&mut counter, second, 1), Some((20, 65)));
        assert_eq!(send(&mut counter, second, 1), None, "received twice");
        // The response to this one is lost: the next one states the sum of both.
        assert_eq!(send(&mut counter, PartRequest { sequence: 3, spent: 16, ..second }, 2), Some((20, 64)));
        let third = PartRequest { sequence: 4, spent: 18, ..second };
        assert_eq!(send(&mut counter, third, 3), Some((20, 62)));
        // Another bucket of the same process does not know what of its part was spent.
        let anew = PartRequest { acknowledged: None, ..request(1, 5, Part::default(), burst(10)) };
        assert_eq!(send(&mut counter, anew, 4), Some((10, 52)));
        // A part that has ended counts, whatever its server states later.
        assert_eq!(counter.free(&day, at(60)), 52);
        let late = PartRequest { spent: 10, ..request(1, 6, Part::default(), burst(5)) };
        assert_eq!(send(&mut counter, late, 60), Some((5, 47)));
        // Of a store that has lost its keys, what was spent since the last response counts.
        let mut counter = DividedCounter::default();
        let declared =
            PartRequest { spent: 50, acknowledged: Some(40), ..request(1, 7, burst(30), burst(90)) };
        let granted =
            counter.report(&day, &declared, true, at(61)).map(|grant| (grant.part.burst, grant.free));
        assert_eq!(granted, Some((30, 60)));
    }

    #[test]
    fn a_rate_of_a_window_takes_the_place_of_one_that_was_given_up() {
        let log = Algorithm::SlidingLog(SlidingLog { limit: 600, window: Window::from_secs(10).unwrap() });
        let at = |secs: u64| Timestamp::from_millis(1_000_000 + secs * 1_000);
        let mut counter = DividedCounter::default();
        let send = |counter: &mut DividedCounter, (server, sequence), kept, (rate, burst), secs| {
            let request = request(server, sequence, kept, Part { rate, burst });
            let request = PartRequest { span: 10_000_000, rate_max: 50_000, ..request };
            let grant = counter.report(&log, &request, false, at(secs)).unwrap();
            (grant.part, grant.free)
        };
        let first = Part { rate: 50_000, burst: 60 };
        assert_eq!(send(&mut counter, (1, 1), Part::default(), (50_000, 60), 0), (first, 40));
        let less = Part { rate: 20_000, burst: 60 };
        assert_eq!(send(&mut counter, (1, 2), less, (20_000, 60), 2), (less, 40));
        // After four of ten seconds, so much of it has left the window. Requests take a part.
        assert_eq!((0..100).filter(|_| counter.decide(&log, at(6))).count(), 100);
        assert_eq!(counter.free(&log, at(6)), 60);
        // The rest suffices for the hits of these four seconds, of half of it.
        let second = Part { rate: 15_000, burst: 0 };
        assert_eq!(send(&mut counter, (2, 1), Part::default(), (30_000, 0), 6), (second, 0));
        assert_eq!(send(&mut counter, (1, 3), less, (20_000, 60), 12), (less, 90));
        assert_eq!(send(&mut counter, (2, 2), second, (30_000, 0), 12).0, Part { rate: 24_000, burst: 0 });
    }

    proptest! {
        #[test]
        fn rates_of_parts_add_up_to_that_of_the_limit_and_late_requests_change_nothing(
            steps in prop::collection::vec((0..4_u64, 0..150_000_u64, 0..300_u64, 0..150_000_u64, 0..300_u64, 0..9_000_u64, any::<bool>()), 1..60)
        ) {
            let (bucket, mut counter, mut now) = (bucket(), DividedCounter::default(), 1_000_000);
            for (sequence, (server, rate, burst, kept_rate, kept_burst, pause, is_late)) in steps.into_iter().enumerate() {
                now += pause;
                let at = Timestamp::from_millis(now);
                counter.free(&bucket, at);
                let before = counter.clone();
                let known = counter.parts.iter().find(|stored| stored.server == NodeId(server)).copied();
                let (kept, wanted) = (Part { rate: kept_rate, burst: kept_burst }, Part { rate, burst });
                let sequence = if is_late { known.map_or(0, |known| known.sequence) } else { sequence as u64 + 1 };
                let grant = counter.report(&bucket, &request(server, sequence, kept, wanted), false, at);
                let had = known.map_or(Part::default(), |known| known.part);
                match &grant {
                    None => prop_assert!(is_late && counter == before),
                    Some(PartGrant { part, .. }) => {
                        prop_assert!(part.rate >= kept.rate.min(had.rate) && part.burst >= kept.burst.min(had.burst));
                        prop_assert!(part.rate <= wanted.rate.max(kept.rate) && part.burst <= wanted.burst.max(kept.burst));
                    }
                }
                let sum = counter.parts.iter().fold((0, 0), |sum, stored| (sum.0 + stored.part.rate, sum.1 + stored.part.burst));
                prop_assert!(sum.0 <= RATE * 1_000);
                // Parts of hits of rates are counted ahead.
                let has_grown = grant.is_some_and(|grant| grant.part.burst > kept.burst.min(had.burst));
                prop_assert!(!has_grown || sum.1 + bucket.used(&counter.state, at) <= SIZE);
            }
        }
    }
}
