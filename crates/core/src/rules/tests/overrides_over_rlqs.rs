//! Overrides in domains that are served over RLQS.

use super::*;
use crate::rules::{OverrideAction, OverrideLimit, OverrideRule};

fn declared(action: OverrideAction) -> OverrideRule {
    let entries = vec![("user".to_owned(), "bob".to_owned())];
    OverrideRule { id: "o".into(), domain: "d".into(), entries, action }
}

fn limits(limits: &[(u32, &str)]) -> OverrideAction {
    let limit = |&(requests, window): &(u32, &str)| OverrideLimit::new(requests, window, None, None).unwrap();
    OverrideAction::Limits(limits.iter().map(limit).collect())
}

/// Envoys denied all requests to such an override, and an operator saw no reason for it.
#[test]
fn an_override_that_clients_of_rlqs_cannot_enforce_is_named_with_the_reason() {
    let descriptors = "descriptors: [{key: user, rate_limit: {unit: second, requests_per_unit: 200, algorithm: token_bucket}}]";
    let options = LoadOptions::default();
    let parse = |head: &str, overridden: &[Source]| {
        let file = Source::file("r.yaml", format!("domain: d\n{head}{descriptors}\n"));
        RuleSet::parse(&[&[file], overridden].concat(), &options).expect("valid rules")
    };
    for (action, reason) in [
        (limits(&[(150, "second")]), None),
        (limits(&[(0, "second")]), None),
        (OverrideAction::Denied, None),
        (OverrideAction::Unlimited, None),
        (limits(&[(200, "second"), (1_000, "hour")]), Some("has several limits, but clients of RLQS")),
        (limits(&[(1, "second")]), Some("together get")),
        (limits(&[(1, "minute")]), Some("has too few requests to be divided")),
        (limits(&[(1, "hour")]), Some("has too few requests to be divided")),
    ] {
        let declared = declared(action);
        let source = [Source::of_override(declared.clone())];
        for head in ["rlqs: {clients: 1}\n", ""] {
            let reason = reason.filter(|_| !head.is_empty());
            let before = parse(head, &[]);
            let domain = before.domain("d").expect("declared");
            let refusal = domain.not_divisible(&declared, options.semantics);
            assert_eq!(refusal.is_some(), reason.is_some(), "{declared:?}, {refusal:?}");
            assert!(refusal.is_none_or(|refusal| refusal.contains(reason.unwrap_or_default())));
            // Set before the domain was served over RLQS.
            let named = parse(head, &source).overrides_not_divisible();
            assert_eq!(named.len(), usize::from(reason.is_some()), "{named:?}");
            let begins = format!("the rule (override o) of the domain d {}", reason.unwrap_or_default());
            assert!(
                named.iter().all(|named| reason == Some("together get") || named.starts_with(&begins)),
                "{named:?}"
            );
        }
    }
}
