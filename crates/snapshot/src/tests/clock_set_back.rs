//! Starts whose clock is behind the time of the snapshot.

use super::*;

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

const HELD: &str = "domain: d
descriptors:
- {key: slots, rate_limit: {algorithm: concurrency, requests_in_flight: 1, max_hold: 10m, max_wait: 0s}}
- {key: tokens, rate_limit: {unit: hour, requests_per_unit: 15, algorithm: fixed_window, reserve: 10, max_hold: 10m}}
- {key: banned, rate_limit: {unit: second, requests_per_unit: 1, algorithm: fixed_window, ban: {after: 1, within: 1m, for: 10m}}}
";

/// Decides on one hit of the key, with further entries, and returns the ticket of what it holds.
fn decide(limiter: &Limiter, key: &str, more: &[(&str, &str)], now: Timestamp) -> (Code, Option<String>) {
    let entries = [(key, "ann")].iter().chain(more).map(|&(key, value)| Entry { key, value }).collect();
    let mut request = Request::new("d");
    request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
    let pinned = limiter.pin();
    let decision = pinned.decide(&request, now);
    (decision.code, decision.slot.map(|slot| slot.ticket.into()))
}

/// Slots stayed taken for another `max_hold`, estimates were not corrected, and a ban began again.
#[test]
fn tickets_stay_valid_and_bans_end_when_they_were_to_end() {
    let (disk, now) = (SimulatedDisk::default(), start_of_time());
    let (before, mut writer, _) = start(disk.clone(), HELD, now).unwrap();
    let tickets = ["slots", "tokens"].map(|key| decide(&before, key, &[], now).1.expect("it is admitted"));
    assert_eq!(
        [decide(&before, "banned", &[], now).0, decide(&before, "banned", &[], now).0],
        [Code::Ok, Code::OverLimit]
    );
    let written = after(now, 480);
    pass(&mut writer, &before, written).unwrap();

    let now = earlier(48);
    let (limiter, ..) = start(disk, HELD, now).unwrap();
    let code = |key, secs| decide(&limiter, key, &[], after(now, secs)).0;
    assert_eq!(["slots", "tokens", "banned"].map(|key| code(key, 1)), [Code::OverLimit; 3]);
    assert_eq!((code("banned", 119), code("banned", 120)), (Code::OverLimit, Code::Ok));
    for (key, ticket) in ["slots", "tokens"].into_iter().zip(&tickets) {
        decide(&limiter, key, &[("slot", ticket)], after(now, 2));
        assert_eq!(code(key, 2), Code::Ok, "{key}");
    }
}
