//! Which of several descriptors matches: exact values, wildcards, patterns, networks and sets.

use super::*;

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

/// A key without a value counts as with the value `*`, not as with more of them.
#[test]
fn a_wildcard_key_without_a_value_has_as_many_stars_as_one_with_the_value_star() {
    let rules =
        rules("domain: d\ndescriptors: [{key: '*', value: 'a*b*'}, {key: 'h_*'}, {key: 'h_*', value: '*'}]");
    let domain = rules.domain("d").unwrap();
    let path = |key, value| domain.find(&[Entry { key, value }]).map(|found| &*found.rule.info.path);
    assert_eq!(path("h_x", "ab"), Some("h_*=*"));
    assert_eq!(path("x", "ab"), Some("*=a*b*"));
    let rules = self::rules("domain: d\ndescriptors: [{key: '*', value: 'a*b*'}, {key: 'h_*'}]");
    let found = rules.domain("d").unwrap().find(&[Entry { key: "h_x", value: "ab" }]);
    assert_eq!(found.map(|found| &*found.rule.info.path), Some("h_*"));
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
    // Without the winner, the next wins; the order of the file matters for regular expressions alone.
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
            ("a=192.0.2.128/25", Some("a=(network 192.0.2.0/24) 0:(network 192.0.2.0/24)")),
            ("a=192.0.2.0/24", Some("a=(network 192.0.2.0/24) 0:(network 192.0.2.0/24)")),
            ("a=192.0.0.0/16", Some("a=(network 0.0.0.0/0) 0:")),
            ("a=2001:db8:1::/48", Some("a=(network 2001:db8::/32) 0:")),
            ("a=2001::/16", None),
            ("a=192.0.2.0/33", None),
            ("a=x/8", None),
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
