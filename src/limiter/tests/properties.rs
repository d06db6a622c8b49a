//! What holds whoever asks, whenever, under whatever rules.

use super::*;
use proptest::prelude::*;

#[test]
fn a_reload_keeps_what_was_used() {
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
}
