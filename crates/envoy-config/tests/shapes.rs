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

/// An EnvoyFilter with this namespace, selector and match, of a filter with this domain, or of a virtual host with this descriptor.
fn patch((namespace, selector, matched): (&str, &str, &str), adds: Adds) -> String {
    let (apply_to, value) = match adds {
        Adds::Filter(domain) => (
            "HTTP_FILTER",
            format!(
                r#"{{ name: envoy.filters.http.ratelimit, typed_config: {{
                   "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit, domain: {domain}, timeout: 1s,
                   rate_limit_service: {{ transport_api_version: V3, grpc_service: {{ envoy_grpc: {{ cluster_name: "a|b" }} }} }} }} }}"#
            ),
        ),
        Adds::Entry(value) => (
            "VIRTUAL_HOST",
            format!(
                "{{ rate_limits: [{{ actions: [{{ generic_key: {{ descriptor_value: {value} }} }}] }}] }}"
            ),
        ),
    };
    format!(
        "kind: EnvoyFilter\nmetadata: {{ name: a, namespace: {namespace} }}\nspec:\n  {selector}\n  configPatches:\n  - \
         {{ applyTo: {apply_to}, match: {{ {matched} }}, patch: {{ value: {value} }} }}\n---\n"
    )
}

/// The addition of a patch.
#[derive(Clone, Copy)]
enum Adds {
    Filter(&'static str),
    Entry(&'static str),
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

/// A filter applies the entries of its own workloads only.
#[test]
fn patches_apply_to_the_workloads_of_their_namespace_and_selector() {
    let rules = |domain: &str, value: &str| {
        Source::file(
            domain,
            limit(&[("generic_key", value)]).replace("domain: edge", &format!("domain: {domain}")),
        )
    };
    let rules = RuleSet::parse(&[rules("one", "a"), rules("two", "b")], &LoadOptions::default()).unwrap();
    let of = |patches: &[((&str, &str, &str), Adds)]| {
        let text: String = patches.iter().map(|(scope, adds)| patch(*scope, *adds)).collect();
        let files = Files::read(vec![Source::file("envoy.yaml", text)]).unwrap();
        let checked = check(&Configuration::of(&files), &rules);
        let mut sent: Vec<_> =
            checked.sent.iter().map(|sent| format!("{}: {}", sent.domain, sent.descriptor)).collect();
        sent.sort();
        let mut kinds: Vec<_> = checked.findings.iter().map(|one| one.kind.name()).collect();
        kinds.retain(|kind| !["domain-not-sent", "cluster-not-shown"].contains(kind));
        (sent.join("; "), kinds.join(", "))
    };
    let is = |sent: &str, kinds: &str| (sent.to_owned(), kinds.to_owned());
    let labels = |app: &str| format!("workloadSelector: {{ labels: {{ app: {app} }} }}");
    let (cart, shop) = (&*labels("cart"), &*labels("shop"));
    let (one, two) = (Adds::Filter("one"), Adds::Filter("two"));
    let (a, b) = (Adds::Entry("a"), Adds::Entry("b"));
    let both = "one: generic_key=a; two: generic_key=b";
    // Two domains in one mesh.
    for ((first, second), (of_one, of_two)) in [
        (("one", "two"), ("", "")),
        (("one", "one"), (cart, shop)),
        (("istio-system", "istio-system"), (cart, shop)),
        (
            ("one", "one"),
            ("targetRefs: [{ kind: Gateway, name: x }]", "targetRefs: [{ kind: Gateway, name: y }]"),
        ),
    ] {
        let (first, second) = ((first, of_one, ""), (second, of_two, ""));
        assert_eq!(of(&[(first, one), (first, a), (second, two), (second, b)]), is(both, ""));
    }
    let (gateway, inbound) = (("one", "", "context: GATEWAY"), ("one", "", "context: SIDECAR_INBOUND"));
    assert_eq!(of(&[(gateway, one), (gateway, a), (inbound, two), (inbound, b)]), is(both, ""));
    // Entries of workloads without the filter.
    let (sent, kinds) = of(&[(("one", cart, ""), one), (("one", shop, ""), a)]);
    assert!(sent.is_empty() && kinds.contains("filter-not-shown"), "{sent} {kinds}");
    // A scope without a selector has all workloads of its namespace, and the root namespace has those of all.
    let alone = "one: generic_key=a";
    for (filter, entry) in [
        (("one", cart, ""), ("one", "", "")),
        (("one", "", "context: ANY"), ("one", cart, "context: GATEWAY")),
        (("istio-system", "", ""), ("one", cart, "")),
        (("one", cart, ""), ("istio-system", cart, "context: GATEWAY")),
    ] {
        assert_eq!(of(&[(filter, one), (entry, a)]), is(alone, ""), "{filter:?} {entry:?}");
    }
}
