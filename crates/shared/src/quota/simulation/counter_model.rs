//! The model of a counter that servers divide.

use super::{KNOWN_BURST, NodeId, Part, PartGrant, PartRequest, divided_counter::DividedCounter};
use proptest::prelude::*;
use std::num::NonZeroU32;
use tidegate_core::{
    algorithm::{Algorithm, FixedWindow, Schedule, SlidingLog, TokenBucket},
    limit::{Timestamp, Window},
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
    // Requests have the rest of the burst and of the rate.
    assert_eq!((0..300).filter(|_| counter.decide(&bucket, at(0))).count(), 50);
    assert_eq!((0..300).filter(|_| counter.decide(&bucket, at(1_000))).count(), 40);
    // Another server gets what is left, also while the first one is silent.
    let second = counter.report(&bucket, &request(2, 1, Part::default(), wanted), false, at(1_000));
    assert_eq!(second.map(|grant| grant.part), Some(Part { rate: 40_000, burst: 0 }));
    assert_eq!(counter.free(&bucket, at(19_999)), 0);
    let third = counter.report(&bucket, &request(2, 2, Part::default(), wanted), false, at(20_000));
    assert_eq!(third.map(|grant| grant.part), Some(Part { rate: 60_000, burst: 0 }));
}

/// Such a server was granted the whole limit beside the parts of the others.
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
    // A part that it declares later, to this store, is known.
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
    // Ten in the first second, and one hit that a client may spend afterwards.
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
    // The response to this request is lost. The next request states the sum of both.
    assert_eq!(send(&mut counter, PartRequest { sequence: 3, spent: 16, ..second }, 2), Some((20, 64)));
    let third = PartRequest { sequence: 4, spent: 18, ..second };
    assert_eq!(send(&mut counter, third, 3), Some((20, 62)));
    // Another bucket of the same process has no figures of what was spent of its part.
    let anew = PartRequest { acknowledged: None, ..request(1, 5, Part::default(), burst(10)) };
    assert_eq!(send(&mut counter, anew, 4), Some((10, 52)));
    // A part that has ended counts as spent, whatever its server states later.
    assert_eq!(counter.free(&day, at(60)), 52);
    let late = PartRequest { spent: 10, ..request(1, 6, Part::default(), burst(5)) };
    assert_eq!(send(&mut counter, late, 60), Some((5, 47)));
    // If the store has lost its keys, hits spent since the last response count.
    let mut counter = DividedCounter::default();
    let declared = PartRequest { spent: 50, acknowledged: Some(40), ..request(1, 7, burst(30), burst(90)) };
    let granted = counter.report(&day, &declared, true, at(61)).map(|grant| (grant.part.burst, grant.free));
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
    // After four of ten seconds, that part of it has left the window. Requests take some.
    assert_eq!((0..100).filter(|_| counter.decide(&log, at(6))).count(), 100);
    assert_eq!(counter.free(&log, at(6)), 60);
    // The rest suffices for the hits of half the rate in these four seconds.
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
            // The hits of rates are counted ahead in parts.
            let has_grown = grant.is_some_and(|grant| grant.part.burst > kept.burst.min(had.burst));
            prop_assert!(!has_grown || sum.1 + bucket.used(&counter.state, at) <= SIZE);
        }
    }
}
