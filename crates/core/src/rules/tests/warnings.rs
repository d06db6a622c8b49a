//! Warnings about rules that do not do what they look like.

use super::*;

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
fn limits_that_replace_each_other_are_a_warning_at_each() {
    let limit = |name: &str, replaces: &str| {
        format!(
            "  - {{key: {name}, rate_limit: {{name: {name}, unit: day, requests_per_unit: 9, replaces: [{{name: {replaces}}}]}}}}\n"
        )
    };
    let all = limit("a", "b") + &limit("b", "a") + &limit("c", "d") + &limit("d", "a");
    let rules = rules(&format!("domain: d\ndescriptors:\n{all}"));
    assert_eq!(
        rules.warnings().iter().map(ToString::to_string).collect::<Vec<_>>(),
        [
            "rules.yaml:3:5: a: \"a\" replaces \"b\", and \"b\" at rules.yaml:4:5 replaces \"a\": neither limits a request that reaches \
             both; remove one `replaces`",
            "rules.yaml:4:5: b: \"b\" replaces \"a\", and \"a\" at rules.yaml:3:5 replaces \"b\": neither limits a request that reaches \
             both; remove one `replaces`",
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
        ("key: k, value: '2001:DB8:0::1'", "descriptors[0].value: ", "write 2001:db8::1"),
        ("key: masked_remote_address, value: 10.1.2.3/8", "descriptors[0].value: ", "write 10.0.0.0/8"),
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
        (
            "key: k, rate_limit: {unit: day, requests_per_unit: 9, when: 'descriptors[0].tokens > 1000'}",
            "descriptors[0].rate_limit.when: ",
            "write int(…) around the entry",
        ),
        (
            "key: k, rate_limit: {unit: day, requests_per_unit: 9, when: 'descriptors[0].premium'}",
            "descriptors[0].rate_limit.when: ",
            "so that this never holds",
        ),
        ("key: k, rate_limit: ", "descriptors[0].rate_limit: ", "nothing limits what the descriptor matches"),
        (
            "key: k, rate_limits: ~",
            "descriptors[0].rate_limits: ",
            "nothing limits what the descriptor matches",
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
        "key: generic_key, value: '2001:DB8:0::1'",
        "key: k, value: 10.0.0.7",
        "key: k, value: '2001:db8::1'",
        "key: k, value: /files/*.txt",
        "key: k, value: 'a/8'",
        "key: k, value: '*.example.*'",
        "key: k, value_network: ['::/0', 0.0.0.0/0]",
        "key: k, rate_limit: {unit: day, requests_per_unit: 1, algorithm: sliding_log}",
        "key: k, rate_limit: {unit: day, requests_per_unit: 1, precision: 8}",
        "key: k, rate_limit: {unit: day, requests_per_unit: 0, algorithm: token_bucket, size: 0}",
        "key: k, rate_limit: {unlimited: true, replaces: [{name: named}]}",
        "key: k, rate_limit: {unit: day, requests_per_unit: 9}, rate_limits: ",
        "key: k, value: , descriptors: ",
    ] {
        assert_eq!(warnings(descriptor), [""; 0], "{descriptor}");
    }
}

#[test]
fn empty_conditions_and_variables_of_a_limit_are_warnings_unless_they_are_lists() {
    let of = |lists: &str| {
        let all = rules(&format!("- {{namespace: d, max_value: 5, seconds: 60, {lists}}}")).warnings();
        all.iter().map(|warning| warning.path.clone()).collect::<Vec<_>>()
    };
    assert_eq!(of("conditions: , variables: ~"), ["[0].conditions", "[0].variables"]);
    assert_eq!(of("conditions: [], variables: []"), [""; 0]);
}

/// A list whose only line is commented out would turn these values into every value.
#[test]
fn a_key_that_narrows_a_rule_is_an_error_without_a_value() {
    for (descriptor, place) in [
        ("key: k, values: ", "3:14: descriptors[0].values: "),
        ("key: k, value_network: ~", "3:14: descriptors[0].value_network: "),
        ("key: k, value: v, value_regex: null", "3:24: descriptors[0].value_regex: "),
        (
            "key: w, rate_limit: {unit: day, requests_per_unit: 9, when: }",
            "3:60: descriptors[0].rate_limit.when: ",
        ),
    ] {
        let source = Source::file(
            "rules.yaml",
            format!("domain: d\ndescriptors:\n  - {{{descriptor}}}\n  - {{key: k}}"),
        );
        let errors = RuleSet::parse(&[source], &LoadOptions::default()).unwrap_err().to_string();
        assert!(errors.starts_with(&format!("rules.yaml:{place}has no value")), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
}
