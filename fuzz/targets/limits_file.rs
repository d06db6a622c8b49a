//! Files of limits with conditions: every text loads or gives errors. In a file that loads, each limit applies whose conditions hold and
//! whose variables have values, and a request is admitted as often as the least of these limits admits it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tidegate_cel::{Descriptors, LimitNames};
use tidegate_core::{
    limit::{Code, Descriptor, Entry, Hits, Request, Timestamp},
    limiter::Limiter,
    rules::{ConditionalLimit, LoadOptions, Outcome, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};

/// Requests that are decided at once.
const REQUESTS: u64 = 4;

/// Descriptors with these entries: values of keys that files of the corpus name.
const ENTRIES: [&[(&str, &str)]; 2] =
    [&[("method", "GET"), ("path", "/api/v1"), ("user", "ann"), ("method", "PUT")], &[("user", "7")]];

struct Both;

impl<'t> Descriptors<'t> for Both {
    fn len(&self) -> usize {
        ENTRIES.len()
    }

    fn entries(&self, descriptor: usize) -> usize {
        ENTRIES[descriptor].len()
    }

    fn entry(&self, descriptor: usize, entry: usize) -> (&'t str, &'t str) {
        ENTRIES[descriptor][entry]
    }
}

fn applies(limit: &ConditionalLimit) -> bool {
    let names = &limit.limit().name;
    let names = LimitNames { name: (!names.is_empty()).then_some(names), id: limit.id.as_deref() };
    limit.conditions.iter().all(|condition| condition.holds(&Both, names))
        && limit.variables.iter().all(|variable| variable.text(&Both, names).is_some())
}

fuzz_target!(|text: &str| {
    let source = [Source::file("fuzz.yaml", text)];
    let rules = match RuleSet::parse(&source, &LoadOptions::default()) {
        Ok(rules) => rules,
        Err(errors) => return assert!(!errors.to_string().is_empty()),
    };
    let store =
        StoreSettings { seed: Seed::from_bytes([1; 16]), counters_max: 1 << 20, on_full: OnFull::Deny };
    let limiter = Limiter::new(rules.clone(), store, false);
    let entries = ENTRIES.map(|of| of.iter().map(|&(key, value)| Entry { key, value }).collect::<Vec<_>>());
    for domain in rules.domains() {
        let Some(limits) = domain.conditional() else { continue };
        let expected: Vec<&ConditionalLimit> = limits.iter().filter(|limit| applies(limit)).collect();
        let mut request = Request::new(domain.name());
        for entries in &entries {
            request.push(Descriptor {
                entries: entries.iter().copied().collect(),
                limit: None,
                hits: Hits::ONE,
            });
        }
        let explained = domain.explain_request(request.descriptors());
        let outcome = explained[0].matching.as_ref().map(|matching| &matching.outcome);
        assert_eq!(outcome, Some(&Outcome::Conditional(expected.clone())));
        let admitted = (0..REQUESTS).filter(|_| {
            limiter.pin().decide(&request, Timestamp::from_millis(1_700_000_000_000)).code == Code::Ok
        });
        let least = expected.iter().map(|limit| u64::from(limit.limit().requests)).min();
        assert_eq!(admitted.count() as u64, least.unwrap_or(REQUESTS).min(REQUESTS));
    }
});
