//! Properties of decisions: under changed rules, many threads, and random requests.

use super::*;
use proptest::prelude::*;

#[test]
fn a_reload_keeps_used_hits() {
    let limiter = limiter(TWO_RULES);
    check(&limiter, &[(0, "user=a +4", &["ok 1"])]);
    let reload = |from: &str, to: &str| {
        let changed = TWO_RULES.replace(from, to);
        replace_rules(&limiter, &changed);
    };
    reload("requests_per_unit: 5", "requests_per_unit: 7");
    check(&limiter, &[(0, "user=a", &["ok 2"])]);
    reload("requests_per_unit: 5", "requests_per_unit: 3");
    check(&limiter, &[(0, "user=a", &["over 0 60000"])]);
    reload("unit: minute, requests_per_unit: 5", "unit: hour, requests_per_unit: 6");
    check(&limiter, &[(0, "user=a", &["ok 0"]), (0, "user=a", &["over 0 3600000"])]);
}

/// The counter was converted anew at each read, with its hits dated at the time of the read, and a denial stored nothing: the
/// key stayed denied until the window of the former rule ended.
#[test]
fn a_key_denied_after_its_rule_changed_is_admitted_after_the_reset() {
    let rules =
        |limit: &str| format!("domain: d\ndescriptors:\n  - {{ key: user, rate_limit: {{ {limit} }} }}\n");
    let limiter = limiter(&rules("unit: day, requests_per_unit: 10, algorithm: fixed_window"));
    check(&limiter, &[(0, "user=a +10", &["ok 0"])]);
    replace_rules(&limiter, &rules("per: 2s, requests_per_unit: 10, algorithm: sliding_log"));
    check(
        &limiter,
        &[
            (1_000, "user=a", &["over 0 2000"]),
            (2_000, "user=a ?", &["over 0 1000"]),
            (2_999, "user=a", &["over 0 1"]),
            (3_000, "user=a", &["ok 9"]),
        ],
    );
}

/// limitador admits 51 of 50 with two threads, by checking before updating.
#[test]
fn many_threads_against_one_limit_admit_exactly_the_limit() {
    let yaml = "
domain: d
descriptors:
  - key: all
    rate_limit: { unit: day, requests_per_unit: 1000 }
  - key: each
    rate_limit: { unit: day, requests_per_unit: 400 }
";
    let limiter = limiter(yaml);
    let admitted: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let limiter = &limiter;
                // Every other thread names the counters in the other order.
                let request = if thread % 2 == 0 { "all=x; each=y" } else { "each=z; all=x" };
                scope.spawn(move || (0..500).filter(|_| send(limiter, 0, request).0 == Code::Ok).count())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(admitted, 800);
    assert_eq!(send(&limiter, 0, "all=x ?").1, ["ok 200"]);
}

proptest! {
    #[test]
    fn waiting_the_reset_of_a_denial_admits_the_same_request_and_a_nanosecond_less_does_not(
        used in prop::collection::vec((0..120_000u64, 1..4u64), 1..20), hits in 1..6u64,
    ) {
        let limiter = limiter("
domain: d
descriptors:
  - key: user
    rate_limits:
      - { per: 7s, requests_per_unit: 3 }
      - { unit: minute, requests_per_unit: 5 }
");
        let mut used = used;
        used.sort_unstable();
        let mut now = Timestamp::EPOCH;
        let decide = |hits: u64, now| {
            let mut request = Request::new("d");
            request.push(Descriptor { hits: Hits::new(Some(hits), 0, false), ..descriptor("user=a") });
            let pinned = limiter.pin();
            let decision = pinned.decide(&request, now);
            (decision.code, decision.statuses[0].reset)
        };
        for (millis, hits) in used {
            now = Timestamp::from_millis(MIDNIGHT_MILLIS + millis);
            decide(hits, now);
        }
        if let (Code::OverLimit, Some(reset)) = decide(hits, now) {
            match reset {
                Reset::Never => prop_assert!(hits > 3),
                Reset::After(wait) => {
                    prop_assert!(wait > Duration::ZERO);
                    let wait = wait.as_nanos() as u64;
                    prop_assert_eq!(decide(hits, now.saturating_add_nanos(wait - 1)).0, Code::OverLimit);
                    prop_assert_eq!(decide(hits, now.saturating_add_nanos(wait)).0, Code::Ok);
                }
            }
        }
    }

    /// For every algorithm, of requests that take and give back hits of one counter.
    #[test]
    fn waiting_the_reset_of_a_request_that_gives_and_takes_admits_it_and_a_nanosecond_less_does_not(
        algorithm in prop::sample::select(vec![
            "sliding_window", "sliding_window, precision: 3", "sliding_log", "fixed_window",
            "fixed_window, aligned: first_hit", "token_bucket", "leaky_bucket",
        ]),
        mut used in prop::collection::vec((0..12_000u64, 1..4u64), 1..12),
        given in 1..4u64, taken in 1..6u64,
    ) {
        let limiter = limiter(&format!(
            "domain: d\ndescriptors:\n  - {{ key: user, rate_limit: {{ per: 7s, requests_per_unit: 5, algorithm: {algorithm} }} }}\n"
        ));
        used.sort_unstable();
        let mut now = Timestamp::EPOCH;
        for (millis, hits) in used {
            now = Timestamp::from_millis(MIDNIGHT_MILLIS + millis);
            let mut request = Request::new("d");
            request.push(Descriptor { hits: Hits::new(Some(hits), 0, false), ..descriptor("user=a") });
            limiter.pin().decide(&request, now);
        }
        let decide = |now| {
            let mut request = Request::new("d");
            request.push(Descriptor { hits: Hits::new(Some(given), 0, true), ..descriptor("user=a") });
            request.push(Descriptor { hits: Hits::new(Some(taken), 0, false), ..descriptor("user=a") });
            let pinned = limiter.pin();
            let decision = pinned.decide(&request, now);
            (decision.code, decision.statuses[1].reset)
        };
        if let (Code::OverLimit, Some(Reset::After(wait))) = decide(now) {
            let wait = wait.as_nanos() as u64;
            prop_assert!(wait > 0);
            prop_assert_eq!(decide(now.saturating_add_nanos(wait - 1)).0, Code::OverLimit);
            prop_assert_eq!(decide(now.saturating_add_nanos(wait)).0, Code::Ok);
        }
    }
}
