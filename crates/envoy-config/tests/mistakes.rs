//! Mistakes in configurations and rules, each found at its line.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not see as such")]

use std::collections::BTreeSet;
use tidegate_core::rules::{LoadOptions, RuleSet, Source};
use tidegate_envoy_config::{
    Files,
    check::{Finding, Kind, Severity, check},
    configuration::Configuration,
    explain::{HttpRequest, Made, explain},
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

/// A mistake: its kind, and the changes that make it.
struct Mistake {
    kind: Kind,
    rules: String,
    config: String,
}

/// The mistakes of `mistakes.diff`: each `== kind` is followed by its changes to the files without a mistake.
fn mistakes() -> impl Iterator<Item = Mistake> {
    let sections = include_str!("mistakes.diff").split("== ").skip(1);
    sections.map(|section| {
        let (heading, changes) = section.split_once('\n').expect("a heading");
        let (name, _) = heading.split_once(": ").unwrap_or((heading, ""));
        let kind = Kind::ALL.iter().find(|kind| kind.name() == name).expect(name);
        let mut mistake = Mistake { kind: *kind, rules: RULES.to_owned(), config: CONFIG.to_owned() };
        for change in changes.split("@@ ").skip(1) {
            let (file, lines) = change.split_once('\n').expect("the name of a file");
            let text = if file == "rules.yaml" { &mut mistake.rules } else { &mut mistake.config };
            *text = changed(text, lines);
        }
        mistake
    })
}

/// Applies a change: lines that begin with a space or `-` are replaced by the lines that begin with a space or `+`.
fn changed(text: &str, change: &str) -> String {
    let lines = |signs: [char; 2]| {
        let lines = change.lines().filter_map(|line| line.strip_prefix(signs));
        lines.map(|line| format!("\n{line}")).collect::<String>()
    };
    let (text, from) = (format!("\n{text}"), lines([' ', '-']));
    assert!(text.contains(&from), "{from} is not in{text}");
    text.replacen(&from, &lines([' ', '+']), 1).split_off(1)
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
    // Covers several files: see below.
    kinds.insert(Kind::DomainNotSent);
    let missing: Vec<&str> =
        Kind::ALL.iter().filter(|kind| !kinds.contains(kind)).map(|kind| kind.name()).collect();
    assert!(missing.is_empty(), "no mistake is of these kinds: {missing:?}");
}

/// Routes chosen by a matcher may have entries: it is unknown whether nothing is sent.
/// 182: =>
#[test]
fn routes_of_a_matcher_are_not_said_to_have_no_limit() {
    let config = CONFIG.replace(
        between("                      routes:", "  clusters:"),
        "                      matcher: { matcher_tree: {} }\n",
    );
    let found: Vec<&str> = findings(RULES, &config).iter().map(|one| one.kind.name()).collect();
    assert_eq!(found, ["not-evaluated"]);
}

/// Virtual hosts that Envoy discovers may have entries, beside those in the file.
#[test]
fn virtual_hosts_that_are_discovered_are_unknown() {
    let discovered =
        "                route_config:\n                  vhds: { config_source: { ads: {} } }\n";
    let without = CONFIG.replace(between("                route_config:", "  clusters:"), discovered);
    let beside = CONFIG.replacen("                route_config:\n", discovered, 1);
    for config in [without, beside] {
        let found: Vec<&str> = findings(RULES, &config).iter().map(|one| one.kind.name()).collect();
        assert_eq!(found, ["routes-not-shown"], "{config}");
    }
}

/// The entries of a filter apply to routes that are not in the files, and their descriptors are known.
#[test]
fn entries_of_a_filter_are_checked_without_its_routes() {
    let entry = "                      rate_limits: [{ actions: [{ remote_address: {} }] }]\n";
    let config = CONFIG
        .replace(
            between("                route_config:", "  clusters:"),
            "                rds: { route_config_name: r }\n",
        )
        .replacen(
            "                      timeout: 0.25s\n",
            &format!("                      timeout: 0.25s\n{entry}"),
            1,
        );
    let kinds =
        |config: &str| findings(RULES, config).iter().map(|one| one.kind.name()).collect::<Vec<&str>>();
    assert_eq!(kinds(&config), ["routes-not-shown"]);
    let other = config.replace("remote_address: {}", "masked_remote_address: {}");
    assert_eq!(kinds(&other), ["descriptor-without-rule", "routes-not-shown"]);
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

/// Only the first part of each entry was named, and a request without the second part has no descriptor either.
#[test]
fn every_part_without_which_a_request_has_no_limit_is_named() {
    let rules = "domain: edge\ndescriptors:\n  - key: a\n    rate_limit: { unit: day, requests_per_unit: 1 }\n    descriptors: [{ key: b, rate_limit: { unit: second, requests_per_unit: 10 } }]\n";
    let header =
        |name: &str| format!("{{ request_headers: {{ header_name: x-{name}, descriptor_key: {name} }} }}");
    let message = |entries: &[&[&str]]| {
        let entry = |names: &&[&str]| {
            let actions: Vec<String> = names.iter().map(|name| header(name)).collect();
            format!("{{ actions: [{}] }}", actions.join(", "))
        };
        let entries: Vec<String> = entries.iter().map(entry).collect();
        let config = CONFIG.replace(
            "- actions: [{ remote_address: {} }]",
            &format!("- {}", entries.join("\n                              - ")),
        );
        let found = findings(rules, &config);
        let mut missing = found.iter().filter(|one| one.kind == Kind::MissingPart);
        let message = &missing.next().expect("a finding").message;
        message.split_once(" has no descriptor").expect("the part of a request").0.to_owned()
    };
    assert_eq!(message(&[&["a", "b"]]), "a request without header x-a or header x-b");
    assert_eq!(
        message(&[&["a", "b"], &["a"]]),
        "a request without header x-a or header x-b and without header x-a"
    );
}

/// A peek is charged at the end of its request, or by the requests of other routes.
#[test]
fn a_limit_that_another_entry_charges_may_be_asked_without_hits() {
    let actions = "actions: [{ remote_address: {} }]";
    let at_end = format!(
        "[{{ {actions}, hits_addend: {{ number: 0 }} }}, {{ {actions}, apply_on_stream_done: true }}]"
    );
    let peek = format!("[{{ {actions}, hits_addend: {{ number: 0 }} }}]");
    let of_route = |entries: &str| {
        format!(
            "typed_per_filter_config: {{ envoy.filters.http.ratelimit: {{ \"@type\": \
             type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute, rate_limits: {entries} }} }}"
        )
    };
    let whole = between("- match: { prefix: / }", "  clusters:");
    let route = |prefix: &str, entries: &str| {
        let end = format!("route: {{ cluster: application }}, {}", of_route(entries));
        format!("- {{ match: {{ prefix: {prefix} }}, {end} }}\n                        ")
    };
    let of = |routes: &str| {
        let found = findings(RULES, &CONFIG.replace(whole, &format!("{}\n", routes.trim_end())));
        found.iter().map(|one| one.kind.name()).collect::<Vec<_>>()
    };
    assert_eq!(of(&route("/", &at_end)), [""; 0]);
    assert_eq!(of(&(route("/a", &peek) + &route("/", &format!("[{{ {actions} }}]")))), [""; 0]);
    assert_eq!(of(&(route("/a", &peek) + &route("/", &peek))), ["never-charged"; 2]);
}

/// Two filters of a chain need namespaces of their own (docs/concurrency.md).
#[test]
fn a_ticket_in_the_metadata_namespace_of_the_filter_is_returned() {
    let rules = RULES.replace(
        "{ unit: second, requests_per_unit: 10 }",
        "{ algorithm: concurrency, requests_in_flight: 3, max_hold: 60s }",
    );
    let end = "- apply_on_stream_done: true
                                actions: [{ metadata: { descriptor_key: slot, metadata_key: { key: edge.slots, path: [{ key: slot }] } } }]
";
    let namespace = "timeout: 0.25s
                      metadata_namespace: edge.slots";
    let config = CONFIG.replace("timeout: 0.25s", namespace).replace(
        "- actions: [{ remote_address: {} }]
",
        &format!(
            "- actions: [{{ remote_address: {{}} }}]
                              {end}"
        ),
    );
    let found: Vec<String> = findings(&rules, &config).iter().map(|one| format!("{one:?}")).collect();
    assert!(found.is_empty(), "{found:#?}");
    let files = Files::read(vec![Source::file("envoy.yaml", config)]).unwrap();
    let request: HttpRequest = "GET https://shop.example/".parse().unwrap();
    let explained = explain(&Configuration::of(&files), None, &request);
    let made: Vec<&Made> = explained[0].filters[0].applied.iter().map(|entry| &entry.made).collect();
    let descriptor = |key: &str, value: &str| Made::Descriptor(vec![(key.to_owned(), value.to_owned())]);
    assert_eq!(made, [&descriptor("remote_address", "127.0.0.1"), &descriptor("slot", "<ticket>")]);
}

/// Configurations of other versions, and damaged ones: whatever remains is read, and nothing panics.
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

/// Envoy's filter for local limits applies the entries of its stage, unless it has `rate_limits` itself.
#[test]
fn entries_of_a_filter_for_local_limits_are_not_said_to_be_ignored() {
    let message = "envoy.extensions.filters.http.local_ratelimit.v3.LocalRateLimit";
    let descriptors = "descriptors: [{ entries: [{ key: a, value: b }] }]";
    let local = |settings: &str| {
        format!("- name: local\n  typed_config: {{ '@type': type.googleapis.com/{message}, {settings} }}\n")
            .lines()
            .map(|line| format!("                  {line}\n"))
            .collect::<String>()
    };
    let router =
        between("                  - name: envoy.filters.http.router", "                route_config");
    let filter = between("                  - name: envoy.filters.http.ratelimit", router);
    let kinds = |config: String| -> Vec<&str> {
        let kinds = findings(RULES, &config).into_iter().map(|one| one.kind.name());
        kinds.filter(|kind| *kind != "rule-not-sent").collect()
    };
    let entry = "- actions: [{ remote_address: {} }]";
    // Both filters: an entry of stage 1 is for the local filter.
    let both = |settings: &str, fields: &str, route: &str| {
        let second = format!(
            "{entry}\n                              - {{ stage: 1, actions: [{{ remote_address: {{}} }}]{fields} }}"
        );
        kinds(
            CONFIG
                .replace(router, &(local(settings) + router))
                .replace(entry, &second)
                .replace("- match: { prefix: / }", &format!("- match: {{ prefix: / }}\n{:26}{route}", "")),
        )
    };
    let of_stage = |stage: u32| format!("stage: {stage}, {descriptors}");
    let missing = ["stage-without-filter"];
    assert_eq!(both(&of_stage(1), "", ""), [""; 0]);
    assert_eq!(both(&of_stage(2), "", ""), missing);
    assert_eq!(both("stage: 1", "", ""), missing);
    assert_eq!(
        both(&format!("{}, rate_limits: [{{ actions: [{{ remote_address: {{}} }}] }}]", of_stage(1)), "", ""),
        missing
    );
    assert!(both(&of_stage(1), ", disable_key: k", "").contains(&missing[0]));
    let per_route = format!(
        "typed_per_filter_config: {{ local: {{ '@type': type.googleapis.com/{message}, {} }} }}",
        of_stage(1)
    );
    assert_eq!(both("stat_prefix: a", "", &per_route), [""; 0]);
    // The local filter alone.
    let alone = |settings: &str| kinds(CONFIG.replace(filter, &local(settings)));
    assert_eq!(alone(descriptors), ["domain-not-sent"]);
    assert_eq!(alone("stat_prefix: a"), ["filter-absent", "domain-not-sent"]);
}
