//! A queue under many schedules: requests for two counters arrive, are queued and cancelled.

use crate::{under_many_schedules, world::in_threads};
use std::{sync::Arc, time::Duration};
use tidegate_core::{
    limit::{Code, Descriptor, Entry, Hits, Request, RequestLimits, Timestamp},
    limiter::{Due, Limiter, QueueDecision, QueuePosition},
    rules::{LoadOptions, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};

/// 15 November 2023. Time stands still: only the order of events differs.
const NOW: Timestamp = Timestamp::from_nanos(1_700_006_400_000_000_000);

/// One hit a second and one at once, for each value.
const RULES: &str = "
domain: d
descriptors:
  - key: k
    rate_limit: {unit: second, requests_per_unit: 1, algorithm: leaky_bucket, burst: 1, max_wait: 1h}
";

fn limiter() -> Arc<Limiter> {
    let source = Source::file("model.yaml", RULES);
    let rules = RuleSet::parse(&[source], &LoadOptions::default()).expect("good rules");
    let store = StoreSettings { seed: Seed::from_bytes([5; 16]), counters_max: 10, on_full: OnFull::Deny };
    Arc::new(Limiter::new(rules, store, false))
}

/// Takes one hit of each counter, in this order; returns the position if it is queued.
fn arrive(limiter: &Limiter, values: [&str; 2]) -> Option<QueuePosition> {
    let mut request = Request::new("d");
    for value in values {
        let entries = [Entry { key: "k", value }].into_iter().collect();
        request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
    }
    let request = request.checked(&RequestLimits::default()).expect("a good request");
    match limiter.pin().decide_or_queue(&request, Duration::MAX, NOW) {
        QueueDecision::Decided(decision) => {
            assert_eq!(decision.code, Code::Ok);
            None
        }
        QueueDecision::Queued(position) => Some(position),
        QueueDecision::Waits(_) => unreachable!("no rule has slots"),
    }
}

/// The requests left in the end have release times of their own, without a gap.
#[test]
fn release_times_have_no_gap_whichever_requests_are_cancelled() {
    under_many_schedules(|| {
        let limiter = limiter();
        assert!(arrive(&limiter, ["a", "b"]).is_none());
        let waiting = in_threads(
            [(["a", "b"], false), (["b", "a"], true), (["a", "b"], true), (["b", "a"], false)].map(
                |(values, is_cancelled)| {
                    let limiter = Arc::clone(&limiter);
                    move || {
                        let position = arrive(&limiter, values).expect("the first has taken the burst");
                        // Concurrently with the other threads.
                        assert!(matches!(limiter.due(&position), Due::At(_)));
                        if is_cancelled {
                            limiter.cancel(position, NOW);
                            return None;
                        }
                        Some(position)
                    }
                },
            ),
        );
        let positions = waiting.into_iter().flatten();
        let mut releases: Vec<Duration> = positions
            .map(|position| match limiter.due(&position) {
                Due::At(release) => release.since(NOW),
                Due::TooLate => panic!("no end is set"),
            })
            .collect();
        releases.sort_unstable();
        assert_eq!(releases, [1, 2].map(Duration::from_secs));
    });
}
