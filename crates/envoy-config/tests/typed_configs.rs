//! Configurations of filters and routes within the messages that Envoy allows around them.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not see as such")]

use serde_json::{Value as Json, json};
use tidegate_core::rules::{LoadOptions, RuleSet, Source};
use tidegate_envoy_config::{
    Files,
    check::{Checked, Kind, Severity, check},
    configuration::Configuration,
    explain::{HttpRequest, Made, explain},
};

const RULES: &str = "\
domain: edge
descriptors:
  - key: generic_key
    value: per-user
    rate_limit: { unit: hour, requests_per_unit: 5 }
";

const RATE_LIMIT: &str = "envoy.extensions.filters.http.ratelimit.v3.RateLimit";
const PER_ROUTE: &str = "envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute";
const FILTER_CONFIG: &str = "envoy.config.route.v3.FilterConfig";
const MODULE_PER_ROUTE: &str = "envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilterPerRoute";
const MODULE: &str = "envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter";

fn typed(name: &str, mut message: Json) -> Json {
    message["@type"] = format!("type.googleapis.com/{name}").into();
    message
}

/// The `rate_limits` with one entry, which sends this value.
fn limits(value: &str) -> Json {
    json!([{"actions": [{"generic_key": {"descriptor_value": value}}]}])
}

/// The settings of a filter, with these entries.
fn settings(rate_limits: Json) -> Json {
    let service = json!({"transport_api_version": "V3", "grpc_service": {"envoy_grpc": {"cluster_name": "limits|mesh"}}});
    json!({"domain": "edge", "timeout": "1s", "rate_limit_service": service, "rate_limits": rate_limits})
}

/// A message within the message of a module.
fn wrapped(wrapper: &str, config: Json) -> Json {
    let module = json!({"name": "tidegate", "do_not_close": true});
    typed(
        wrapper,
        json!({"dynamic_module_config": module, "filter_name": "ratelimit", "filter_config": config}),
    )
}

fn ordinary(rate_limits: Json) -> Json {
    json!({"name": "plain", "typed_config": typed(RATE_LIMIT, settings(rate_limits))})
}

fn module(rate_limits: Json) -> Json {
    json!({"name": "module", "typed_config": wrapped(MODULE, typed(RATE_LIMIT, settings(rate_limits)))})
}

/// A listener with these filters, and a virtual host and a route with these fields in addition.
struct Listener {
    filters: Vec<Json>,
    host: Json,
    route: Json,
}

impl Listener {
    fn of(filters: impl IntoIterator<Item = Json>) -> Self {
        let route = json!({"match": {"prefix": "/"}, "route": {"cluster": "application"}});
        let host = json!({"name": "all", "domains": ["*"]});
        Self { filters: filters.into_iter().collect(), host, route }
    }

    fn files(&self) -> Files {
        let mut host = self.host.clone();
        host["routes"] = json!([self.route]);
        let config = json!({"filter_chains": [{"filters": [{"typed_config": {
            "use_remote_address": true,
            "http_filters": self.filters,
            "route_config": {"virtual_hosts": [host]},
        }}]}]});
        Files::read(vec![Source::file("envoy.yaml", config.to_string())]).unwrap()
    }

    /// The descriptors that it sends, and the sorted kinds of the findings except notes and the absent cluster.
    fn checked(&self) -> (Vec<String>, Vec<&'static str>) {
        let rules = RuleSet::parse(&[Source::file("rules.yaml", RULES)], &LoadOptions::default()).unwrap();
        let files = self.files();
        let Checked { sent, findings } = check(&Configuration::of(&files), &rules);
        let is_shown = |kind: &Kind| kind.severity() != Severity::Note && *kind != Kind::ClusterNotShown;
        let mut sent: Vec<String> =
            sent.into_iter().map(|one| format!("{} {}", one.domain, one.descriptor)).collect();
        sent.dedup();
        let mut kinds: Vec<&str> =
            findings.iter().map(|one| one.kind).filter(is_shown).map(Kind::name).collect();
        kinds.sort_unstable();
        (sent, kinds)
    }

    /// The kinds of its notes.
    fn notes(&self) -> Vec<&'static str> {
        let rules = RuleSet::parse(&[Source::file("rules.yaml", RULES)], &LoadOptions::default()).unwrap();
        let files = self.files();
        let findings = check(&Configuration::of(&files), &rules).findings;
        let kinds = findings.iter().map(|one| one.kind);
        kinds.filter(|kind| kind.severity() == Severity::Note).map(Kind::name).collect()
    }

    /// The descriptors of a request, and the reasons why entries are left out.
    fn explained(&self) -> (Vec<String>, Vec<String>) {
        let request: HttpRequest = "GET http://shop.example/".parse().unwrap();
        let files = self.files();
        let explained = explain(&Configuration::of(&files), None, &request);
        let [explained] = &*explained else { panic!("{explained:?}") };
        let mut made = Vec::new();
        for (filter, entry) in explained
            .filters
            .iter()
            .flat_map(|filter| filter.applied.iter().map(move |entry| (filter, entry)))
        {
            let Made::Descriptor(entries) = &entry.made else { panic!("{entry:?}") };
            made.extend(entries.iter().map(|(key, value)| format!("{} {key}={value}", filter.domain)));
        }
        let left_out = explained.filters.iter().flat_map(|filter| &filter.left_out);
        (made, left_out.map(|(_, _, why)| why.to_string()).collect())
    }
}

fn texts<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(str::to_owned).to_vec()
}

#[test]
fn a_module_does_not_apply_entries_of_routes_and_virtual_hosts() {
    let mut listener = Listener::of([module(json!([]))]);
    listener.route["route"]["rate_limits"] = limits("per-user");
    let unlimited = vec!["filter-without-entries", "not-seen-by-module", "rule-not-sent"];
    assert_eq!(listener.checked(), (vec![], unlimited.clone()));
    let (made, left_out) = listener.explained();
    assert!(made.is_empty() && left_out[0].starts_with("a module does not see"), "{made:?} {left_out:?}");
    let mut of_host = Listener::of([module(json!([]))]);
    of_host.host["rate_limits"] = limits("per-user");
    assert_eq!(of_host.checked(), (vec![], unlimited));
    // Entries of the filter are applied, and those of the route are lost nevertheless.
    listener.filters = vec![module(limits("per-user"))];
    assert_eq!(listener.checked(), (texts(["edge generic_key=per-user"]), vec!["not-seen-by-module"]));
}

#[test]
fn entries_of_routes_that_another_filter_applies_are_not_reported() {
    let mut listener = Listener::of([module(limits("per-user")), ordinary(json!([]))]);
    listener.route["route"]["rate_limits"] = limits("per-user");
    let (sent, findings) = listener.checked();
    assert_eq!((sent, findings), (texts(["edge generic_key=per-user"]), vec![]));
    // A module of the entry's stage is no filter that applies it.
    listener.filters[0]["typed_config"]["filter_config"]["stage"] = 3.into();
    listener.route["route"]["rate_limits"][0]["stage"] = 3.into();
    assert_eq!(listener.checked().1, ["stage-without-filter"]);
    // The module has no entries, although the route has some.
    let mut listener = Listener::of([module(json!([])), ordinary(json!([]))]);
    listener.route["route"]["rate_limits"] = limits("per-user");
    assert_eq!(listener.checked().1, ["filter-without-entries"]);
}

/// A `RateLimitPerRoute` with one entry, which sends this value.
fn per_route(value: &str) -> Json {
    typed(PER_ROUTE, json!({"rate_limits": limits(value)}))
}

#[test]
fn a_filter_does_not_read_what_routes_configure_for_the_other_kind() {
    let without = per_route("per-user");
    let within = wrapped(MODULE_PER_ROUTE, without.clone());
    for (filter, fitting, other) in
        [(module(json!([])), &within, &without), (ordinary(json!([])), &without, &within)]
    {
        let name = filter["name"].as_str().unwrap();
        for place in ["route", "host"] {
            let mut listener = Listener::of([filter.clone()]);
            let is_read = (texts(["edge generic_key=per-user"]), vec![]);
            let is_ignored = (vec![], vec!["per-route-of-other-kind", "rule-not-sent"]);
            for (config, expected) in [(fitting, is_read), (other, is_ignored)] {
                for config in [config.clone(), typed(FILTER_CONFIG, json!({"config": config}))] {
                    let part = if place == "route" { &mut listener.route } else { &mut listener.host };
                    part["typed_per_filter_config"] = json!({name: config});
                    assert_eq!(listener.checked(), expected, "{place} {config}");
                }
            }
            let (made, left_out) = listener.explained();
            assert!(made.is_empty() && left_out[0].contains("wrapped for a module"), "{made:?} {left_out:?}");
        }
        // It is reported only where it would apply.
        let mut listener = Listener::of([filter.clone()]);
        listener.host["typed_per_filter_config"] = json!({name: other});
        let disabled = typed(FILTER_CONFIG, json!({"disabled": true}));
        for (config, expected) in [(&disabled, vec!["rule-not-sent"]), (fitting, vec![])] {
            listener.route["typed_per_filter_config"] = json!({name: config});
            assert_eq!(listener.checked().1, expected);
        }
    }
}

#[test]
fn an_empty_configuration_enables_a_filter_and_hides_nothing() {
    let mut filter = ordinary(limits("other"));
    filter["disabled"] = true.into();
    let mut listener = Listener::of([filter]);
    listener.host["typed_per_filter_config"] = json!({"plain": per_route("per-user")});
    listener.route["typed_per_filter_config"] = json!({"plain": typed(FILTER_CONFIG, json!({"config": {}}))});
    assert_eq!(listener.explained().0, ["edge generic_key=per-user"]);
    // It enables what a less specific part disables.
    listener.host["typed_per_filter_config"] =
        json!({"plain": typed(FILTER_CONFIG, json!({"disabled": true}))});
    assert_eq!(listener.explained().0, ["edge generic_key=other"]);
    // What another message sets is hidden: Envoy reads the most specific alone.
    listener.host["typed_per_filter_config"] = json!({"plain": per_route("per-user")});
    let other = typed("envoy.extensions.filters.http.buffer.v3.BufferPerRoute", json!({"disabled": true}));
    listener.route["typed_per_filter_config"] = json!({"plain": other});
    assert_eq!(listener.explained().0, ["edge generic_key=other"]);
}

/// A message in a `TypedStruct` of this type.
fn in_typed_struct(name: &str, mut message: Json) -> Json {
    let url = message["@type"].take();
    message.as_object_mut().unwrap().remove("@type");
    typed(name, json!({"type_url": url, "value": message}))
}

/// The fields of a message, in a `Struct` that does not state its name.
fn in_struct(mut message: Json) -> Json {
    message.as_object_mut().unwrap().remove("@type");
    typed("google.protobuf.Struct", json!({"value": message}))
}

#[test]
fn messages_in_a_typed_struct_are_read() {
    for name in ["xds.type.v3.TypedStruct", "udpa.type.v1.TypedStruct"] {
        for (mut filter, route) in [
            (ordinary(limits("of-filter")), per_route("per-user")),
            (module(limits("of-filter")), wrapped(MODULE_PER_ROUTE, per_route("per-user"))),
        ] {
            filter["typed_config"] = in_typed_struct(name, filter["typed_config"].take());
            let name_of_filter = filter["name"].clone();
            let mut listener = Listener::of([filter]);
            let unlimited = vec!["descriptor-without-rule", "rule-not-sent"];
            assert_eq!(listener.checked(), (texts(["edge generic_key=of-filter"]), unlimited));
            let own = json!({name_of_filter.as_str().unwrap(): in_typed_struct(name, route)});
            listener.route["typed_per_filter_config"] = own;
            assert_eq!(listener.checked(), (texts(["edge generic_key=per-user"]), vec![]));
        }
    }
}

#[test]
fn a_struct_is_the_message_of_its_place_in_the_module() {
    let mut listener = Listener::of([module(limits("of-filter"))]);
    let filter = &mut listener.filters[0]["typed_config"];
    filter["filter_config"] = in_struct(filter["filter_config"].take());
    let unlimited = vec!["descriptor-without-rule", "rule-not-sent"];
    let without_rule = (texts(["edge generic_key=of-filter"]), unlimited);
    assert_eq!(listener.checked(), without_rule);
    let own = json!({"module": wrapped(MODULE_PER_ROUTE, in_struct(per_route("per-user")))});
    listener.route["typed_per_filter_config"] = own;
    assert_eq!(listener.checked(), (texts(["edge generic_key=per-user"]), vec![]));
    listener.route["typed_per_filter_config"] = json!({});
    // A file instead of a name.
    let name = &mut listener.filters[0]["typed_config"]["dynamic_module_config"];
    *name = json!({"module": {"local": {"filename": "/usr/lib/libtidegate.so"}}});
    assert_eq!(listener.checked(), without_rule);
    // Another module has settings of its own.
    let name = &mut listener.filters[0]["typed_config"]["dynamic_module_config"];
    *name = json!({"name": "authentication"});
    assert_eq!(listener.checked(), (vec![], vec![]));
}

#[test]
fn what_is_in_a_form_that_is_not_read_is_neither_limited_nor_unlimited() {
    let opaque = [
        typed("google.protobuf.StringValue", json!({"value": "{}"})),
        typed("google.protobuf.Struct", json!({"domain": "edge"})),
    ];
    for config in opaque {
        let filters = [json!({"name": "module", "typed_config": wrapped(MODULE, config.clone())})];
        let mut listener = Listener::of(filters);
        assert_eq!(listener.checked(), (vec![], vec!["not-evaluated"]));
        assert!(listener.notes().is_empty(), "{:?}", listener.notes());
        listener.filters = vec![module(limits("per-user"))];
        let own = json!({"module": wrapped(MODULE_PER_ROUTE, config)});
        listener.route["typed_per_filter_config"] = own;
        assert_eq!(listener.checked(), (vec![], vec!["not-evaluated"]));
        assert!(listener.notes().is_empty(), "{:?}", listener.notes());
        let (made, left_out) = listener.explained();
        assert!(made.is_empty() && left_out[0].contains("not read here"), "{made:?} {left_out:?}");
    }
}

#[test]
fn the_example_for_istio_sends_its_descriptor() {
    let page = include_str!("../../../docs/envoy-module.md");
    let example = page.split("```yaml\n").find(|block| block.contains("kind: EnvoyFilter")).unwrap();
    let example = example.split("```").next().unwrap();
    let rules = "domain: edge\ndescriptors:\n  - key: api_key\n    rate_limit: { unit: second, requests_per_unit: 1 }\n";
    let rules = RuleSet::parse(&[Source::file("rules.yaml", rules)], &LoadOptions::default()).unwrap();
    let unlimited = |text: String| {
        let files = Files::read(vec![Source::file("envoyfilter.yaml", text)]).unwrap();
        let findings = check(&Configuration::of(&files), &rules).findings;
        findings
            .iter()
            .map(|one| one.kind)
            .filter(|kind| kind.severity() == Severity::Unlimited)
            .map(Kind::name)
            .collect::<Vec<_>>()
    };
    assert_eq!(unlimited(example.to_owned()), [""; 0]);
    let domain = example.replace("domain: edge", "domain: egde");
    assert_eq!(unlimited(domain), ["domain-without-rules"]);
    let key = example.replace("descriptor_key: api_key", "descriptor_key: apikey");
    assert_eq!(unlimited(key), ["descriptor-without-rule"]);
}
