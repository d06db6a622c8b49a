use super::*;
use crate::rules::{LoadOptions, Outcome, RuleSet, Source};
use proptest::prelude::*;

const RULES: &str = "
domain: shop
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: 3 }
    descriptors: [{ key: path, rate_limit: { unit: day, requests_per_unit: 1 } }]
  - { key: user, value: ann, rate_limit: { unit: day, requests_per_unit: 9 } }
";

fn overridden(id: &str, entries: &[(&str, &str)], action: OverrideAction) -> Source {
    let entries = entries.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    Source::of_override(OverrideRule { id: id.into(), domain: "shop".into(), entries, action })
}

fn block(id: &str, key: &str, values: BlockedValues) -> Block {
    Block { id: id.into(), domain: None, key: key.into(), values }
}

fn rules(overlaid: &[Source]) -> RuleSet {
    let sources = [&[Source::file("shop.yaml", RULES)], overlaid].concat();
    RuleSet::parse(&sources, &LoadOptions::default()).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The path of the rule, and the number of hits of its limit; -1 if it is unlimited.
fn found(rules: &RuleSet, entries: &[(&str, &str)]) -> (String, i64) {
    let entries: Vec<_> = entries.iter().map(|&(key, value)| Entry { key, value }).collect();
    let domain = rules.domain("shop").expect("declared");
    let rule = domain.find(&entries).map(|found| found.rule);
    let explained = match domain.explain(&entries).outcome {
        Outcome::Reached(rule) => Some(rule),
        _ => None,
    };
    assert_eq!(rule, explained, "an explanation agrees with the decision");
    rule.map_or((String::new(), 0), |rule| {
        (rule.info.path.to_string(), rule.limits.first().map_or(-1, |limit| i64::from(limit.requests)))
    })
}

#[test]
fn overrides_win_over_rules_for_descriptors_that_match_as_a_whole() {
    let ten = OverrideAction::Limit { requests: 10, unit: Unit::Hour };
    let rules = rules(&[
        overridden("a", &[("user", "a*")], OverrideAction::Unlimited),
        overridden("b", &[("user", "ann")], ten),
        overridden("c", &[("user", "*"), ("path", "/login")], OverrideAction::Denied),
    ]);
    for (entries, path, hits) in [
        (&[("user", "ann")][..], "(override b)", 10),
        (&[("user", "amy")], "(override a)", -1),
        (&[("user", "bob")], "user", 3),
        (&[("user", "ann"), ("path", "/login")], "(override c)", 0),
        (&[("user", "bob"), ("path", "/")], "user → path", 1),
        (&[("path", "/login")], "", 0),
    ] {
        assert_eq!(found(&rules, entries), (path.to_owned(), hits), "{entries:?}");
    }
    let listed: Vec<_> =
        rules.domain("shop").unwrap().rules().iter().map(|rule| rule.origin.to_string()).collect();
    assert_eq!(listed[3..], ["override:a", "override:b", "override:c"]);
}

#[test]
fn blocks_win_over_overrides_at_any_entry() {
    let blocks = vec![
        block("v", "user", BlockedValues::Value("ann".into())),
        block("w", "user", BlockedValues::Value("bot-*".into())),
        block("n", "remote_address", BlockedValues::Cidr("192.0.2.0/24".into())),
    ];
    let rules = rules(&[
        overridden("a", &[("user", "*")], OverrideAction::Unlimited),
        Source::of_blocks("blocks", blocks),
    ]);
    for (entries, path, id) in [
        (&[("user", "ann")][..], BLOCKED, Some(OverlayMatch::Block("v"))),
        (&[("user", "bot-7"), ("path", "/")], BLOCKED, Some(OverlayMatch::Block("w"))),
        (&[("path", "/"), ("remote_address", "192.0.2.9")], BLOCKED, Some(OverlayMatch::Block("n"))),
        (&[("remote_address", "192.0.3.9")], "", None),
        (&[("remote_address", "192.0.2")], "", None),
        (&[("user", "bob")], "(override a)", Some(OverlayMatch::Override("a"))),
    ] {
        let shown: Vec<_> = entries.iter().map(|&(key, value)| Entry { key, value }).collect();
        assert_eq!(found(&rules, entries).0, path, "{entries:?}");
        assert_eq!(rules.domain("shop").unwrap().overlay_match(&shown), id, "{entries:?}");
    }
}

#[test]
fn what_is_for_another_domain_does_not_apply() {
    let other =
        Block { domain: Some("other".into()), ..block("v", "user", BlockedValues::Value("ann".into())) };
    let rules = rules(&[Source::of_blocks("blocks", vec![other])]);
    assert_eq!(found(&rules, &[("user", "ann")]).0, "user=ann");
}

proptest! {
    #[test]
    fn blocked_is_what_one_of_the_blocks_matches(
        blocks in prop::collection::vec(("[ab]", "[ab*]{1,3}"), 1..6),
        entries in prop::collection::vec(("[abc]", "[ab]{1,3}"), 1..4),
    ) {
        let declared: Vec<Block> = blocks
            .iter()
            .map(|(key, value)| block("x", key, BlockedValues::Value(value.clone())))
            .collect();
        let expected = declared.iter().any(|block| {
            entries.iter().any(|(key, value)| block.key == *key && block.values.match_value(value))
        });
        let rules = rules(&[Source::of_blocks("blocks", declared)]);
        let entries: Vec<_> = entries.iter().map(|(key, value)| (&**key, &**value)).collect();
        prop_assert_eq!(found(&rules, &entries).0 == BLOCKED, expected);
    }
}
