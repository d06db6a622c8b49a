//! Limits with schedules: which number applies when, and resets across a change of it.

use super::*;
use crate::rules::{OverrideAction, OverrideLimit, OverrideRule};
use proptest::{collection::vec, prelude::*};

/// Midnight of the tests begins a Wednesday.
const HOUR_MILLIS: u64 = 3_600_000;

const OFFICE: &str = "
domain: d
descriptors:
  - key: user
    rate_limit:
      unit: hour
      requests_per_unit: 2
      algorithm: fixed_window
      schedule:
        - { days: wed, hours: '08:00-18:00', requests_per_unit: 5 }
        - { days: [thu, fri], unlimited: true }
";

#[test]
fn a_status_has_the_number_of_its_time() {
    let limiter = limiter(OFFICE);
    let numbers = |hours: u64| {
        let mut request = Request::new("d");
        request.push(descriptor("user=b ?"));
        let pinned = limiter.pin();
        let now = Timestamp::from_millis(MIDNIGHT_MILLIS + hours * HOUR_MILLIS);
        let decision = pinned.decide(&request, now);
        let current = decision.statuses[0].limit.expect("a limit");
        let listed = pinned.service_limits(&request, now)[0].quota;
        (current.requests, current.capacity, listed)
    };
    assert_eq!(numbers(7), (2, 2, 2));
    assert_eq!(numbers(8), (5, 5, 5));
    assert_eq!(numbers(24), (u32::MAX, u32::MAX, u32::MAX));
}

#[test]
fn hits_that_fit_another_limit_alone_are_admitted_when_it_applies() {
    let limiter = limiter(OFFICE);
    check(
        &limiter,
        &[
            (7 * HOUR_MILLIS, "user=a +4", &["over 2 3600000"]),
            (18 * HOUR_MILLIS, "user=a +4", &["over 2 21600000"]),
            (18 * HOUR_MILLIS, "user=a +6", &["over 2 21600000"]),
        ],
    );
    let night = OFFICE.replace("unlimited: true", "requests_per_unit: 3");
    let limiter = super::limiter(&night);
    // Next Wednesday at eight.
    let week = (7 * 24 - 10) * HOUR_MILLIS;
    check(&limiter, &[(18 * HOUR_MILLIS, "user=a +4", &[&format!("over 2 {week}")])]);
    check(&limiter, &[(18 * HOUR_MILLIS, "user=a +6", &["over never"])]);
}

#[test]
fn a_reload_that_adds_or_removes_a_schedule_keeps_used_hits() {
    let plain = OFFICE.split("      schedule").next().unwrap().to_owned();
    let limiter = limiter(&plain);
    check(&limiter, &[(9 * HOUR_MILLIS, "user=a +2", &["ok 0"])]);
    replace_rules(&limiter, OFFICE);
    check(&limiter, &[(9 * HOUR_MILLIS, "user=a +2", &["ok 1"])]);
    replace_rules(&limiter, &plain);
    check(&limiter, &[(9 * HOUR_MILLIS, "user=a", &["over 0 3600000"])]);
}

#[test]
fn an_override_applies_at_all_times_and_continues_the_counter() {
    let limiter = limiter(OFFICE);
    check(&limiter, &[(9 * HOUR_MILLIS, "user=a +3", &["ok 2"])]);
    let limits = vec![OverrideLimit::new(10, "hour", None, None).expect("valid")];
    let (entries, action) = (vec![("user".into(), "a".into())], OverrideAction::Limits(limits));
    let rule = OverrideRule { id: "o".into(), domain: "d".into(), entries, action };
    put_overlays(&limiter, OFFICE, vec![Source::of_override(rule)]);
    check(&limiter, &[(9 * HOUR_MILLIS, "user=a", &["ok 6"])]);
    put_overlays(&limiter, OFFICE, Vec::new());
    check(&limiter, &[(9 * HOUR_MILLIS, "user=a", &["ok 0"])]);
}

#[test]
fn a_reset_of_two_limits_is_the_first_moment_at_which_both_admit() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: user
    rate_limits:
      - { name: a, unit: day, requests_per_unit: 2, algorithm: fixed_window, schedule: [{ hours: '08:00-09:00', requests_per_unit: 9 }] }
      - { name: b, unit: hour, requests_per_unit: 3, algorithm: fixed_window }
",
    );
    check(
        &limiter,
        &[
            (8 * HOUR_MILLIS, "user=a +3", &["ok 0"]),
            // The second limit admits at nine, when the first no longer does.
            (8 * HOUR_MILLIS + 1_800_000, "user=a", &["over 0 55800000"]),
            (9 * HOUR_MILLIS, "user=a", &["over 0 54000000"]),
            (24 * HOUR_MILLIS - 1, "user=a", &["over 0 1"]),
            (24 * HOUR_MILLIS, "user=a", &["ok 1"]),
        ],
    );
}

/// Found by the simulator: the reset of a ban was that of its own limit alone, after which another number of the other limit applied.
#[test]
fn a_reset_is_one_of_all_limits_at_the_end_of_a_ban_too() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: user
    rate_limits:
      - { name: a, unit: hour, requests_per_unit: 1, algorithm: fixed_window, ban: { after: 1, within: 1m, for: 2h } }
      - { name: b, unit: hour, requests_per_unit: 9, algorithm: fixed_window, schedule: [{ hours: '09:00-12:00', requests_per_unit: 0 }] }
",
    );
    check(
        &limiter,
        &[
            (8 * HOUR_MILLIS, "user=a", &["ok 0"]),
            // The ban ends at ten, when the other limit admits none until twelve.
            (8 * HOUR_MILLIS, "user=a", &["over 0 14400000"]),
            (10 * HOUR_MILLIS, "user=a", &["over 0 7200000"]),
            (12 * HOUR_MILLIS, "user=a", &["ok 0"]),
        ],
    );
}

/// Found by the simulator: after 64 moments at which not all limits admit, the last of them was reported.
#[test]
fn limits_that_never_admit_together_have_no_reset() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: user
    rate_limits:
      - { name: a, unit: hour, requests_per_unit: 0, algorithm: fixed_window, schedule: [{ hours: '08:00-09:00', requests_per_unit: 9 }] }
      - { name: b, unit: hour, requests_per_unit: 9, algorithm: fixed_window, schedule: [{ hours: '08:00-09:00', requests_per_unit: 0 }] }
",
    );
    check(&limiter, &[(7 * HOUR_MILLIS, "user=a", &["over never"])]);
}

/// Found by the simulator: the hits of a counter's first descriptor were taken for those of its other descriptors too.
#[test]
fn a_peek_beside_a_request_does_not_shorten_its_reset() {
    let limiter = limiter(
        "
domain: d
descriptors:
  - key: user
    rate_limits:
      - { name: a, unit: hour, requests_per_unit: 2, algorithm: fixed_window, schedule: [{ hours: '10:00-11:00', requests_per_unit: 5 }] }
      - { name: b, unit: hour, requests_per_unit: 9, algorithm: fixed_window }
",
    );
    check(&limiter, &[(9 * HOUR_MILLIS, "user=a ?; user=a +4", &["ok 2", "over 2 3600000"])]);
}

/// The number that applies at a minute, counted from the first minute of a Monday, in a place without clock changes.
fn naive_number(entries: &[(u8, u64, u64, u32)], base: u32, minute: u64) -> u32 {
    let (day, of_day) = (minute / 1440 % 7, minute % 1440);
    let on = |days: u8, day: u64| days >> (day % 7) & 1 == 1;
    let applies = |&&(days, from, to, _): &&(u8, u64, u64, u32)| match from < to {
        true => on(days, day) && from <= of_day && of_day < to,
        false => (on(days, day) && from <= of_day) || (on(days, day + 6) && of_day < to),
    };
    entries.iter().find(applies).map_or(base, |entry| entry.3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    /// Of every algorithm with windows, across changes of the schedule.
    #[test]
    fn waiting_the_reset_across_a_schedule_admits_and_a_nanosecond_less_does_not(
        algorithm in prop::sample::select(vec![
            "sliding_window", "sliding_window, precision: 3", "sliding_log", "fixed_window", "fixed_window, aligned: first_hit",
        ]),
        window in prop::sample::select(vec!["10m", "90m", "1d"]),
        drawn in vec((1..0x80_u8, 0..24_u64, 0..=24_u64, 0..6_u32), 1..4),
        base in 0..4_u32,
        mut used in vec((0..10_080_u64, 1..3_u64), 1..12),
        hits in 1..6_u64,
    ) {
        let mut entries: Vec<_> = drawn.into_iter().filter(|(_, from, to, _)| from != to && *to > 0).collect();
        entries.iter_mut().for_each(|(_, from, to, _)| (*from, *to) = (*from * 60, *to * 60));
        let text = |&(days, from, to, requests): &(u8, u64, u64, u32)| {
            let names = crate::algorithm::DAY_NAMES.iter().enumerate().filter(|(day, _)| days >> day & 1 == 1);
            let days = names.map(|(_, name)| *name).collect::<Vec<_>>().join(",");
            format!("{{ days: '{days}', hours: '{:02}:00-{:02}:00', requests_per_unit: {requests} }}", from / 60, to / 60)
        };
        prop_assume!(!entries.is_empty());
        let schedule: Vec<String> = entries.iter().map(text).collect();
        let limiter = limiter(&format!(
            "domain: d\ndescriptors:\n  - key: user\n    rate_limit: {{ per: {window}, requests_per_unit: {base}, algorithm: {algorithm}, schedule: [{}] }}\n",
            schedule.join(", "),
        ));
        // A Monday.
        let monday = MIDNIGHT_MILLIS - 2 * 86_400_000;
        let decide = |hits: u64, now| {
            let mut request = Request::new("d");
            request.push(Descriptor { hits: Hits::new(Some(hits), 0, false), ..descriptor("user=a") });
            let pinned = limiter.pin();
            let decision = pinned.decide(&request, now);
            (decision.code, decision.statuses[0].limit.map(|limit| limit.requests), decision.statuses[0].reset)
        };
        used.sort_unstable();
        let mut last = 0;
        for (minute, hits) in used {
            last = minute;
            let (code, number, _) = decide(hits, Timestamp::from_millis(monday + minute * 60_000));
            let expected = naive_number(&entries, base, minute);
            prop_assert_eq!(number, Some(expected));
            prop_assert!(code == Code::OverLimit || hits <= u64::from(expected));
        }
        let now = Timestamp::from_millis(monday + last * 60_000 + 7);
        match decide(hits, now) {
            (Code::OverLimit, _, Some(Reset::After(wait))) => {
                let wait = wait.as_nanos() as u64;
                prop_assert!(wait > 0);
                // Nor any earlier: the request is denied at the beginning of each minute until then.
                let minutes = (wait / 60_000_000_000).min(3 * 10_080);
                for minute in 0..=minutes {
                    let then = now.saturating_add_nanos(minute * 60_000_000_000);
                    if then < now.saturating_add_nanos(wait) {
                        prop_assert_eq!(decide(hits, then).0, Code::OverLimit);
                    }
                }
                prop_assert_eq!(decide(hits, now.saturating_add_nanos(wait - 1)).0, Code::OverLimit);
                prop_assert_eq!(decide(hits, now.saturating_add_nanos(wait)).0, Code::Ok);
            }
            (Code::OverLimit, _, reset) => {
                prop_assert_eq!(reset, Some(Reset::Never));
                let greatest = (0..10_080).map(|minute| naive_number(&entries, base, minute)).max();
                prop_assert!(hits > greatest.unwrap_or(0).into());
            }
            _ => {}
        }
    }
}
