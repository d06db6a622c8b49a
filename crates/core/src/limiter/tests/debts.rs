//! Hits that are counted beyond a limit, and the bound on them. `tests/vectors/charging.yaml` has each algorithm.

use super::*;

const HOUR: u64 = 3_600_000;
const KEYS: [&str; 3] =
    ["algorithm: token_bucket", "algorithm: token_bucket, refill: intervals", "algorithm: leaky_bucket"];

fn of_limit(keys: &str) -> Limiter {
    limiter(&of_keys(keys))
}

fn of_keys(keys: &str) -> String {
    format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{unit: hour, requests_per_unit: 5, {keys}}}}}]")
}

/// Whether a peek is admitted at a time.
fn admits(limiter: &Limiter, millis: u64) -> bool {
    send(limiter, millis, "k=a ?").0 == Code::Ok
}

#[test]
fn one_report_of_any_size_denies_a_bucket_for_two_windows_and_one_hit() {
    for keys in KEYS {
        let limiter = of_limit(&format!("{keys}, charge: always"));
        check(&limiter, &[(0, "k=a +1099511627776", &["over never"])]);
        assert!(!admits(&limiter, 2 * HOUR) && admits(&limiter, 3 * HOUR), "{keys}");
    }
}

#[test]
fn a_debt_is_at_most_debt_max() {
    for keys in KEYS {
        for windows in [0, 1, 4] {
            let limiter = of_limit(&format!("{keys}, charge: always, debt_max: {windows}"));
            for _ in 0..3 {
                send(&limiter, 0, "k=a +7");
                send(&limiter, 0, "k=a +1099511627776");
            }
            let free = windows * HOUR;
            assert!(!admits(&limiter, free) && admits(&limiter, free + HOUR), "{keys}, {windows}");
        }
    }
}

#[test]
fn the_end_of_a_request_leaves_no_debt_beyond_the_bound() {
    for keys in KEYS {
        let limiter = of_limit(&format!("{keys}, reserve: 2, max_hold: 1h"));
        let start = |millis| {
            let mut wanted = Request::new("d");
            wanted.push(descriptor("k=a"));
            let pinned = limiter.pin();
            let decision = pinned.decide(&wanted, Timestamp::from_millis(MIDNIGHT_MILLIS + millis));
            decision.slot.map(|slot| slot.ticket).expect("a ticket")
        };
        let tickets = [start(0), start(0)];
        for (ticket, cost) in tickets.iter().zip(["+3", "+1099511627776"]) {
            send(&limiter, 1, &format!("k=a,slot={ticket} {cost}"));
        }
        assert!(!admits(&limiter, 2 * HOUR) && admits(&limiter, 3 * HOUR), "{keys}");
        // A cost within the bound is a debt in full.
        let ticket = start(9 * HOUR);
        send(&limiter, 9 * HOUR, &format!("k=a,slot={ticket} +9"));
        assert!(!admits(&limiter, 9 * HOUR + HOUR / 2) && admits(&limiter, 11 * HOUR), "{keys}");
    }
}

/// The key was denied for days: a bucket had to drain all hits of the former limit.
#[test]
fn a_counter_that_is_converted_to_a_bucket_has_no_debt_beyond_the_bound() {
    for former in [
        "algorithm: sliding_window",
        "algorithm: sliding_window, precision: 9",
        "algorithm: sliding_log",
        "algorithm: fixed_window",
        "algorithm: token_bucket, size: 9, debt_max: 4000000",
        "algorithm: token_bucket, refill: intervals, size: 9, debt_max: 4000000",
        "algorithm: leaky_bucket, burst: 9, debt_max: 4000000",
    ] {
        for keys in KEYS {
            let limiter = of_limit(&format!("{former}, charge: always"));
            send(&limiter, 0, "k=a +1099511627776");
            replace_rules(&limiter, &of_keys(keys));
            assert!(!admits(&limiter, 1) && !admits(&limiter, 2 * HOUR), "{former}, {keys}");
            assert!(admits(&limiter, 3 * HOUR + 1), "{former}, {keys}");
        }
    }
}

/// Kuadrant's service reports hits that were used to limits that count admitted hits only.
#[test]
fn a_report_of_used_hits_leaves_no_debt_beyond_the_bound() {
    for keys in KEYS {
        let limiter = of_limit(keys);
        let mut report = Request::new("d").reporting();
        report.push(descriptor("k=a +1099511627776"));
        let pinned = limiter.pin();
        pinned.decide(&report, Timestamp::from_millis(MIDNIGHT_MILLIS));
        drop(pinned);
        assert!(!admits(&limiter, 2 * HOUR) && admits(&limiter, 3 * HOUR), "{keys}");
    }
}
