//! A queue under every schedule that matters: requests over two counters come, wait and go away.

use crate::{under_many_schedules, world::in_threads};
use std::{sync::Arc, task::Waker, time::Duration};
use tidegate::{
    limit::{Code, Descriptor, Entry, Hits, Request, RequestLimits, Timestamp},
    limiter::{Due, Limiter, Ticket, Verdict},
    rules::{LoadOptions, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};

/// 15 November 2023. Time stands still: what is told apart is the order of things alone.
const NOW: Timestamp = Timestamp::from_nanos(1_700_006_400_000_000_000);

/// One a second and one at once, for each value.
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

/// Asks one hit of each counter, in this order; the ticket if it waits.
fn come(limiter: &Limiter, values: [&str; 2]) -> Option<Ticket> {
    let mut request = Request::new("d");
    for value in values {
        let entries = [Entry { key: "k", value }].into_iter().collect();
        request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
    }
    let request = request.checked(&RequestLimits::default()).expect("a good request");
    match limiter.pin().decide_or_queue(&request, Duration::MAX, NOW) {
        Verdict::Decided(decision) => {
            assert_eq!(decision.code, Code::Ok);
            None
        }
        Verdict::Queued(ticket) => Some(ticket),
    }
}

/// Whoever still waits in the end has a turn of its own, and no turn is left out.
#[test]
fn turns_follow_each_other_without_a_gap_whoever_comes_and_goes_away() {
    under_many_schedules(|| {
        let limiter = limiter();
        assert!(come(&limiter, ["a", "b"]).is_none());
        let waiting = in_threads(
            [(["a", "b"], false), (["b", "a"], true), (["a", "b"], true), (["b", "a"], false)].map(
                |(values, goes_away)| {
                    let limiter = Arc::clone(&limiter);
                    move || {
                        let ticket = come(&limiter, values).expect("the first has taken what fits at once");
                        // Asked by whoever waits, beside all that others do.
                        assert!(matches!(limiter.due(&ticket), Due::At(_)));
                        if goes_away {
                            limiter.cancel(ticket, NOW);
                            return None;
                        }
                        Some(ticket)
                    }
                },
            ),
        );
        let tickets = waiting.into_iter().flatten();
        let mut turns: Vec<Duration> = tickets
            .map(|ticket| match limiter.due(&ticket) {
                Due::At(turn) => turn.since(NOW),
                Due::TooLate => panic!("no end is set"),
            })
            .collect();
        turns.sort_unstable();
        assert_eq!(turns, [1, 2].map(Duration::from_secs));
    });
}
