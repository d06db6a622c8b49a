//! Limits of requests, and changes of limits.

use super::*;
use crate::limit::{RequestLimit, Unit};

#[test]
fn a_changed_schedule_is_a_change_of_its_limit() {
    let with = |schedule: &str| {
        format!(
            "domain: d\ndescriptors:\n  - {{key: k, rate_limit: {{unit: day, requests_per_unit: 1{schedule}}}}}"
        )
    };
    let changed = |former: &str, later: &str| {
        let former = rules(&with(former));
        let sources = [Source::file("rules.yaml", with(later))];
        let later = former.successor(&sources, &LoadOptions::default()).expect("valid");
        !crate::rules::RuleChanges::between(&former, &later).is_empty()
    };
    let nights = ", schedule: [{hours: 22:00-06:00, requests_per_unit: 2}]";
    assert!(!changed(nights, nights));
    assert!(changed(nights, ""));
    assert!(changed(nights, &nights.replace("22", "21")));
    assert!(changed(nights, &nights.replace("unit: 2", "unit: 3")));
    assert!(changed(nights, &format!("{nights}, time_zone: Europe/Berlin")));
}

#[test]
fn a_requests_own_limit_counts_by_its_unit_under_a_number_that_is_always_the_same() {
    let rules = rules("domain: d");
    let domain = rules.domain("d").unwrap();
    let mut ids = Vec::new();
    for unit in Unit::ALL {
        let limit = domain.own_limit(RequestLimit { requests: 7, unit }, &[]);
        let more = domain.own_limit(RequestLimit { requests: 8, unit }, &[]);
        assert_eq!((limit.requests, limit.unit, limit.algorithm.name()), (7, Some(unit), "sliding_window"));
        assert_eq!(limit.algorithm.remaining(&Default::default(), Default::default()), 7);
        assert_eq!((limit.id, limit.tag), (more.id, more.tag));
        assert!(rules.limits().get(limit.id).is_some());
        ids.push((limit.id, limit.tag));
    }
    ids.dedup();
    assert_eq!(ids.len(), Unit::ALL.len());
}

#[test]
fn the_reference_servers_requests_own_limit_is_a_fixed_window() {
    let source = Source::file("r", "domain: d");
    let options = LoadOptions { semantics: Semantics::Reference, ..LoadOptions::default() };
    let rules = RuleSet::parse(&[source], &options).unwrap();
    let limit = rules.domain("d").unwrap().own_limit(RequestLimit { requests: 7, unit: Unit::Day }, &[]);
    assert_eq!(limit.algorithm.name(), "fixed_window");
}
