//! Mistakes in configurations and rules, each found at its line.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not see as such")]

use std::collections::BTreeSet;
use tidegate_core::rules::{LoadOptions, RuleSet, Source};
use tidegate_envoy_config::{
    Files,
    check::{Finding, Kind, Severity, check},
    configuration::Configuration,
    explain::{HttpRequest, explain},
};

const RULES: &str = "\
domain: edge
descriptors:
  - key: remote_address
    rate_limit: { unit: second, requests_per_unit: 10 }
";

/// A configuration without a mistake.
const CONFIG: &str = r#"
static_resources:
  listeners:
    - name: edge
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                use_remote_address: true
                http_filters:
                  - name: envoy.filters.http.ratelimit
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
                      domain: edge
                      timeout: 0.25s
                      rate_limit_service:
                        transport_api_version: V3
                        grpc_service: { envoy_grpc: { cluster_name: tidegate } }
                  - name: envoy.filters.http.router
                    typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes:
                        - match: { prefix: / }
                          route:
                            cluster: application
                            rate_limits:
                              - actions: [{ remote_address: {} }]
  clusters:
    - name: application
      load_assignment: { endpoints: [{ lb_endpoints: [{ endpoint: {} }] }] }
    - name: tidegate
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          explicit_http_config: { http2_protocol_options: {} }
      load_assignment: { endpoints: [{ lb_endpoints: [{ endpoint: {} }] }] }
"#;

const ENTRY: &str = "- actions: [{ remote_address: {} }]";
const PER_ROUTE: &str =
    r#""@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute"#;

/// The part of the configuration from the first text up to the second, or to its end.
fn between(from: &str, to: &str) -> &'static str {
    let at = |text: &str| CONFIG.find(text).expect("it is in the configuration");
    &CONFIG[at(from)..if to.is_empty() { CONFIG.len() } else { at(to) }]
}

/// The findings for rules and a configuration.
fn findings(rules: &str, config: &str) -> Vec<Finding> {
    let rules = RuleSet::parse(&[Source::file("rules.yaml", rules)], &LoadOptions::default())
        .unwrap_or_else(|errors| panic!("{errors}\n{rules}"));
    let files = Files::read(vec![Source::file("envoy.yaml", config)])
        .unwrap_or_else(|errors| panic!("{errors}\n{config}"));
    check(&Configuration::of(&files), &rules).findings
}

/// The line that has `# HERE`, of rules or of the configuration.
fn marked(rules: &str, config: &str) -> String {
    let line = |text: &str| text.lines().position(|line| line.contains("# HERE")).map(|index| index + 1);
    match (line(rules), line(config)) {
        (Some(line), None) => format!("rules.yaml:{line}:"),
        (None, Some(line)) => format!("envoy.yaml:{line}:"),
        other => panic!("one mark is needed: {other:?}\n{config}"),
    }
}

/// A mistake: its kind, and what has it.
struct Mistake {
    kind: Kind,
    rules: String,
    config: String,
}

fn edited(text: &str, edits: &[(&str, &str)]) -> String {
    edits.iter().fold(text.to_owned(), |text, (from, to)| {
        assert!(text.contains(from), "{from:?} is not in\n{text}");
        text.replacen(from, to, 1)
    })
}

fn in_config(kind: Kind, edits: &[(&str, &str)]) -> Mistake {
    Mistake { kind, rules: RULES.to_owned(), config: edited(CONFIG, edits) }
}

fn in_both(kind: Kind, rules: &str, edits: &[(&str, &str)]) -> Mistake {
    Mistake { kind, rules: rules.to_owned(), config: edited(CONFIG, edits) }
}

/// The route's entries in a `RateLimitPerRoute` instead.
fn per_route(name: &str, entries: &str) -> String {
    format!(
        "cluster: application\n                          typed_per_filter_config:\n                            {name}:\n                              \
         {PER_ROUTE}\n                              rate_limits:\n                                {entries}"
    )
}

fn mistakes() -> Vec<Mistake> {
    use Kind::*;
    let entries = "cluster: application\n                            rate_limits:\n                              - actions: [{ remote_address: {} }]";
    let slots = "domain: edge\ndescriptors:\n  - key: remote_address\n    rate_limit: { algorithm: concurrency, requests_in_flight: 3, max_hold: 60s }\n";
    let second_endpoint = "explicit_http_config: { http2_protocol_options: {} }\n      load_assignment: { endpoints: [{ lb_endpoints: [{ endpoint: {} }, { endpoint: {} }] }] }";
    let one_endpoint = "explicit_http_config: { http2_protocol_options: {} }\n      load_assignment: { endpoints: [{ lb_endpoints: [{ endpoint: {} }] }] }";
    let hits = per_route(
        "envoy.filters.http.ratelimit",
        "- actions: [{ remote_address: {} }] # HERE\n                                  apply_on_stream_done: true",
    );
    let ticket = per_route(
        "envoy.filters.http.ratelimit",
        "- actions: [{ remote_address: {} }]\n                                - { apply_on_stream_done: true, actions: [{ metadata: { descriptor_key: ticket, metadata_key: { key: envoy.filters.http.ratelimit, path: [{ key: slot }] } } }] } # HERE",
    );
    let other_name = per_route("rate_limit", "- actions: [{ remote_address: {} }]")
        .replace(PER_ROUTE, &format!("{PER_ROUTE} # HERE"));
    let stage_per_route =
        per_route("envoy.filters.http.ratelimit", "- { stage: 1, actions: [{ remote_address: {} }] } # HERE");
    let both = format!(
        "{entries} # HERE\n                          typed_per_filter_config:\n                            envoy.filters.http.ratelimit: {{ {PER_ROUTE}, rate_limits: [{{ actions: [{{ remote_address: {{}} }}] }}] }}"
    );
    let answered = format!(
        "direct_response: {{ status: 200 }}\n                          typed_per_filter_config:\n                            envoy.filters.http.ratelimit: {{ {PER_ROUTE}, rate_limits: [{{ actions: [{{ remote_address: {{}} }}] }}] }} # HERE"
    );
    let shadow =
        RULES.replace("- key: remote_address", "- key: remote_address # HERE\n    shadow_mode: true");
    let many = |action: &str, count: usize| {
        let entry =
            format!("- actions: [{{ remote_address: {{}} }}, {action}]\n                              ");
        entry.repeat(count) + ENTRY
    };
    let many_headers = many("{ request_headers: { header_name: x-key, descriptor_key: key } }", 18);
    let two_headers = many("{ request_headers: { header_name: x-key, descriptor_key: key } }", 2);
    let many_entries = many("{ generic_key: { descriptor_value: all } }", 100);
    vec![
        in_config(DomainWithoutRules, &[("domain: edge", "domain: test-edge # HERE")]),
        in_config(
            DomainMissing,
            &[(
                "\"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit\n                      domain: edge",
                "\"@type\": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit # HERE",
            )],
        ),
        in_config(
            DescriptorWithoutRule,
            &[(ENTRY, "- actions: [{ generic_key: { descriptor_value: all } }] # HERE")],
        ),
        in_both(
            DescriptorEndsEarly,
            "domain: edge\ndescriptors:\n  - key: remote_address\n    descriptors:\n      - key: path\n        rate_limit: { unit: second, requests_per_unit: 10 }\n",
            &[(ENTRY, "- actions: [{ remote_address: {} }] # HERE")],
        ),
        in_both(
            RuleNotSent,
            &format!(
                "{RULES}  - key: api_key # HERE\n    rate_limit: {{ unit: second, requests_per_unit: 1 }}\n"
            ),
            &[],
        ),
        in_both(
            EmptyDescriptor,
            &RULES.replace("remote_address", "key"),
            &[(
                ENTRY,
                "- actions: [{ request_headers: { header_name: x-key, descriptor_key: key, skip_if_absent: true } }] # HERE",
            )],
        ),
        in_config(
            OnlyAtEnd,
            &[(
                &format!("route:\n                            {entries}"),
                &format!(
                    "route: {{ {} }}{}",
                    "cluster: application",
                    hits.trim_start_matches("cluster: application")
                ),
            )],
        ),
        in_both(TicketNotReturned, slots, &[(ENTRY, "- actions: [{ remote_address: {} }] # HERE")]),
        in_both(
            TicketKey,
            slots,
            &[(
                &format!("route:\n                            {entries}"),
                &format!(
                    "route: {{ cluster: application }}{}",
                    ticket.trim_start_matches("cluster: application")
                ),
            )],
        ),
        in_config(
            FilterAbsent,
            &[
                (
                    between(
                        "                  - name: envoy.filters.http.ratelimit",
                        "                  - name: envoy.filters.http.router",
                    ),
                    "",
                ),
                (ENTRY, "- actions: [{ remote_address: {} }] # HERE"),
            ],
        ),
        in_config(
            FilterWithoutEntries,
            &[
                (between("                            rate_limits:\n", "  clusters:"), ""),
                ("- name: envoy.filters.http.ratelimit", "- name: envoy.filters.http.ratelimit # HERE"),
            ],
        ),
        in_config(
            FilterAfterRouter,
            &[
                (
                    "http_filters:\n",
                    "http_filters:\n                  - name: envoy.filters.http.router\n                    typed_config: { \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }\n",
                ),
                ("- name: envoy.filters.http.ratelimit", "- name: envoy.filters.http.ratelimit # HERE"),
            ],
        ),
        in_config(
            FilterDisabled,
            &[(
                "- name: envoy.filters.http.ratelimit",
                "- name: envoy.filters.http.ratelimit\n                    disabled: true # HERE",
            )],
        ),
        in_config(
            FilterPartly,
            &[(
                "timeout: 0.25s",
                "timeout: 0.25s\n                      filter_enforced: { default_value: { numerator: 5 } } # HERE",
            )],
        ),
        in_config(
            FilterVersion2,
            &[(
                "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit",
                "type.googleapis.com/envoy.config.filter.http.rate_limit.v2.RateLimit # HERE",
            )],
        ),
        in_config(
            FilterOtherName,
            &[(
                &format!("route:\n                            {entries}"),
                &format!(
                    "route: {{ cluster: application }}{}",
                    other_name.trim_start_matches("cluster: application")
                ),
            )],
        ),
        in_config(StageWithoutFilter, &[(ENTRY, "- { stage: 2, actions: [{ remote_address: {} }] } # HERE")]),
        in_config(
            StageNotSupported,
            &[(
                &format!("route:\n                            {entries}"),
                &format!(
                    "route: {{ cluster: application }}{}",
                    stage_per_route.trim_start_matches("cluster: application")
                ),
            )],
        ),
        in_config(
            HitsIgnored,
            &[(
                ENTRY,
                "- actions: [{ remote_address: {} }]\n                                hits_addend: { number: 5 } # HERE",
            )],
        ),
        in_config(
            EntryWithoutActions,
            &[(
                ENTRY,
                "- actions: [{ remote_address: {} }]\n                              - { stage: 0 } # HERE",
            )],
        ),
        in_config(RouteAnswered, &[(&format!("route:\n                            {entries}"), &answered)]),
        in_config(
            RouteNeverReached,
            &[(
                "- match: { prefix: / }",
                "- { match: { prefix: / }, route: { cluster: application } }\n                        - match: { prefix: /api } # HERE",
            )],
        ),
        in_config(EntryReplaced, &[(entries, &both)]),
        in_config(
            TimeoutDefault,
            &[
                ("ratelimit.v3.RateLimit\n", "ratelimit.v3.RateLimit # HERE\n"),
                ("                      timeout: 0.25s\n", ""),
            ],
        ),
        in_config(
            TimeoutIgnored,
            &[
                ("                      timeout: 0.25s\n", ""),
                (
                    "{ envoy_grpc: { cluster_name: tidegate } }",
                    "{ timeout: 1s, envoy_grpc: { cluster_name: tidegate } } # HERE",
                ),
            ],
        ),
        in_config(
            TimeoutRefuses,
            &[
                ("ratelimit.v3.RateLimit\n", "ratelimit.v3.RateLimit # HERE\n"),
                ("timeout: 0.25s", "failure_mode_deny: true"),
            ],
        ),
        in_config(TimeoutZero, &[("timeout: 0.25s", "timeout: 0s # HERE")]),
        in_config(
            ServiceMissing,
            &[
                (
                    between(
                        "                      rate_limit_service:",
                        "                  - name: envoy.filters.http.router",
                    ),
                    "",
                ),
                ("ratelimit.v3.RateLimit\n", "ratelimit.v3.RateLimit # HERE\n"),
            ],
        ),
        in_config(ServiceVersion, &[("transport_api_version: V3", "transport_api_version: V2 # HERE")]),
        in_config(ClusterMissing, &[("cluster_name: tidegate } }", "cluster_name: ratelimit } } # HERE")]),
        in_config(
            ClusterWithoutHttp2,
            &[
                ("- name: tidegate", "- name: tidegate # HERE"),
                (
                    "explicit_http_config: { http2_protocol_options: {} }",
                    "explicit_http_config: { http_protocol_options: {} }",
                ),
            ],
        ),
        in_config(
            ClusterWithoutEndpoints,
            &[
                ("- name: tidegate", "- name: tidegate # HERE"),
                (
                    one_endpoint,
                    "explicit_http_config: { http2_protocol_options: {} }\n      load_assignment: { endpoints: [] }",
                ),
            ],
        ),
        in_config(
            ClusterNotChecked,
            &[("- name: tidegate", "- name: tidegate # HERE"), (one_endpoint, second_endpoint)],
        ),
        in_config(
            NetworkFilterAfterLast,
            &[(
                "        - filters:\n",
                "        - filters:\n            - { name: tcp, typed_config: { \"@type\": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy } }\n            - name: limit\n              typed_config: { \"@type\": type.googleapis.com/envoy.extensions.filters.network.ratelimit.v3.RateLimit, domain: edge, timeout: 1s, rate_limit_service: { transport_api_version: V3, grpc_service: { envoy_grpc: { cluster_name: tidegate } } }, descriptors: [] } # HERE\n",
            )],
        ),
        in_config(NotEvaluated, &[(ENTRY, "- actions: [{ extension: { name: expr } }] # HERE")]),
        in_config(
            RoutesNotShown,
            &[
                (
                    between("                route_config:", "  clusters:"),
                    "                rds: { route_config_name: elsewhere }\n",
                ),
                ("HttpConnectionManager\n", "HttpConnectionManager # HERE\n"),
            ],
        ),
        in_config(
            FilterNotShown,
            &[
                (between("", "                  virtual_hosts:"), ""),
                (between("  clusters:", ""), ""),
                (ENTRY, "- actions: [{ remote_address: {} }] # HERE"),
            ],
        ),
        in_config(
            ClusterNotShown,
            &[(
                "cluster_name: tidegate } }",
                "cluster_name: outbound|8081||ratelimit.default.svc.cluster.local } } # HERE",
            )],
        ),
        in_both(
            SomeValues,
            &RULES.replace("- key: remote_address", "- key: remote_address\n    value: 192.0.2.7"),
            &[(ENTRY, "- actions: [{ remote_address: {} }] # HERE")],
        ),
        in_config(
            LimitOfRequest,
            &[(
                ENTRY,
                "- actions: [{ remote_address: {} }]\n                                limit: { dynamic_metadata: {} } # HERE",
            )],
        ),
        in_both(
            PathWithQuery,
            &RULES.replace("remote_address", "path"),
            &[(
                ENTRY,
                "- actions: [{ request_headers: { header_name: \":path\", descriptor_key: path } }] # HERE",
            )],
        ),
        in_config(
            HostReplaced,
            &[(
                "domains: [\"*\"]",
                "domains: [\"*\"]\n                      rate_limits: [{ actions: [{ remote_address: {} }] }] # HERE",
            )],
        ),
        in_both(
            MissingPart,
            &RULES.replace("remote_address", "key"),
            &[(
                ENTRY,
                "- actions: [{ request_headers: { header_name: x-key, descriptor_key: key } }] # HERE",
            )],
        ),
        in_config(
            OtherOrigin,
            &[("timeout: 0.25s", "timeout: 0.25s\n                      request_type: external # HERE")],
        ),
        in_config(
            CanBeDisabled,
            &[(ENTRY, "- { disable_key: one, actions: [{ remote_address: {} }] } # HERE")],
        ),
        in_both(ShadowRule, &shadow, &[]),
        in_config(
            ClusterBreaker,
            &[(
                one_endpoint,
                &format!(
                    "{one_endpoint}\n      circuit_breakers: {{ thresholds: [{{ priority: HIGH, max_requests: 1 }}, {{ max_requests: 1000 }}] }} # HERE"
                ),
            )],
        ),
        in_config(
            RequestTooLarge,
            &[(ENTRY, &many_headers), ("- match: { prefix: / }", "- match: { prefix: / } # HERE")],
        ),
        in_config(
            RequestTooLarge,
            &[(ENTRY, &many_entries), ("- match: { prefix: / }", "- match: { prefix: / } # HERE")],
        ),
        // The product of the lists and this number has more than 64 bits.
        in_config(
            RequestTooLarge,
            &[
                (ENTRY, &two_headers),
                ("- match: { prefix: / }", "- match: { prefix: / } # HERE"),
                (
                    "use_remote_address: true\n",
                    "use_remote_address: true\n                max_request_headers_kb: 18446744073709551615\n",
                ),
            ],
        ),
        in_config(
            RuntimeDisables,
            &[(
                "static_resources:",
                "layered_runtime:\n  layers:\n    - static_layer: { ratelimit.http_filter_enforcing: 100 }\n    - static_layer: { ratelimit: { http_filter_enforcing: 0 } } # HERE\nstatic_resources:",
            )],
        ),
        in_config(
            RuntimeDisables,
            &[
                (
                    "static_resources:",
                    "layered_runtime: { layers: [{ static_layer: { ratelimit.one.http_filter_enabled: { numerator: 5 } } }] } # HERE\nstatic_resources:",
                ),
                (ENTRY, "- { disable_key: one, actions: [{ remote_address: {} }] }"),
            ],
        ),
        in_config(
            UpgradeWithoutFilter,
            &[(
                "use_remote_address: true\n",
                "use_remote_address: true\n                upgrade_configs:\n                  - { upgrade_type: websocket, filters: [{ name: envoy.filters.http.router }] } # HERE\n",
            )],
        ),
        in_config(
            RouteWithoutEntries,
            &[(
                "- name: all\n",
                "- { name: other, domains: [other.example], routes: [{ match: { prefix: / }, route: { cluster: application } }] } # HERE\n                    - name: all\n",
            )],
        ),
        in_config(
            DisabledHere,
            &[(
                "cluster: application\n",
                "weighted_clusters: { clusters: [{ name: application, weight: 1, typed_per_filter_config: { envoy.filters.http.ratelimit: { \"@type\": type.googleapis.com/envoy.config.route.v3.FilterConfig, disabled: true } } }] } # HERE\n",
            )],
        ),
        in_config(
            AddressOfHeader,
            &[
                ("HttpConnectionManager\n", "HttpConnectionManager # HERE\n"),
                ("                use_remote_address: true\n", ""),
            ],
        ),
        in_config(
            HitsOfClient,
            &[(
                &format!("route:\n                            {entries}"),
                &format!(
                    "route: {{ cluster: application }}{}",
                    per_route(
                        "envoy.filters.http.ratelimit",
                        "- actions: [{ remote_address: {} }]\n                                  hits_addend: { format: '%REQ(x-cost)%' } # HERE",
                    )
                    .trim_start_matches("cluster: application")
                ),
            )],
        ),
        // The domain of a route, and of the filter of quotas.
        in_config(
            DomainWithoutRules,
            &[(
                &format!("route:\n                            {entries}"),
                &format!(
                    "typed_per_filter_config: {{ envoy.filters.http.ratelimit: {{ {PER_ROUTE}, domain: edges }} }} # HERE\n                          route:\n                            {entries}"
                ),
            )],
        ),
        in_config(
            DomainWithoutRules,
            &[(
                "http_filters:\n",
                "http_filters:\n                  - { name: quota, typed_config: { \"@type\": type.googleapis.com/envoy.extensions.filters.http.rate_limit_quota.v3.RateLimitQuotaFilterConfig, domain: edges } } # HERE\n",
            )],
        ),
        in_config(
            NotEvaluated,
            &[(
                between("                      routes:", "  clusters:"),
                "                      matcher: { matcher_tree: {} } # HERE\n",
            )],
        ),
    ]
}

#[test]
fn a_configuration_without_a_mistake_has_no_finding() {
    let found: Vec<String> = findings(RULES, CONFIG).iter().map(|one| format!("{one:?}")).collect();
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn each_mistake_is_found_at_its_line() {
    let mut kinds = BTreeSet::new();
    for Mistake { kind, rules, config } in mistakes() {
        let at = marked(&rules, &config);
        let found = findings(&rules, &config);
        let here = found.iter().any(|one| one.kind == kind && one.at.to_string().starts_with(&at));
        let all: Vec<String> =
            found.iter().map(|one| format!("{} {}: {}", one.at, one.kind.name(), one.message)).collect();
        assert!(here, "{} is not found at {at} but\n{}\nin\n{config}", kind.name(), all.join("\n"));
        kinds.insert(kind);
    }
    let graves = kinds.iter().filter(|kind| kind.severity() == Severity::Unlimited).count();
    assert!(graves >= 25, "{graves}");
    // Of several files: see below.
    kinds.insert(Kind::DomainNotSent);
    let missing: Vec<&str> =
        Kind::ALL.iter().filter(|kind| !kinds.contains(kind)).map(|kind| kind.name()).collect();
    assert!(missing.is_empty(), "no mistake is of these kinds: {missing:?}");
}

/// Routes that a matcher chooses may have entries: that nothing is sent is not known.
#[test]
fn routes_of_a_matcher_are_not_said_to_have_no_limit() {
    let config = CONFIG.replace(
        between("                      routes:", "  clusters:"),
        "                      matcher: { matcher_tree: {} }\n",
    );
    let found: Vec<&str> = findings(RULES, &config).iter().map(|one| one.kind.name()).collect();
    assert_eq!(found, ["not-evaluated"]);
}

/// A weighted cluster's configuration of the filter replaces that of its route.
#[test]
fn a_request_is_explained_with_the_configuration_of_its_weighted_cluster() {
    let disabled = "typed_per_filter_config: { envoy.filters.http.ratelimit: { \"@type\": type.googleapis.com/envoy.config.route.v3.FilterConfig, disabled: true } }";
    let clusters = |second: &str| {
        let first = format!("{{ name: a, weight: 1, {disabled} }}");
        let all = format!("weighted_clusters: {{ clusters: [{first}{second}] }}");
        CONFIG.replacen("cluster: application", &all, 1)
    };
    let request: HttpRequest = "GET https://shop.example/".parse().unwrap();
    let of = |config: String| {
        let files = Files::read(vec![Source::file("envoy.yaml", config)]).unwrap();
        let configuration = Configuration::of(&files);
        let explained = explain(&configuration, None, &request);
        let applied = explained[0].filters[0].applied.len();
        (applied, explained[0].unknown.len())
    };
    assert_eq!(of(clusters("")), (0, 0));
    assert_eq!(of(clusters(", { name: b, weight: 1 }")), (1, 1));
}

#[test]
fn a_domain_that_nothing_sends_is_a_note() {
    let other = Source::file(
        "other.yaml",
        "domain: other\ndescriptors:\n  - key: k\n    rate_limit: { unit: second, requests_per_unit: 1 }\n",
    );
    let rules = RuleSet::parse(&[Source::file("rules.yaml", RULES), other], &LoadOptions::default()).unwrap();
    let files = Files::read(vec![Source::file("envoy.yaml", CONFIG)]).unwrap();
    let found = check(&Configuration::of(&files), &rules).findings;
    let lines: Vec<String> = found.iter().map(|one| format!("{} {}", one.at, one.kind.name())).collect();
    assert_eq!(lines, ["other.yaml:3:5 domain-not-sent"]);
}

/// Configurations of other versions, and damaged ones: whatever is left is read, and nothing panics.
#[test]
fn no_configuration_makes_the_check_panic() {
    let rules = RuleSet::parse(&[Source::file("rules.yaml", RULES)], &LoadOptions::default()).unwrap();
    let request: HttpRequest = "GET https://shop.example/api?q=1".parse().unwrap();
    let lines: Vec<&str> = CONFIG.lines().collect();
    let without = |removed: usize| {
        let left = lines.iter().enumerate().filter(|(index, _)| *index != removed);
        left.map(|(_, line)| format!("{line}\n")).collect::<String>()
    };
    let other_values = ["[1, 2]", "{ a: b }", "-1", "'%'", "~", "18446744073709551616"];
    let changed = |text: &str| {
        lines
            .iter()
            .enumerate()
            .map(|(index, line)| {
                let (name, _) = line.split_once(": ").unwrap_or((line, ""));
                let changed = format!("{}{name}: {text}\n", joined(&lines[..index]));
                changed + &joined(&lines[index + 1..])
            })
            .collect::<Vec<String>>()
    };
    let all = (0..lines.len()).map(without).chain(other_values.iter().flat_map(|text| changed(text)));
    let mut read = 0;
    for text in all {
        let Ok(files) = Files::read(vec![Source::file("envoy.yaml", text)]) else { continue };
        let configuration = Configuration::of(&files);
        let _ = check(&configuration, &rules);
        let _ = explain(&configuration, None, &request);
        read += 1;
    }
    assert!(read > lines.len(), "only {read} were YAML");
}

fn joined(lines: &[&str]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}
