use super::*;
use crate::limit::{Unit, Window};
use crate::rules::{ChargePolicy, DefaultAlgorithm};
use proptest::prelude::*;

fn source(name: &str, text: &str) -> Source {
    Source::file(name, text)
}

fn parse(text: &str, semantics: Semantics, former: Option<&RuleSet>) -> Result<RuleSet, RuleErrors> {
    let options = LoadOptions { semantics, ..LoadOptions::default() };
    let sources = [source("rules.yaml", text)];
    match former {
        None => RuleSet::parse(&sources, &options),
        Some(former) => former.successor(&sources, &options),
    }
}

/// The limits of a descriptor `k` with these further lines.
fn limits(lines: &str, former: Option<&RuleSet>) -> (RuleSet, Vec<RuleLimit>) {
    let text = format!("domain: d\ndescriptors:\n- key: k\n  {lines}");
    let rules = parse(&text, Semantics::Exact, former).unwrap_or_else(|errors| panic!("{errors}"));
    let limits = rules.domain("d").unwrap().rules()[0].limits.to_vec();
    (rules, limits)
}

#[test]
fn windows_are_units_or_several_units_or_any_length() {
    let window = |keys: &str| {
        let (_, limits) = limits(&format!("rate_limit: {{requests_per_unit: 5, {keys}}}"), None);
        let limit = &limits[0];
        assert_eq!(limit.algorithm, Semantics::Exact.algorithm(5, limit.window));
        (limit.window.duration().as_millis(), limit.unit)
    };
    assert_eq!(window("unit: MONTH"), (30 * 86_400_000, Some(Unit::Month)));
    assert_eq!(window("unit: minute, unit_multiplier: 5"), (300_000, None));
    assert_eq!(window("unit: day, unit_multiplier: 7"), (7 * 86_400_000, Some(Unit::Week)));
    assert_eq!(window("per: 250ms"), (250, None));
    assert_eq!(window("per: 60s"), (60_000, Some(Unit::Minute)));
}

#[test]
fn compat_changes_only_defaults_of_rules() {
    let text = "domain: d\ndescriptors:\n\
        - {key: a, rate_limit: {unit: second, requests_per_unit: 1}}\n\
        - {key: b, rate_limit: {unit: second, requests_per_unit: 1, algorithm: sliding_window, charge: admitted}}\n\
        - {key: c, rate_limit: {unit: second}}\n";
    assert!(parse(text, Semantics::Exact, None).is_err(), "a missing number is an error");
    let rules = parse(text, Semantics::Reference, None).unwrap();
    let limits: Vec<_> =
        rules.domain("d").unwrap().rules().iter().map(|rule| rule.limits[0].clone()).collect();
    let shown = |limit: &RuleLimit| (limit.algorithm.name(), limit.charge, limit.semantics, limit.requests);
    assert_eq!(shown(&limits[0]), ("fixed_window", ChargePolicy::Always, Semantics::Reference, 1));
    assert_eq!(shown(&limits[1]), ("sliding_window", ChargePolicy::Admitted, Semantics::Reference, 1));
    assert_eq!(shown(&limits[2]), ("fixed_window", ChargePolicy::Always, Semantics::Reference, 0));
}

#[test]
fn the_default_algorithm_is_that_of_limits_that_name_none() {
    let text = "domain: d\ndescriptors:\n\
        - {key: a, rate_limit: {unit: second, requests_per_unit: 1}}\n\
        - {key: b, rate_limit: {unit: second, requests_per_unit: 1, algorithm: sliding_log}}\n";
    for name in DefaultAlgorithm::NAMES {
        for semantics in [Semantics::Exact, Semantics::Reference] {
            let default_algorithm = DefaultAlgorithm::named(name);
            assert!(default_algorithm.is_some());
            let options = LoadOptions { semantics, default_algorithm, ..LoadOptions::default() };
            let rules = RuleSet::parse(&[source("rules.yaml", text)], &options).unwrap();
            let limits: Vec<&str> = rules.rule_limits().map(|(_, limit)| limit.algorithm.name()).collect();
            assert_eq!(limits, [name, "sliding_log"], "{semantics:?}");
        }
    }
    assert_eq!(DefaultAlgorithm::named("none"), None);
}

#[test]
fn rules_with_equal_joined_texts_are_duplicates_in_compat() {
    let text = "domain: d\ndescriptors:\n  - {key: a, value: b_c}\n  - {key: a_b, value: c}\n";
    assert!(parse(text, Semantics::Exact, None).is_ok());
    let errors = parse(text, Semantics::Reference, None).unwrap_err().to_string();
    assert!(errors.contains("joined to a_b_c, the same key and value as at"), "{errors}");
}

#[test]
fn a_reload_keeps_the_numbers_of_unchanged_limits_and_gives_changed_ones_new_numbers() {
    let (first, before) = limits("rate_limit: {unit: second, requests_per_unit: 5}", None);
    let (second, after) = limits("rate_limit: {unit: second, requests_per_unit: 6}", Some(&first));
    assert_ne!(before[0].id, after[0].id);
    assert_eq!(before[0].tag, after[0].tag, "it is the same counter");
    assert_eq!(second.limits().get(before[0].id).unwrap().algorithm, before[0].algorithm);
    assert!(first.limits().get(after[0].id).is_some(), "rules still in use by a decision know it too");
    let count = second.limits().to_vec().len();
    let (third, again) = limits("rate_limit: {unit: second, requests_per_unit: 5}", Some(&second));
    assert_eq!(before[0].id, again[0].id);
    assert_eq!(count, third.limits().to_vec().len(), "going back adds nothing");
}

#[test]
fn a_limit_has_a_dense_index_and_a_stable_name() {
    let text = "domain: d\ndescriptors:\n\
        - {key: a, value: x, rate_limit: {unit: second, requests_per_unit: 1}}\n\
        - key: b\n  rate_limits: [{name: n, unit: day, requests_per_unit: 1}, {per: 10s, requests_per_unit: 1}]\n\
        - key: c\n  rate_limits: [{unit: day, requests_per_unit: 1}, {per: 10s, requests_per_unit: 1}]\n";
    let rules = parse(text, Semantics::Exact, None).unwrap();
    let domain = rules.domain("d").unwrap();
    let limits = domain.rules().into_iter().flat_map(|rule| &rule.limits);
    let mut named: Vec<(u32, &str)> =
        limits.map(|limit| (limit.index, &*rules.limit_name(limit).limit)).collect();
    let own = domain.own_limit(crate::limit::RequestLimit { requests: 5, unit: Unit::Hour }, &[]);
    named.push((own.index, &rules.limit_name(&own).limit));
    let names: Vec<_> = named.iter().map(|(_, name)| *name).collect();
    assert_eq!(names, ["a=x", "n", "b", "c (1d)", "c (10s)", "(request's own limit per hour)"]);
    named.sort_unstable();
    named.dedup_by_key(|(index, _)| *index);
    assert_eq!(named.len(), 6, "no two limits share an index");
    assert_eq!(rules.named.len(), 5 + Unit::ALL.len());
}

#[test]
fn the_limits_of_a_rule_are_distinguished_by_name_or_window_in_any_order() {
    let list = |items: [&str; 2]| format!("rate_limits: [{}, {}]", items[0], items[1]);
    let (named, windowed) =
        ("{name: n, unit: hour, requests_per_unit: 9}", "{per: 10s, requests_per_unit: 5}");
    let (former, one_way) = limits(&list([named, windowed]), None);
    let (_, other_way) = limits(&list([windowed, named]), Some(&former));
    assert_eq!((one_way[0].id, one_way[1].id), (other_way[1].id, other_way[0].id));
    assert_eq!((one_way[0].tag, one_way[1].tag), (other_way[1].tag, other_way[0].tag));
    assert_ne!(one_way[0].tag, one_way[1].tag);
}

#[test]
fn a_domain_in_two_files_is_an_error_unless_domains_are_merged() {
    let sources = [
        source("a.yaml", "domain: d\ndescriptors: [{key: a}]"),
        source("b.yaml", "domain: d\ndescriptors: [{key: b}]"),
        source("c.yaml", "domain: d\ndescriptors: [{key: b}]"),
    ];
    let mut options = LoadOptions::default();
    let errors = RuleSet::parse(&sources[..2], &options).unwrap_err().to_string();
    assert_eq!(
        errors,
        "b.yaml:1:9: domain: \"d\" is already declared at a.yaml:1:9; put its descriptors there, or load with \
         --merge-domains"
    );
    options.merge_domains = true;
    let rules = RuleSet::parse(&sources[..2], &options).unwrap();
    let paths: Vec<_> =
        rules.domain("d").unwrap().rules().iter().map(|rule| rule.info.path.to_string()).collect();
    assert_eq!(paths, ["a", "b"]);
    let errors = RuleSet::parse(&sources, &options).unwrap_err().to_string();
    assert_eq!(
        errors,
        "c.yaml:2:15: descriptors[0]: the same key and value as at b.yaml:2:15; keep one of the two"
    );
}

#[test]
fn the_errors_of_all_files_are_reported_at_once() {
    let sources = [source("a.yaml", "\tx"), source("b.yaml", ""), source("c.yaml", "domain: [")];
    let errors = RuleSet::parse(&sources, &LoadOptions::default()).unwrap_err();
    let files: Vec<_> = errors.iter().map(|error| error.origin.source.to_string()).collect();
    assert_eq!(files, ["a.yaml", "b.yaml", "c.yaml"]);
}

#[test]
fn a_byte_order_mark_and_windows_line_ends_are_ignored() {
    let rules = parse("\u{feff}domain: d\r\ndescriptors:\r\n  - key: k\r\n", Semantics::Exact, None).unwrap();
    assert_eq!(&*rules.domain("d").unwrap().rules()[0].info.path, "k");
}

#[test]
fn metadata_is_kept() {
    let text = "domain: d\ndescriptors: [{key: k, metadata: {a: [1, x, 2.5], b: {c: true}}}]";
    let rules = parse(text, Semantics::Exact, None).unwrap();
    let metadata = rules.domain("d").unwrap().rules()[0].info.metadata.clone();
    assert_eq!(metadata.unwrap().to_string(), r#"{"a":[1,"x",2.5],"b":{"c":true}}"#);
}

#[test]
fn a_file_of_brackets_ends_in_an_error_and_not_in_an_overflowing_stack() {
    for bracket in ["[", "{a: ", "- ", "? ", "&a [*a, "] {
        assert!(parse(&bracket.repeat(50_000), Semantics::Exact, None).is_err(), "{bracket}");
    }
}

#[test]
fn descriptors_may_be_nested_as_deep_as_requests_have_entries() {
    let depth = 99;
    let text = format!(
        "domain: d\ndescriptors: {}[]{}",
        "[{key: k, descriptors: ".repeat(depth),
        "}]".repeat(depth)
    );
    let rules = parse(&text, Semantics::Exact, None).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(rules.domain("d").unwrap().rules().len(), depth);
}

const VALID: &str = "\
domain: d
descriptors:
  - key: plan
    value: 'go*d'
    share_threshold: true
    metadata: {a: [1, 2]}
    rate_limit: &limit {name: n, unit: minute, unit_multiplier: 5, requests_per_unit: 10, replaces: [{name: o}]}
  - key: plan
    rate_limits:
      - <<: *limit
        name: other
        charge: always
      - {per: 1h30m, requests_per_unit: 0x10, algorithm: fixed_window}
    descriptors:
      - key: \"user\"
        shadow_mode: yes
        rate_limit: {unlimited: true}
";

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC*|[ -~\n\t]{0,200}|[\\[\\]{}:,&*!|>'\"%@`#?\\- \nab]{0,100}") {
        let _ = parse(&text, Semantics::Exact, None);
    }

    #[test]
    fn no_mutation_of_a_good_file_panics(
        edits in prop::collection::vec((any::<prop::sample::Index>(), 0..3u8, "[ -~\n\t]|é|\u{feff}|\u{0}"), 1..6),
    ) {
        let mut chars: Vec<char> = VALID.chars().collect();
        for (at, kind, text) in edits {
            let at = at.index(chars.len());
            match (kind, text.chars().next()) {
                (0, _) => _ = chars.remove(at),
                (1, Some(put)) => chars[at] = put,
                (_, Some(put)) => chars.insert(at, put),
                (_, None) => {}
            }
        }
        let text: String = chars.into_iter().collect();
        let _ = parse(&text, Semantics::Exact, None);
    }

    #[test]
    fn every_window_that_can_be_written_is_within_bounds(number in any::<u64>(), unit in "ms|s|m|h|d|w") {
        let text = format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{per: {number}{unit}, requests_per_unit: 1}}}}]");
        if let Ok(rules) = parse(&text, Semantics::Exact, None) {
            let window = rules.domain("d").unwrap().rules()[0].limits[0].window;
            prop_assert!((Window::NANOS_MIN..=Window::NANOS_MAX).contains(&window.nanos().get()));
        }
    }
}

#[test]
fn the_file_that_mutations_start_from_is_good() {
    assert!(parse(VALID, Semantics::Exact, None).is_ok());
}
