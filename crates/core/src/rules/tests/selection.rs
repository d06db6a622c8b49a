//! The rule that the entries of a request reach, and its explanation.

use super::*;

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
