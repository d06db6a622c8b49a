//! Matching: each property by itself, and compared with an oracle that reads the declared rules from top to bottom.

mod oracle;

use super::{DomainRules, LoadOptions, RuleSet, Semantics, Source};
use crate::limit::{Entry, RequestLimit, Unit};

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
    let around = "  - {key: k, value_network: '::/0'}\n  - {key: k, value_network: 192.0.2.1/32}\n  - {key: k, value_network: '2001:db8::1'}";
    assert_eq!(
        warnings(around),
        [
            "rules.yaml:3:5: k=(network ::/0): ::/0 has no IPv4 addresses; add 0.0.0.0/0 if these are meant too",
            "rules.yaml:5:5: k=(network 2001:db8::1/128): 2001:db8::1/128 is inside ::/0: the limits at rules.yaml:3:5 \
             do not apply to it",
        ]
    );
    assert_eq!(warnings("  - {key: k, value_regex: a}\n  - {key: k, value: 'a*'}\n  - key: k"), [""; 0]);
    let schedule = "{hours: 08:00-18:00, requests_per_unit: 2}, {days: mon, hours: 09:00-10:00, requests_per_unit: 3}, \
                    {days: tue, hours: 17:00-19:00, unlimited: true}";
    assert_eq!(
        warnings(&format!(
            "  - {{key: k, rate_limit: {{unit: day, requests_per_unit: 9, schedule: [{schedule}]}}}}"
        )),
        [
            "rules.yaml:3:5: k: schedule[1] never applies: all of mon 09:00-10:00 is in hours above it; move it up",
            "rules.yaml:3:5: k: schedule[2], tue 17:00-19:00, overlaps schedule[0], mon-sun 08:00-18:00: the first of \
             them applies",
        ]
    );
}

#[test]
fn warnings_name_values_and_limits_that_do_not_do_what_they_look_like() {
    let warnings = |descriptor: &str| {
        let rules = rules(&format!(
            "domain: d\ndescriptors:\n  - {{{descriptor}}}\n  - {{key: other, rate_limit: {{name: named, unit: day, requests_per_unit: 2}}}}"
        ));
        rules.warnings().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    for (descriptor, place, part) in [
        ("key: k, value: 10.0.0.0/8", "descriptors[0].value: ", "write `value_network: 10.0.0.0/8`"),
        (
            "key: k, values: [a, '2001:db8::/32']",
            "descriptors[0].values[1]: ",
            "write `value_network: 2001:db8::/32`",
        ),
        ("key: k, value: '^/api/.*'", "descriptors[0].value: ", "write `value_regex: ^/api/.*`"),
        ("key: k, value: '/v[0-9]+/x'", "descriptors[0].value: ", "not as a regular expression"),
        ("key: k, value_network: '::/0'", "k=(network ::/0): ", "add 0.0.0.0/0"),
        (
            "key: k, rate_limit: {unit: day, requests_per_unit: 1}",
            "descriptors[0].rate_limit.requests_per_unit: ",
            "write `algorithm: sliding_log`",
        ),
        (
            "key: k, rate_limit: {unit: day, requests_per_unit: 9, algorithm: token_bucket, size: 0}",
            "descriptors[0].rate_limit.size: ",
            "a bucket of 0 denies every request",
        ),
        (
            "key: k, rate_limit: {unit: day, requests_per_unit: 9, algorithm: leaky_bucket, burst: 0}",
            "descriptors[0].rate_limit.burst: ",
            "a bucket of 0 denies every request",
        ),
        (
            "key: k, rate_limit: {unlimited: true, replaces: [{name: named}, {name: nmed}]}",
            "3:5: k: ",
            "did you mean `named`?",
        ),
        (
            "key: k, rate_limit: {unit: day, requests_per_unit: 9, when: 'descriptors[0].req.method == \"GET\"'}",
            "descriptors[0].rate_limit.when: ",
            "write descriptors[0][\"req.method\"]",
        ),
    ] {
        let found = warnings(descriptor);
        assert_eq!(found.len(), 1, "{descriptor}: {found:?}");
        assert!(
            found[0].starts_with("rules.yaml:3:") && found[0].contains(place) && found[0].contains(part),
            "{found:?}"
        );
    }
    for descriptor in [
        "key: masked_remote_address, value: 10.0.0.0/8",
        "key: k, value: 10.0.0.7",
        "key: k, value: /files/*.txt",
        "key: k, value: 'a/8'",
        "key: k, value: '*.example.*'",
        "key: k, value_network: ['::/0', 0.0.0.0/0]",
        "key: k, rate_limit: {unit: day, requests_per_unit: 1, algorithm: sliding_log}",
        "key: k, rate_limit: {unit: day, requests_per_unit: 1, precision: 8}",
        "key: k, rate_limit: {unit: day, requests_per_unit: 0, algorithm: token_bucket, size: 0}",
        "key: k, rate_limit: {unlimited: true, replaces: [{name: named}]}",
    ] {
        assert_eq!(warnings(descriptor), [""; 0], "{descriptor}");
    }
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
fn quotas_of_counters_in_a_shared_store_are_of_buckets_and_windows_and_need_leases() {
    let parse = |head: &str, limit: &str, leases: bool| {
        let options = LoadOptions { shared_counters: true, leases, ..LoadOptions::default() };
        let rules =
            format!("domain: d\nrlqs: {{}}\n{head}descriptors: [{{key: a, rate_limit: {{{limit}}}}}]\n");
        RuleSet::parse(&[Source::file("r.yaml", rules)], &options)
            .map(|_| ())
            .map_err(|errors| errors.to_string())
    };
    let token_bucket = "unit: second, requests_per_unit: 9, algorithm: token_bucket";
    for limit in [
        token_bucket,
        "unit: second, requests_per_unit: 9, algorithm: leaky_bucket, burst: 90",
        "unit: hour, requests_per_unit: 900, algorithm: token_bucket",
        "unit: day, requests_per_unit: 900",
        "per: 10m, requests_per_unit: 900, algorithm: fixed_window",
        "unit: minute, requests_per_unit: 10",
        "unit: hour, requests_per_unit: 900, algorithm: token_bucket, refill: intervals",
        "unit: minute, requests_per_unit: 900, algorithm: fixed_window",
        "unit: minute, requests_per_unit: 1000, algorithm: fixed_window",
        "unit: second, requests_per_unit: 100",
    ] {
        assert_eq!(parse("", limit, true), Ok(()), "{limit}");
    }
    for limit in [
        "unit: second, requests_per_unit: 9, algorithm: token_bucket, refill: intervals",
        "unit: minute, requests_per_unit: 1000, algorithm: token_bucket, refill: intervals",
    ] {
        let error = parse("", limit, true).unwrap_err();
        assert!(
            error.contains("remove `refill`, make it a `fixed_window`, write `counters: local` beside"),
            "{error}"
        );
        assert_eq!(parse("counters: local\n", limit, true), Ok(()), "{limit}");
    }
    let error = parse("", token_bucket, false).unwrap_err();
    assert!(error.contains("by leases, which are off; start with `--lease auto`"), "{error}");
    assert_eq!(parse("counters: local\n", token_bucket, false), Ok(()));
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

/// 20 requests in 10 s among four Envoys: a third of them was admitted, and `check` accepted it without a word.
#[test]
fn limits_of_which_clients_of_quotas_get_little_are_warned_about() {
    let warnings = |clients: u32, limit: &str| {
        let text = format!(
            "{{ domain: d, rlqs: {{ clients: {clients} }}, descriptors: [{{ key: a, rate_limit: {{ {limit} }} }}] }}"
        );
        let rules =
            RuleSet::parse(&[Source::file("r.yaml", text)], &LoadOptions::default()).expect("valid rules");
        rules.warnings().iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let window = "per: 10s, requests_per_unit: 20, algorithm: sliding_window";
    let found = warnings(4, window);
    assert!(found.len() == 1 && found[0].contains("get 37 % of it at worst"), "{found:?}");
    assert_eq!(warnings(4, &window.replace("sliding_window", "token_bucket")).len(), 1);
    assert_eq!(warnings(4, "unit: minute, requests_per_unit: 100").len(), 1);
    for (clients, limit) in [
        (5, "unit: second, requests_per_unit: 200, algorithm: token_bucket, size: 100"),
        (10, "per: 10s, requests_per_unit: 1000, algorithm: sliding_window"),
        (50, "per: 20m, requests_per_unit: 60000, algorithm: fixed_window"),
        (2, "unit: second, requests_per_unit: 0"),
    ] {
        assert_eq!(warnings(clients, limit), Vec::<String>::new(), "{limit}");
    }
}
