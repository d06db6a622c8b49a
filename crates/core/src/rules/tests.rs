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
    let shared = found.shared.iter().map(|shared| format!(" {}:{}", shared.entry, shared.text));
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

#[test]
fn wildcards_in_keys_and_values_are_tried_by_their_characters_and_before_the_key_alone() {
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
            ("web=a1", Some("web=a*")),
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
fn of_wildcards_the_one_with_more_characters_wins_then_that_with_fewer_stars_then_the_first() {
    let yaml = "
domain: d
descriptors:
  - {key: k, value: '*'}
  - {key: k, value: '*b*'}
  - {key: k, value: 'a*'}
  - {key: k, value: '*b'}
  - {key: k, value: '/API/*', value_ignore_case: true}
";
    let of = |value: &str| format!("k={value}");
    check(
        yaml,
        &[
            (&of("ab"), Some("k=a*")),
            (&of("cb"), Some("k=*b")),
            (&of("cbc"), Some("k=*b*")),
            (&of("c"), Some("k=*")),
            (&of("/aPi/b"), Some("k=(value /api/*, any case) 0:")),
        ],
    );
}

#[test]
fn one_order_of_precedence_holds_for_all_kinds_of_values() {
    let kinds = [
        ("value: 10.1.2.3", "k=10.1.2.3"),
        ("values: [10.1.2.3, other]", "k=(list 10.1.2.3)"),
        ("value_network: 10.1.0.0/16", "k=(network 10.1.0.0/16) 0:"),
        ("value_network: [192.0.2.0/24, 10.0.0.0/8]", "k=(network 192.0.2.0/24) 0:"),
        ("value: '10.1.*'", "k=10.1.*"),
        ("value: '10*'", "k=10*"),
        ("value_regex: '[.]3$'", "k=(regex [.]3$)"),
        ("value_regex: ^10", "k=(regex ^10)"),
        ("share_threshold: false", "k"),
    ];
    // Removing the one that wins leaves the next one; the order of the file matters for regular expressions alone.
    for first in 0..kinds.len() {
        let is_left = |(index, (values, _)): &(usize, &(&str, &str))| {
            // Values that a list has too are an error beside it.
            *index >= first && !(first == 0 && values.starts_with("values"))
        };
        let mut left: Vec<&str> =
            kinds.iter().enumerate().filter(is_left).map(|(_, (values, _))| *values).collect();
        let regexes = left.iter().filter(|values| values.contains("regex")).count();
        if regexes < 2 {
            left.reverse();
        }
        let descriptors: String = left.iter().map(|values| format!("\n  - {{key: k, {values}}}")).collect();
        check(&format!("domain: d\ndescriptors:{descriptors}"), &[("k=10.1.2.3", Some(kinds[first].1))]);
    }
}

#[test]
fn networks_match_addresses_of_both_families_however_they_are_written() {
    let yaml = "
domain: d
descriptors:
  - {key: a, value_network: 0.0.0.0/0}
  - {key: a, value_network: 192.0.2.0/24, share_threshold: true}
  - {key: a, value_network: ['2001:db8::/32', '2001:db8:1::/48']}
  - {key: a, value_network: '2001:db8:1:2::/64'}
";
    check(
        yaml,
        &[
            ("a=192.0.2.7", Some("a=(network 192.0.2.0/24) 0:(network 192.0.2.0/24)")),
            ("a=::ffff:192.0.2.7", Some("a=(network 192.0.2.0/24) 0:(network 192.0.2.0/24)")),
            ("a=198.51.100.1", Some("a=(network 0.0.0.0/0) 0:")),
            ("a=2001:DB8:1:2::1", Some("a=(network 2001:db8:1:2::/64) 0:")),
            ("a=2001:db8:1:3::1", Some("a=(network 2001:db8::/32) 0:")),
            ("a=::1", None),
            ("a=192.0.2.7:80", None),
            ("a=x", None),
        ],
    );
}

#[test]
fn letters_in_any_case_match_and_share_a_counter() {
    let yaml = "
domain: d
descriptors:
  - {key: k, value: Gold, value_ignore_case: true}
  - {key: k, values: [Free, Ärger], value_ignore_case: true}
  - {key: k, values: [FREE]}
  - {key: k, value: '/X*', value_ignore_case: true, share_threshold: true}
  - {key: k, value_regex: ^y, value_ignore_case: true}
";
    check(
        yaml,
        &[
            ("k=gOLD", Some("k=(value Gold, any case) 0:")),
            ("k=äRGER", Some("k=(list Free, any case) 0:")),
            ("k=free", Some("k=(list Free, any case) 0:")),
            ("k=FREE", Some("k=(list FREE)")),
            ("k=/xy", Some("k=(value /x*, any case) 0:(value /x*, any case)")),
            ("k=Yes", Some("k=(regex ^y, any case) 0:")),
            ("k=no", None),
        ],
    );
    let rules = rules(yaml);
    let entries = [Entry { key: "k", value: "GOLD" }];
    let found = rules.domain("d").unwrap().find(&entries).unwrap();
    assert_eq!(found.shared[0].of("GOLD"), "gold");
}

#[test]
fn sets_keep_their_meaning_with_the_semantics_of_the_reference_server() {
    let text = "
domain: d
descriptors:
  - {key: k}
  - {key: k, value: '1*'}
  - {key: k, values: [b, c]}
  - {key: k, value_network: 10.0.0.0/8}
  - {key: k, value_regex: '^[0-9]'}
  - {key: k, value: 'X*', value_ignore_case: true}
";
    let options = LoadOptions { semantics: Semantics::Reference, ..LoadOptions::default() };
    let rules =
        RuleSet::parse(&[Source::file("r", text)], &options).unwrap_or_else(|errors| panic!("{errors}"));
    let domain = rules.domain("d").unwrap();
    for (value, path) in [
        ("c", "k=(list b)"),
        ("10.1.1.1", "k=(network 10.0.0.0/8)"),
        ("11.1.1.1", "k=1*"),
        ("2", "k=(regex ^[0-9])"),
        ("xyz", "k=(value x*, any case)"),
        ("z", "k"),
    ] {
        let found = domain.find(&[Entry { key: "k", value }]).unwrap();
        assert_eq!(&*found.rule.info.path, path, "{value}");
    }
    assert_eq!(domain.rules().len(), 6);
    // Joined texts are divided otherwise only where the reference server has the rule too.
    assert!(domain.find(&[Entry { key: "k_b", value: "" }]).is_none());
}

#[test]
fn warnings_name_descriptors_that_never_apply_and_networks_inside_others() {
    let warnings = |descriptors: &str| {
        let rules = rules(&format!("domain: d\ndescriptors:\n{descriptors}"));
        rules.warnings().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        warnings(
            "  - {key: k, value_regex: ^a}\n  - {key: k, value_regex: ^ab}\n  - {key: k, value_regex: 'a$b'}"
        ),
        [
            "rules.yaml:4:5: k=(regex ^ab): never applies: regular expressions above it match every value that it matches; move it up",
            "rules.yaml:5:5: k=(regex a$b): never applies: no value matches its regular expression",
        ]
    );
    assert_eq!(
        warnings("  - {key: k, value_regex: a}\n  - {key: k, value: '*'}\n  - key: k"),
        [
            "rules.yaml:3:5: k=(regex a): never applies: the wildcard at rules.yaml:4:5 matches every value",
            "rules.yaml:5:5: k: never applies: the wildcard at rules.yaml:4:5 matches every value",
        ]
    );
    assert_eq!(
        warnings("  - {key: k, value_regex: a*}\n  - key: k"),
        ["rules.yaml:4:5: k: never applies: the regular expressions of its key match every value"]
    );
    assert_eq!(
        warnings(
            "  - {key: k, value_network: [10.0.0.0/8, 192.0.2.0/24, 192.0.2.128/25]}\n\
             \x20 - {key: k, value_network: [10.1.0.0/16, 10.2.0.0/16, 11.0.0.0/8]}"
        ),
        [
            "rules.yaml:3:5: k=(network 10.0.0.0/8): 192.0.2.128/25 is inside 192.0.2.0/24 of the same list; remove it",
            "rules.yaml:4:5: k=(network 10.1.0.0/16): 10.1.0.0/16 is inside 10.0.0.0/8, as are 1 more: the limits at \
             rules.yaml:3:5 do not apply to it",
        ]
    );
    assert_eq!(warnings("  - {key: k, value_regex: a}\n  - {key: k, value: 'a*'}\n  - key: k"), [""; 0]);
    let schedule = "{hours: 08:00-18:00, requests_per_unit: 2}, {days: mon, hours: 09:00-10:00, requests_per_unit: 3}, \
                    {days: tue, hours: 17:00-19:00, unlimited: true}";
    assert_eq!(
        warnings(&format!(
            "  - {{key: k, rate_limit: {{unit: day, requests_per_unit: 1, schedule: [{schedule}]}}}}"
        )),
        [
            "rules.yaml:3:5: k: schedule[1] never applies: all of mon 09:00-10:00 is in hours above it; move it up",
            "rules.yaml:3:5: k: schedule[2], tue 17:00-19:00, overlaps schedule[0], mon-sun 08:00-18:00: the first of \
             them applies",
        ]
    );
}

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
fn bans_and_schedules_are_refused_in_a_shared_store_unless_the_domain_counts_locally() {
    let rules = "descriptors:\n\
        - {key: a, rate_limit: {unit: day, requests_per_unit: 1, ban: {after: 2, within: 1m, for: 5m}}}\n\
        - {key: b, rate_limit: {unit: day, requests_per_unit: 1, schedule: [{days: sun, requests_per_unit: 9}]}}\n";
    let shared = LoadOptions { shared_counters: true, ..LoadOptions::default() };
    let parse = |head: &str| RuleSet::parse(&[Source::file("r.yaml", format!("{head}{rules}"))], &shared);
    let errors = parse("domain: d\n").expect_err("they are refused").to_string();
    for reason in [
        "ban: cannot be counted in a shared store: denials are counted by one process; remove it, or write `counters: local`",
        "schedule: cannot be counted in a shared store: a limit there has one number at all times; remove it, or write",
    ] {
        assert!(errors.contains(reason), "{errors}");
    }
    assert!(parse("domain: d\ncounters: local\n").is_ok());
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

/// A descriptor of a random tree: key, values, those below.
#[derive(Clone, Debug)]
struct Declared {
    key: String,
    values: Values,
    below: Vec<Declared>,
}

/// The keys of a descriptor that say which values it is for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Values {
    /// `value`; empty for none.
    Text(String),
    AnyCase(String),
    List(Vec<String>),
    Networks(Vec<(u8, u8)>),
    Regex(String),
}

impl Values {
    fn to_yaml(&self) -> String {
        match self {
            Self::Text(text) => format!("value: '{text}'"),
            Self::AnyCase(text) => format!("value: '{text}', value_ignore_case: true"),
            Self::List(texts) => format!("values: [{}]", texts.join(", ")),
            Self::Networks(networks) => {
                let networks: Vec<String> =
                    networks.iter().map(|(byte, length)| format!("{byte}.0.0.0/{length}")).collect();
                format!("value_network: [{}]", networks.join(", "))
            }
            Self::Regex(text) => format!("value_regex: '{text}'"),
        }
    }

    /// What no two descriptors of a key and level have in common.
    fn single(&self) -> Vec<String> {
        match self {
            Self::Text(text) => vec![text.clone()],
            Self::AnyCase(text) => vec![format!("any {}", text.to_lowercase())],
            Self::List(texts) => texts.clone(),
            Self::Networks(networks) => networks.iter().map(|network| format!("{network:?}")).collect(),
            Self::Regex(text) => vec![format!("regex {text}")],
        }
    }

    /// The rank and the place within it by which the values win over others that match too; none if they do not match.
    fn rank(&self, value: &str) -> Option<(u8, usize)> {
        let lower = value.to_lowercase();
        match self {
            Self::Text(text) if text.is_empty() => Some((6, 0)),
            Self::Text(text) if text.contains('*') => None,
            Self::Text(text) => (*text == value).then_some((0, 0)),
            Self::List(texts) => texts.iter().any(|text| text == value).then_some((1, 0)),
            Self::AnyCase(text) if text.contains('*') => None,
            Self::AnyCase(text) => (text.to_lowercase() == lower).then_some((2, 0)),
            Self::Networks(networks) => {
                let first: u8 = value.strip_suffix(".0.0.1")?.parse().ok()?;
                let length = |(byte, length): &(u8, u8)| {
                    (first >> (8 - length) == byte >> (8 - length)).then_some(*length)
                };
                let longest = networks.iter().filter_map(length).max()?;
                Some((3, usize::from(8 - longest)))
            }
            Self::Regex(text) => matches_regex(text, value).then_some((5, 0)),
        }
    }
}

/// Expressions are `^`, letters, `$`, each of which may be missing.
fn matches_regex(text: &str, value: &str) -> bool {
    let letters = text.trim_start_matches('^').trim_end_matches('$');
    match (text.starts_with('^'), text.ends_with('$')) {
        (true, true) => value == letters,
        (true, false) => value.starts_with(letters),
        (false, true) => value.ends_with(letters),
        (false, false) => value.contains(letters),
    }
}

/// Values of few letters, so that requests match them.
fn values() -> impl Strategy<Value = Values> {
    let networks = prop::collection::hash_set((0..4u8, 1..=4u8), 1..3).prop_map(|networks| {
        networks
            .into_iter()
            .map(|(bits, length)| ((bits << 4) & !(u8::MAX >> length), length))
            .collect::<Vec<_>>()
    });
    prop_oneof![
        6 => "|[ab]{1,2}|[ab*]{0,2}[*]".prop_map(Values::Text),
        1 => "[aB]{1,2}|[aB*]{0,2}[*]".prop_map(Values::AnyCase),
        1 => prop::collection::hash_set("[ab]{1,2}", 1..3).prop_map(|texts| Values::List(texts.into_iter().collect())),
        1 => networks.prop_map(Values::Networks),
        1 => "(\\^|)[ab]{0,2}(\\$|)".prop_map(Values::Regex),
    ]
}

/// Descriptors of one level, all different.
fn level() -> impl Strategy<Value = Vec<Declared>> {
    let key = "k|l|k[*]|[*]|kl";
    let leaf = (key, values()).prop_map(|(key, values)| Declared { key, values, below: Vec::new() });
    let tree = leaf.prop_recursive(3, 40, 12, move |inner| {
        (key, values(), prop::collection::vec(inner, 0..12)).prop_map(|(key, values, below)| Declared {
            key,
            values,
            below: distinct(below),
        })
    });
    prop::collection::vec(tree, 0..12).prop_map(distinct)
}

fn one_star(value: &str) -> String {
    value.replace("***", "*").replace("**", "*")
}

fn distinct(mut declared: Vec<Declared>) -> Vec<Declared> {
    let mut seen = std::collections::HashSet::new();
    declared.retain(|one| {
        // Sets need a key without wildcards.
        let is_set = !matches!(one.values, Values::Text(_));
        let single: Vec<_> =
            one.values.single().iter().map(|value| (one_star(&one.key), one_star(value))).collect();
        let is_new = single.iter().collect::<std::collections::HashSet<_>>().len() == single.len()
            && single.iter().all(|value| !seen.contains(value));
        let is_kept = is_new && !(is_set && one.key.contains('*'));
        if is_kept {
            seen.extend(single);
        }
        is_kept
    });
    declared
}

fn to_yaml(declared: &[Declared]) -> String {
    let one = |(index, one): (usize, &Declared)| {
        let (key, values, below) = (&one.key, one.values.to_yaml(), to_yaml(&one.below));
        format!("{{key: '{key}', {values}, metadata: {{at: {index}}}, descriptors: {below}}}")
    };
    format!("[{}]", declared.iter().enumerate().map(one).collect::<Vec<_>>().join(", "))
}

/// Tries every split.
fn matches(pattern: &str, value: &str) -> bool {
    match pattern.split_at_checked(1) {
        None => value.is_empty(),
        Some(("*", rest)) => (0..=value.len()).any(|from| matches(rest, &value[from..])),
        Some((first, rest)) => value.strip_prefix(first).is_some_and(|value| matches(rest, value)),
    }
}

/// Characters beside the `*`, the most first, and the number of these.
fn wildcard_rank(texts: &[&str]) -> (u8, usize) {
    let all = texts.concat();
    let stars = one_star(texts[0]).matches('*').count() + one_star(texts[1]).matches('*').count();
    (4, (100 - all.replace('*', "").len()) * 100 + stars)
}

/// Whether the descriptor is for the entry, and the rank by which it wins over others.
fn rank(one: &Declared, entry: &Entry<'_>) -> Option<(u8, usize)> {
    let by_value = |text: &str, value: &str| text.contains('*') && matches(text, value);
    if one.key.contains('*') {
        let Values::Text(text) = &one.values else { return None };
        let is_for = text.is_empty() || text == entry.value || by_value(text, entry.value);
        // Any value is less than the wildcard `*`.
        let shown = if text.is_empty() { "*" } else { text };
        let (rank, place) = wildcard_rank(&[&one.key, shown]);
        return (is_for && matches(&one.key, entry.key))
            .then_some((rank, place + usize::from(text.is_empty())));
    }
    if one.key != entry.key {
        return None;
    }
    match &one.values {
        Values::Text(text) if by_value(text, entry.value) => Some(wildcard_rank(&[&one.key, text])),
        Values::AnyCase(text) if by_value(&text.to_lowercase(), &entry.value.to_lowercase()) => {
            Some(wildcard_rank(&[&one.key, text]))
        }
        values => values.rank(entry.value),
    }
}

/// Which descriptors the entries reach, as indices from level to level.
fn oracle(mut level: &[Declared], entries: &[Entry<'_>]) -> Option<Vec<usize>> {
    let mut way = Vec::new();
    for entry in entries {
        let ranked = level.iter().enumerate().filter_map(|(index, one)| Some((rank(one, entry)?, index)));
        let (_, index) = ranked.min()?;
        way.push(index);
        level = &level[index].below;
    }
    Some(way)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]
    #[test]
    fn matching_agrees_with_scanning_the_rules_from_top_to_bottom(
        declared in level(),
        requests in prop::collection::vec(
            prop::collection::vec(("[kl]{1,2}", "[abAB]{0,3}|[1-6]?[0-9][.]0[.]0[.]1"), 1..4), 20,
        ),
    ) {
        let rules = rules(&format!("domain: d\ndescriptors: {}", to_yaml(&declared)));
        let domain = rules.domain("d").unwrap();
        for request in requests {
            let entries: Vec<_> = request.iter().map(|(key, value)| Entry { key, value }).collect();
            let expected = oracle(&declared, &entries);
            let explanation = domain.explain(&entries);
            let steps = explanation.steps.iter().map(|step| step.rule.info.metadata.as_ref().unwrap()["at"].as_u64());
            let explained: Vec<usize> = steps.map(|at| at.unwrap() as usize).collect();
            match (&explanation.outcome, &expected) {
                (Outcome::Reached(rule), Some(way)) => {
                    prop_assert_eq!(&explained, way, "{:?}", request);
                    prop_assert_eq!(domain.find(&entries).map(|found| found.rule), Some(*rule));
                }
                (outcome, expected) => {
                    prop_assert!(expected.is_none() && !matches!(outcome, Outcome::Reached(_)), "{:?}", request);
                    prop_assert!(domain.find(&entries).is_none());
                }
            }
            for step in &explanation.steps {
                if let Matched::Wildcard { pattern, .. } = step.matched {
                    prop_assert!(pattern.matches(&step.value));
                }
            }
        }
    }
}
