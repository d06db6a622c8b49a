//! A trace played to the limiter and to the naive decision, every answer compared.

use crate::{
    naive::{Asked, Hits, Naive, Status, Tightest},
    rules::Rules,
    traffic::{Step, What},
    world::World,
};
use std::{fmt, num::NonZeroU64};
use tidegate::{
    algorithm::State,
    limit::{Code, Decision, Descriptor, Entry, Override, Request, RequestLimits, Reset, Timestamp, Unit},
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{Counter, OnFull, Seed, StoreSettings},
};

/// Where the two first differed.
pub struct Difference {
    /// Index of the step.
    pub step: usize,
    expected: (bool, Vec<Status>),
    answered: (bool, Vec<Status>),
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "expected {:?}", self.expected)?;
        write!(f, "answered {:?}", self.answered)
    }
}

/// Plays the trace; the first difference, if there is one.
pub fn play(World { rules, trace }: &World) -> Result<(), Difference> {
    let mut naive = Naive::new(rules.clone());
    let mut limiter = limiter(rule_set(rules, None));
    let mut rules = rules;
    for (index, Step { now, what }) in trace.iter().enumerate() {
        let time = Timestamp::from_nanos(*now);
        match what {
            What::Ask(asked) => {
                let expected = naive.decide(asked, *now);
                let answered = decide(&limiter, asked, time);
                if answered != expected {
                    return Err(Difference { step: index, expected, answered });
                }
            }
            What::ChangeRules(changed) => {
                rules = changed;
                naive.change_rules(rules.clone());
                limiter.replace_rules(rule_set(rules, Some(&limiter.rules())));
            }
            What::Restart => limiter = restarted(&limiter, rules, time),
            What::Sweep => {
                for shard in 0..limiter.store().shard_count() {
                    while !limiter.store().sweep(shard, 1, time).finished {}
                }
            }
        }
    }
    Ok(())
}

fn rule_set(rules: &Rules, former: Option<&RuleSet>) -> RuleSet {
    let source = Source { name: "sim.yaml".to_owned(), text: rules.yaml() };
    RuleSet::parse(&[source], &LoadOptions::default(), former).unwrap_or_else(|errors| panic!("{errors}"))
}

fn limiter(rules: RuleSet) -> Limiter {
    let store =
        StoreSettings { seed: Seed::from_bytes([3; 16]), counters_max: 10_000, on_full: OnFull::Deny };
    Limiter::new(rules, store, false)
}

/// Another limiter with the same rules, whose counters went through their stored form.
fn restarted(former: &Limiter, rules: &Rules, now: Timestamp) -> Limiter {
    let limiter = limiter(rule_set(rules, Some(&former.rules())));
    let limits = former.rules().limits().clone();
    for shard in 0..former.store().shard_count() {
        for (key, counter) in former.store().lock(shard).iter() {
            let mut stored = Vec::new();
            counter.state().encode(&mut stored);
            let state = State::decode(&stored).expect("what was just encoded");
            let expires =
                limits.get(counter.limit()).expect("a limit of these rules").algorithm.expires(&state);
            assert!(limiter.store().reserve(1));
            let counter = Counter::new(state, counter.limit(), expires);
            limiter.store().lock(shard).insert(key, counter, now);
        }
    }
    limiter
}

fn decide(limiter: &Limiter, asked: &[Asked], now: Timestamp) -> (bool, Vec<Status>) {
    let names: Vec<(String, String)> =
        asked.iter().map(|asked| (format!("k{}", asked.rule), format!("v{}", asked.value))).collect();
    let mut request = Request::new("sim");
    for (asked, (key, value)) in asked.iter().zip(&names) {
        let hits = |hits| NonZeroU64::new(hits).expect("at least one hit");
        request.push(Descriptor {
            entries: [Entry { key, value }].into_iter().collect(),
            limit: asked.own.map(|requests| Override { requests, unit: Unit::Second }),
            hits: match asked.hits {
                Hits::Take(number) => tidegate::limit::Hits::Take(hits(number)),
                Hits::Peek => tidegate::limit::Hits::Peek,
                Hits::GiveBack(number) => tidegate::limit::Hits::GiveBack(hits(number)),
            },
        });
    }
    let request = request.checked(&RequestLimits::default()).expect("a good request");
    let pinned = limiter.pin();
    let Decision { code, statuses } = pinned.decide(&request, now);
    let statuses = statuses.iter().map(|status| Status {
        is_over: status.code == Code::OverLimit,
        limit: status.limit.map(|_| Tightest {
            remaining: u64::from(status.remaining),
            reset: match status.reset {
                Some(Reset::After(wait)) => u64::try_from(wait.as_nanos()).ok(),
                Some(Reset::Never) | None => None,
            },
        }),
    });
    (code == Code::OverLimit, statuses.collect())
}
