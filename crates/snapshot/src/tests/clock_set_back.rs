//! Starts whose clock is behind the time of the snapshot.

use super::*;
use tidegate_core::algorithm::Reservation;

fn earlier(back_hours: u64) -> Timestamp {
    Timestamp::from_nanos(start_of_time().as_nanos() - back_hours * 3_600_000_000_000)
}

fn after(start: Timestamp, secs: u64) -> Timestamp {
    start.saturating_add_nanos(secs * 1_000_000_000)
}

#[test]
fn a_counter_from_the_future_neither_resets_nor_blocks_longer_than_its_window() {
    let now = start_of_time();
    for back_hours in [1, 24 * 365] {
        let disk = SimulatedDisk::default();
        let (before, mut writer, _) = start(disk.clone(), RULES, now).unwrap();
        count(&before, key(1), "user", 100, now);
        pass(&mut writer, &before, now).unwrap();

        let earlier = earlier(back_hours);
        let (after, mut writer, restored) = start(disk.clone(), RULES, earlier).unwrap();
        assert!(restored.from_the_future);
        assert_eq!(content(&after, earlier)[&key(1)].1, 100);
        let two_hours_on = earlier.saturating_add_nanos(7_200_000_000_000);
        assert_eq!(content(&after, two_hours_on)[&key(1)].1, 0);

        // The next pass writes everything with the new time.
        assert!(pass(&mut writer, &after, earlier).unwrap().afresh);
        let (again, _, restored) = start(disk, RULES, earlier).unwrap();
        assert!(!restored.from_the_future);
        assert_eq!(content(&again, earlier)[&key(1)].1, 100);
    }
}

const LASTING: &str = "domain: d
descriptors:
- {key: slots, rate_limit: {algorithm: concurrency, requests_in_flight: 1, max_hold: 10m}}
- {key: tokens, rate_limit: {unit: hour, requests_per_unit: 15, algorithm: fixed_window, reserve: 10, max_hold: 10m}}
- {key: banned, rate_limit: {unit: hour, requests_per_unit: 1, ban: {after: 1, within: 1m, for: 10m}}}
";

/// A slot, a denial that begins a ban, or reserved hits.
fn lasting(algorithm: &Algorithm, now: Timestamp) -> State {
    if let Some(concurrency) = algorithm.concurrency() {
        return concurrency.take(State::EMPTY, 7, 1, now).0;
    }
    if algorithm.is_ban() {
        return algorithm.add(State::EMPTY, 1, now);
    }
    let reservation = Reservation { id: 7, hits: 10, deadline: after(now, 600), returns: false };
    algorithm.reserve(State::EMPTY, reservation, now).0
}

/// Slots stayed taken for another `max_hold`, estimates were not corrected, and a ban began again.
#[test]
fn slots_reservations_and_bans_last_as_long_as_they_had_left() {
    let (disk, now) = (SimulatedDisk::default(), start_of_time());
    let (before, mut writer, _) = start(disk.clone(), LASTING, now).unwrap();
    let limits = before.rules().limits().to_vec();
    let states: Vec<State> = limits.iter().map(|(_, info)| lasting(&info.algorithm, now)).collect();
    for (number, ((id, info), state)) in (1..).zip(limits.iter().zip(&states)) {
        let counter = Counter::new(state.clone(), *id, info.algorithm.expires(state));
        assert!(before.store().reserve(1));
        before.store().lock(Store::shard_of(key(number))).insert(key(number), counter, now);
    }
    let written = after(now, 480);
    pass(&mut writer, &before, written).unwrap();

    let now = earlier(48);
    let (limiter, ..) = start(disk, LASTING, now).unwrap();
    for (number, ((_, info), state)) in (1..).zip(limits.iter().zip(states)) {
        let shard = limiter.store().lock(Store::shard_of(key(number)));
        let counter = shard.get(shard.find(key(number)).expect("it is there"));
        assert_eq!(*counter.state(), info.algorithm.set_back(state, written, now), "{info:?}");
    }
}
