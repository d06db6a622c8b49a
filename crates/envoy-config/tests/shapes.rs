//! The shapes of mistakes in public configurations: each on its own, with the hint that leads to its cause.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not see as such")]

use tidegate_core::{
    limit::{RequestLimit, Unit},
    rules::{LoadOptions, RuleSet, Source},
};
use tidegate_envoy_config::{
    Files,
    check::{Reach, check},
    configuration::Configuration,
};

/// The patches of an EnvoyFilter, with a filter of this domain and a virtual host or route with these actions.
fn mesh(domain: &str, actions: &str) -> String {
    format!(
        r#"
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {{ name: filter-ratelimit }}
spec:
  configPatches:
    - applyTo: HTTP_FILTER
      patch:
        operation: INSERT_BEFORE
        value:
          name: envoy.filters.http.ratelimit
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
            domain: {domain}
            timeout: 1s
            rate_limit_service:
              transport_api_version: V3
              grpc_service: {{ envoy_grpc: {{ cluster_name: "outbound|8081||ratelimit.default.svc.cluster.local" }} }}
---
apiVersion: networking.istio.io/v1alpha3
kind: EnvoyFilter
metadata: {{ name: filter-ratelimit-svc }}
spec:
  configPatches:
    - applyTo: VIRTUAL_HOST
      match: {{ routeConfiguration: {{ vhost: {{ name: "" }} }} }}
      patch:
        operation: MERGE
        value:
          rate_limits: [{{ actions: {actions} }}]
"#
    )
}

fn limit(path: &[(&str, &str)]) -> String {
    let mut text = "rate_limit: {unit: minute, requests_per_unit: 1}".to_owned();
    for (key, value) in path.iter().rev() {
        let value = if value.is_empty() { String::new() } else { format!("value: \"{value}\", ") };
        let begins =
            if text.starts_with("rate_limit") { text.clone() } else { format!("descriptors: [{text}]") };
        text = format!("{{key: {key}, {value}{begins}}}");
    }
    format!("domain: edge\ndescriptors: [{text}]\n")
}

/// The findings that leave requests unlimited, as `kind: message`.
fn unlimited(rules: &str, config: &str) -> Vec<String> {
    let rules = RuleSet::parse(&[Source::file("rules.yaml", rules)], &LoadOptions::default()).unwrap();
    let files = Files::read(vec![Source::file("envoy.yaml", config)]).unwrap();
    let found = check(&Configuration::of(&files), &rules).findings;
    let grave = found.iter().filter(|one| one.kind.severity().name() == "unlimited");
    grave.map(|one| format!("{}: {}", one.kind.name(), one.message)).collect()
}

#[test]
fn each_shape_of_a_descriptor_without_a_limit_is_named_with_its_cause() {
    let header = |name: &str, key: &str| {
        format!("{{request_headers: {{header_name: \"{name}\", descriptor_key: {key}}}}}")
    };
    let generic = |key: &str, value: &str| match key {
        "" => format!("{{generic_key: {{descriptor_value: {value}}}}}"),
        key => format!("{{generic_key: {{descriptor_key: {key}, descriptor_value: {value}}}}}"),
    };
    let address = "{remote_address: {}}".to_owned();
    let matched = "{header_value_match: {descriptor_value: admin, headers: [{name: x-admin}]}}".to_owned();
    // Rules, actions, and the hint.
    let shapes: Vec<(String, Vec<String>, &str)> = vec![
        (
            limit(&[("path", ""), ("remote_address", "")]),
            vec![address.clone(), header(":path", "path")],
            "the order counts",
        ),
        (
            limit(&[("route", "login")]),
            vec![generic("", "login")],
            "generic_key without descriptor_key sends the key `generic_key`",
        ),
        (
            limit(&[("generic_key", "login")]),
            vec![generic("route", "login")],
            "without descriptor_key it would send `generic_key`",
        ),
        (
            limit(&[("client_ip", "")]),
            vec![address.clone()],
            "Envoy sends the address as `remote_address`, and the rule has `client_ip`",
        ),
        (
            limit(&[("remote_address", "")]),
            vec!["{masked_remote_address: {}}".to_owned()],
            "Envoy sends the address as `masked_remote_address`",
        ),
        (
            limit(&[("x-api-key", "")]),
            vec![header("x-api-key", "api_key")],
            "Envoy sends the key `api_key`, and the rule has `x-api-key`",
        ),
        (
            limit(&[("PATH", "")]),
            vec![header(":path", "path")],
            "Envoy sends the key `path`, and the rule has `PATH`",
        ),
        (limit(&[("admin", "admin")]), vec![matched], "sends `header_match` unless it has a descriptor_key"),
        (limit(&[("route", "signin")]), vec![generic("route", "login")], "has route=signin, not login"),
        (limit(&[("api_key", ""), ("path", "")]), vec![header("x-api-key", "api_key")], "needs 1 more: path"),
        (
            limit(&[("api_key", "")]),
            vec![header("x-api-key", "api_key"), header(":path", "path")],
            "ends before path",
        ),
        (limit(&[("remote_address", "10.0.0.1x")]), vec![address], "which is no address"),
        (
            limit(&[("user_id", "")]),
            vec![header("x-user", "userid")],
            "Envoy sends the key `userid`, and the rule has `user_id`",
        ),
    ];
    for (rules, actions, hint) in shapes {
        let found = unlimited(&rules, &mesh("edge", &format!("[{}]", actions.join(", "))));
        assert!(found.iter().any(|one| one.contains(hint)), "{hint:?} is not in {found:#?}\n{rules}");
        let is_missed = |one: &String| {
            ["descriptor-without-rule", "descriptor-ends-early"].iter().any(|kind| one.starts_with(kind))
        };
        assert!(found.iter().any(is_missed), "{found:#?}\n{rules}");
    }
}

#[test]
fn a_domain_that_differs_by_a_prefix_is_named() {
    let rules = limit(&[("remote_address", "")]).replace("domain: edge", "domain: httpserver");
    let found = unlimited(&rules, &mesh("test-httpserver", "[{remote_address: {}}]"));
    assert!(found.iter().any(|one| one.contains("\"httpserver\" may be meant")), "{found:?}");
}

#[test]
fn patches_that_fit_their_rules_have_no_finding() {
    let rules = limit(&[("PATH", "")]);
    let actions = "[{request_headers: {header_name: \":path\", descriptor_key: PATH}}]";
    assert_eq!(unlimited(&rules, &mesh("edge", actions)), Vec::<String>::new());
}

/// Whether such a limit applies depends on the other descriptors of each request.
#[test]
fn a_rule_whose_limits_all_have_a_condition_does_not_count_as_limited() {
    let is_limited = |limits: &str, actions: &str| {
        let text = format!("domain: edge\ndescriptors: [{{key: generic_key, rate_limits: [{limits}]}}]\n");
        let rules = RuleSet::parse(&[Source::file("rules.yaml", text)], &LoadOptions::default()).unwrap();
        let files = Files::read(vec![Source::file("envoy.yaml", mesh("edge", actions))]).unwrap();
        let checked = check(&Configuration::of(&files), &rules);
        match &checked.sent[0].reach {
            Reach::Limited(_) => true,
            Reach::Conditional(reached, why) => {
                assert_eq!(reached.len(), 1);
                assert_eq!(why, "the limits of generic_key apply only when size(descriptors) > 1");
                false
            }
            other => panic!("{other:?}"),
        }
    };
    let conditional = "{unit: minute, requests_per_unit: 2, when: size(descriptors) > 1}";
    let constant = "[{generic_key: {descriptor_value: all}}]";
    let of_header = "[{request_headers: {header_name: x-key, descriptor_key: generic_key}}]";
    for actions in [constant, of_header] {
        assert!(!is_limited(conditional, actions), "{actions}");
        let with_another = format!("{conditional}, {{unit: hour, requests_per_unit: 9, name: hourly}}");
        assert!(is_limited(&with_another, actions), "{actions}");
    }
}

/// Whether rules have the descriptor or not: the server counts by the limit that the request states.
#[test]
fn a_descriptor_with_a_limit_of_its_own_needs_no_rule() {
    let own =
        "[{generic_key: {descriptor_value: zz}}], limit: {rate_limit: {requests_per_unit: 5, unit: MINUTE}}";
    let config = mesh("edge", own);
    for value in ["a", "zz"] {
        let text = limit(&[("generic_key", value)]);
        let rules = RuleSet::parse(&[Source::file("rules.yaml", text)], &LoadOptions::default()).unwrap();
        let files = Files::read(vec![Source::file("envoy.yaml", &config)]).unwrap();
        let checked = check(&Configuration::of(&files), &rules);
        let expected = RequestLimit { requests: 5, unit: Unit::Minute };
        assert!(
            matches!(checked.sent[0].reach, Reach::OfRequest(limit) if limit == expected),
            "{:?}",
            checked.sent
        );
        let mut findings = checked.findings.iter();
        assert!(!findings.any(|one| one.kind.name() == "descriptor-without-rule"), "{:?}", checked.findings);
    }
    // Without rules for the domain, the server has no limit.
    assert!(!unlimited(&limit(&[("a", "")]), &mesh("edges", own)).is_empty());
}
