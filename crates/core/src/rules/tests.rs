//! Matching compared with an oracle that reads the declared rules from top to bottom, and each property by itself.

use super::{DomainRules, LoadOptions, Matched, Outcome, RuleSet, Semantics, Source};
use crate::limit::{Entry, Override, Unit};
use proptest::prelude::*;

fn rules(yaml: &str) -> RuleSet {
    let source = Source::file("rules.yaml", yaml);
    RuleSet::parse(&[source], &LoadOptions::default()).unwrap_or_else(|errors| panic!("{errors}\n{yaml}"))
}

/// `a=1,b=2` as entries; a value may be left out.
fn entries(text: &str) -> Vec<Entry<'_>> {
    let entry = |pair| str::split_once(pair, '=').unwrap_or((pair, ""));
    text.split(',').map(entry).map(|(key, value)| Entry { key, value }).collect()
}

/// The path of the rule that the entries match, with the patterns that replace values in the counter's key.
fn reached(domain: &DomainRules, text: &str) -> Option<String> {
    let found = domain.find(&entries(text))?;
    let shared = found.shared.iter().map(|(index, pattern)| format!(" {index}:{pattern}"));
    Some(found.rule.info.path.to_string() + &shared.collect::<String>())
}

fn check(yaml: &str, cases: &[(&str, Option<&str>)]) {
    let rules = rules(yaml);
    let domain = rules.domain("d").unwrap();
    for (text, expected) in cases {
        assert_eq!(reached(domain, text).as_deref(), *expected, "{text}");
    }
}

#[test]
fn an_exact_value_precedes_wildcards_and_those_the_key_alone() {
    let yaml = "
domain: d
descriptors:
  - key: k
  - {key: k, value: 'a*'}
  - {key: k, value: '*z'}
  - {key: k, value: abz}
";
    check(
        yaml,
        &[
            ("k=abz", Some("k=abz")),
            ("k=acz", Some("k=a*")),
            ("k=yz", Some("k=*z")),
            ("k=none", Some("k")),
            ("k=", Some("k")),
            ("other=abz", None),
        ],
    );
}

/// As with the reference server: a wildcard key is tried among the wildcard values of the file, before the key alone.
#[test]
fn a_wildcard_key_matches_keys_in_the_order_of_the_file() {
    let yaml = "
domain: d
descriptors:
  - {key: web, value: 'b*'}
  - key: 'w*'
    descriptors: [{key: below}]
  - {key: web, value: 'a*'}
  - {key: web, value: exact}
  - {key: web}
  - {key: '*x', value: only}
  - {key: '*y', value: 's*', share_threshold: true}
";
    check(
        yaml,
        &[
            ("web=exact", Some("web=exact")),
            ("web=b1", Some("web=b*")),
            ("web=a1", Some("w*")),
            ("web=", Some("w*")),
            ("worker=1", Some("w*")),
            ("worker=1,below=2", Some("w* → below")),
            ("ax=only", Some("*x=only")),
            ("ax=other", None),
            ("ay=some", Some("*y=s* 0:s*")),
            ("other=1", None),
        ],
    );
}

#[test]
fn only_the_rule_of_the_last_entry_applies() {
    let yaml = "
domain: d
descriptors:
  - key: a
    rate_limit: {unit: second, requests_per_unit: 1}
    descriptors:
      - {key: b, value: x}
";
    check(
        yaml,
        &[
            ("a=1", Some("a")),
            ("a=1,b=x", Some("a → b=x")),
            ("a=1,b=y", None),
            ("a=1,b=x,c=1", None),
            ("b=x", None),
        ],
    );
}

/// As in the reference server: the exact value is selected, and there is no backtracking if nothing below it matches.
#[test]
fn a_selection_is_final() {
    let yaml = "
domain: d
descriptors:
  - {key: a, value: x, descriptors: [{key: b}]}
  - {key: a, descriptors: [{key: c}]}
";
    check(yaml, &[("a=x,b=", Some("a=x → b")), ("a=x,c=", None), ("a=y,c=", Some("a → c"))]);
}

#[test]
fn shared_wildcards_record_the_entries_they_replace() {
    let yaml = "
domain: d
descriptors:
  - key: path
    value: /a/*
    share_threshold: true
    descriptors:
      - {key: user}
      - {key: user, value: '*@x', share_threshold: true}
  - {key: path, value: /b/*}
";
    check(
        yaml,
        &[
            ("path=/a/1,user=u", Some("path=/a/* → user 0:/a/*")),
            ("path=/a/1,user=u@x", Some("path=/a/* → user=*@x 0:/a/* 1:*@x")),
            ("path=/b/1", Some("path=/b/*")),
        ],
    );
}

#[test]
fn boundaries_of_keys_and_values_are_significant() {
    let yaml = "
domain: d
descriptors:
  - {key: a, value: b_c}
  - {key: a_b, value: c}
  - {key: a=b}
";
    check(yaml, &[("a=b_c", Some("a=b_c")), ("a_b=c", Some("a_b=c")), ("a=b", None)]);
}

#[test]
fn an_explanation_has_each_step_and_the_reason_of_its_end() {
    let rules = rules(
        "
domain: d
descriptors:
  - key: plan
    value: gold
    descriptors:
      - key: path
        value: /api/*
        rate_limit: {unit: second, requests_per_unit: 1}
",
    );
    let explain = |text| rules.domain("d").unwrap().explain(&entries(text)).to_string();
    assert_eq!(
        explain("plan=gold,path=/api/x"),
        "plan=gold matches key and value (rules.yaml:4:5)\n\
         path=/api/x matches the wildcard /api/* (rules.yaml:7:9)\n\
         plan=gold → path=/api/*: limited"
    );
    assert_eq!(explain("plan=tin"), "no rule: no descriptor here matches plan=tin; known values: gold");
    assert_eq!(explain("user=ann"), "no rule: no descriptor here has the key user; known keys: plan");
    assert_eq!(
        explain("plan=gold"),
        "plan=gold matches key and value (rules.yaml:4:5)\nplan=gold: a rule without a limit"
    );
    assert!(
        explain("plan=gold,path=/api/x,more=1")
            .ends_with("no rule: the rules end here, so none has the key more")
    );
}

#[test]
fn a_requests_own_limit_counts_by_its_unit_under_a_number_that_is_always_the_same() {
    let rules = rules("domain: d");
    let domain = rules.domain("d").unwrap();
    let mut ids = Vec::new();
    for unit in Unit::ALL {
        let limit = domain.override_limit(Override { requests: 7, unit });
        let more = domain.override_limit(Override { requests: 8, unit });
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
    let limit = rules.domain("d").unwrap().override_limit(Override { requests: 7, unit: Unit::Day });
    assert_eq!(limit.algorithm.name(), "fixed_window");
}

/// A descriptor of a random tree: key, value (empty for none), those below.
#[derive(Clone, Debug)]
struct Declared {
    key: String,
    value: String,
    below: Vec<Declared>,
}

/// Descriptors of one level, all different. Few letters, so that requests match them.
fn level() -> impl Strategy<Value = Vec<Declared>> {
    let leaf = ("k|l|k[*]|[*]|kl", "|[ab]{1,2}|[ab*]{0,2}[*]").prop_map(|(key, value)| Declared {
        key,
        value,
        below: Vec::new(),
    });
    let tree = leaf.prop_recursive(3, 40, 12, |inner| {
        ("k|l|k[*]|[*]|kl", "|[ab]{1,2}|[ab*]{0,2}[*]", prop::collection::vec(inner, 0..12))
            .prop_map(|(key, value, below)| Declared { key, value, below: distinct(below) })
    });
    prop::collection::vec(tree, 0..12).prop_map(distinct)
}

fn distinct(mut declared: Vec<Declared>) -> Vec<Declared> {
    let mut seen = std::collections::HashSet::new();
    let one_star = |value: &str| value.replace("***", "*").replace("**", "*");
    declared.retain(|one| seen.insert((one_star(&one.key), one_star(&one.value))));
    declared
}

fn to_yaml(declared: &[Declared]) -> String {
    let one = |one: &Declared| {
        format!("{{key: '{}', value: '{}', descriptors: {}}}", one.key, one.value, to_yaml(&one.below))
    };
    format!("[{}]", declared.iter().map(one).collect::<Vec<_>>().join(", "))
}

/// Tries every split.
fn matches(pattern: &str, value: &str) -> bool {
    match pattern.split_at_checked(1) {
        None => value.is_empty(),
        Some(("*", rest)) => (0..=value.len()).any(|from| matches(rest, &value[from..])),
        Some((first, rest)) => value.strip_prefix(first).is_some_and(|value| matches(rest, value)),
    }
}

/// Which descriptors the entries reach, as indices from level to level.
fn oracle(mut level: &[Declared], entries: &[Entry<'_>]) -> Option<Vec<(String, String)>> {
    let mut way = Vec::new();
    for entry in entries {
        let same_key = || level.iter().filter(|one| one.key == entry.key);
        let exact = same_key().find(|one| !one.value.is_empty() && one.value == entry.value);
        let wildcard = || {
            level.iter().find(|one| {
                let by_key = one.key.contains('*') && matches(&one.key, entry.key);
                let by_value = one.value.contains('*') && matches(&one.value, entry.value);
                match by_key {
                    true => by_value || one.value.is_empty() || one.value == entry.value,
                    false => by_value && one.key == entry.key,
                }
            })
        };
        let alone = || same_key().find(|one| one.value.is_empty());
        let one = exact.or_else(wildcard).or_else(alone)?;
        way.push((one.key.replace("**", "*"), one.value.replace("***", "*").replace("**", "*")));
        level = &one.below;
    }
    Some(way)
}

proptest! {
    #[test]
    fn matching_agrees_with_scanning_the_rules_from_top_to_bottom(
        declared in level(),
        requests in prop::collection::vec(prop::collection::vec(("[kl]{1,2}", "[ab]{0,3}"), 1..4), 20),
    ) {
        let rules = rules(&format!("domain: d\ndescriptors: {}", to_yaml(&declared)));
        let domain = rules.domain("d").unwrap();
        for request in requests {
            let entries: Vec<_> = request.iter().map(|(key, value)| Entry { key, value }).collect();
            let expected = oracle(&declared, &entries).map(|way| {
                let steps = way.iter().map(|(key, value)| match value.as_str() {
                    "" => key.clone(),
                    value => format!("{key}={value}"),
                });
                steps.collect::<Vec<_>>().join(" → ")
            });
            let found = domain.find(&entries).map(|found| found.rule.info.path.to_string());
            prop_assert_eq!(&found, &expected);
            let explanation = domain.explain(&entries);
            let explained = match &explanation.outcome {
                Outcome::Reached(rule) => Some(rule.info.path.to_string()),
                _ => None,
            };
            prop_assert_eq!(explained, expected);
            for step in &explanation.steps {
                if let Matched::Wildcard { pattern, .. } = step.matched {
                    prop_assert!(pattern.matches(&step.value));
                }
            }
        }
    }
}
