//! Requests that are explained: the calls of a filter, and the hits of their descriptors.

#![allow(clippy::unwrap_used, reason = "helpers of tests, which clippy does not see as such")]

use tidegate_core::{
    limit::Hits,
    rules::{LoadOptions, RuleSet, Source},
};
use tidegate_envoy_config::{
    Files,
    check::check,
    configuration::Configuration,
    explain::{EntryHits, HttpRequest, Made, explain},
};

/// A listener whose filter has these settings and one entry, with these fields of the connection manager and of the document.
fn config(settings: &str, entry: &str, manager: &str, document: &str) -> String {
    format!(
        r#"
{document}
static_resources:
  listeners:
    - name: edge
      filter_chains:
        - filters:
            - typed_config:
                {manager}
                http_filters:
                  - name: ratelimit
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
                      domain: edge
                      rate_limits: [{entry}]
                      {settings}
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes: [{{ match: {{ prefix: / }}, route: {{ cluster: application }} }}]
"#
    )
}

const ALL: &str = "{ actions: [{ generic_key: { descriptor_value: all } }] }";

/// The outcome for an entry.
#[derive(Debug, PartialEq)]
enum Seen {
    /// A descriptor of one entry, with these hits.
    Sent(String, EntryHits),
    Nothing(String),
    Unknown(String),
    LeftOut(String),
}

/// The outcome for the entry of a configuration, and the facts that are unknown.
fn seen(config: String, headers: &[(&str, &str)]) -> (Seen, Vec<String>) {
    let files = Files::read(vec![Source::file("envoy.yaml", config)]).unwrap();
    let mut request: HttpRequest = "GET http://shop.example/".parse().unwrap();
    request.from = "192.0.2.1".parse().unwrap();
    request.headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let mut explained = explain(&Configuration::of(&files), None, &request);
    let one = explained.remove(0);
    let filter = &one.filters[0];
    let seen = match (&*filter.applied, &*filter.left_out) {
        ([entry], []) => match &entry.made {
            Made::Descriptor(entries) => {
                let [(key, value)] = &**entries else { panic!("{entries:?}") };
                Seen::Sent(format!("{key}={value}"), entry.hits.clone().unwrap())
            }
            Made::Nothing(what) => Seen::Nothing(what.clone()),
            Made::Unknown(why) => Seen::Unknown(why.clone()),
        },
        ([], [(.., why)]) => Seen::LeftOut(why.clone()),
        other => panic!("{other:?}"),
    };
    (seen, one.unknown)
}

/// The titles of the routes that requests have, by these routes and further parts of the configuration.
fn route(routes: &str, document: &str) -> (String, Vec<String>) {
    let text = config("", ALL, "", document)
        .replace("[{ match: { prefix: / }, route: { cluster: application } }]", &format!("[{routes}]"));
    let files = Files::read(vec![Source::file("envoy.yaml", text)]).unwrap();
    let request: HttpRequest = "GET http://shop.example/".parse().unwrap();
    let one = explain(&Configuration::of(&files), None, &request).remove(0);
    (one.route.unwrap().0, one.unknown)
}

fn sent(hits: Hits) -> Seen {
    Seen::Sent("generic_key=all".to_owned(), EntryHits::Known(hits))
}

/// What depends on chance or on the origin of a request is unknown.
#[test]
fn a_filter_that_is_enabled_for_no_request_makes_no_call() {
    let share = |numerator: u32| {
        format!("filter_enabled: {{ default_value: {{ numerator: {numerator} }}, runtime_key: a.b }}")
    };
    let of = |settings: &str, document: &str| seen(config(settings, ALL, "", document), &[]);
    let why = |share: &str| {
        Seen::LeftOut(format!("the filter is enabled for {share} requests (filter_enabled, or runtime)"))
    };
    let layer = |key: &str, value: u32| {
        format!("layered_runtime: {{ layers: [{{ static_layer: {{ {key}: {value} }} }}] }}")
    };
    assert_eq!(of("", ""), (sent(Hits::ONE), Vec::new()));
    assert_eq!(of(&share(0), ""), (why("0 of 100"), Vec::new()));
    assert_eq!(of(&share(100), &layer("a.b", 0)), (why("0 of 100"), Vec::new()));
    assert_eq!(of("", &layer("ratelimit.http_filter_enabled", 0)), (why("0 of 100"), Vec::new()));
    assert_eq!(of(&share(0), &layer("a.b", 100)), (sent(Hits::ONE), Vec::new()));
    for (settings, reason) in [
        (share(30), "ratelimit is enabled for 30 of 100 requests, and makes no call for others"),
        (
            "filter_enforced: { default_value: { numerator: 30 } }".to_owned(),
            "ratelimit enforces 30 of 100 denials, and admits other requests above a limit",
        ),
        (
            "request_type: internal".to_owned(),
            "ratelimit makes calls for internal requests only, and only Envoy knows whether this is one",
        ),
    ] {
        assert_eq!(of(&settings, ""), (sent(Hits::ONE), vec![reason.to_owned()]));
    }
}

#[test]
fn the_hits_of_a_descriptor_are_those_that_envoy_sends() {
    let of = |hits: &str, more: &str, headers: &[(&str, &str)]| {
        let entry = ALL.replace(" }] }", &format!(" }}], hits_addend: {{ {hits} }}{more} }}"));
        seen(config("", &entry, "", ""), headers).0
    };
    let format = "format: '%REQ(x-cost)%'";
    let nothing = || Seen::Nothing("number from 0 to 1000000000 in %REQ(x-cost)%".to_owned());
    assert_eq!(of("number: 0", "", &[]), sent(Hits::Peek));
    assert_eq!(of("number: 5", "", &[]), sent(Hits::new(Some(5), 0, false)));
    assert_eq!(of("number: 5, is_negative_hits: true", "", &[]), sent(Hits::new(Some(5), 0, true)));
    assert_eq!(of(format, "", &[]), nothing());
    assert_eq!(of(format, "", &[("x-cost", "many")]), nothing());
    assert_eq!(of(format, "", &[("x-cost", "0")]), sent(Hits::Peek));
    assert_eq!(of(format, "", &[("x-cost", "7")]), sent(Hits::new(Some(7), 0, false)));
    assert_eq!(of(format, ", apply_on_stream_done: true", &[]), nothing());
    let metadata = "format: '%DYNAMIC_METADATA(a:b)%'";
    let unknown = Seen::Unknown("%DYNAMIC_METADATA(a:b)% is known to Envoy only".to_owned());
    assert_eq!(of(metadata, "", &[]), unknown);
    for (format, text) in
        [(metadata, "%DYNAMIC_METADATA(a:b)%"), ("format: '%RESP(x-cost)%'", "%RESP(x-cost)%")]
    {
        let hits = EntryHits::Format(text.to_owned());
        let expected = Seen::Sent("generic_key=all".to_owned(), hits);
        assert_eq!(of(format, ", apply_on_stream_done: true", &[]), expected);
    }
}

#[test]
fn headers_that_envoy_sets_before_the_filter_are_not_missing() {
    let of = |name: &str, manager: &str| {
        let entry =
            format!("{{ actions: [{{ request_headers: {{ header_name: {name}, descriptor_key: k }} }}] }}");
        seen(config("", &entry, manager, ""), &[]).0
    };
    let address = Seen::Sent("k=192.0.2.1".to_owned(), EntryHits::Known(Hits::ONE));
    assert_eq!(of("x-forwarded-for", "use_remote_address: true"), address);
    assert_eq!(of("x-forwarded-for", ""), Seen::Nothing("header x-forwarded-for".to_owned()));
    let unknown = Seen::Unknown("header x-envoy-external-address is known to Envoy only".to_owned());
    assert_eq!(of("x-envoy-external-address", "use_remote_address: true"), unknown);
}

#[test]
fn an_entry_that_runtime_disables_is_left_out() {
    let of_filter = format!("rate_limits: [{ALL}]");
    let of_route = ALL.replace(" }] }", " }], disable_key: key }");
    let text = config(
        "",
        ALL,
        "",
        "layered_runtime: { layers: [{ static_layer: { ratelimit.key.http_filter_enabled: 0 } }] }",
    )
    .replace(&of_filter, "")
    .replace("cluster: application", &format!("cluster: application, rate_limits: [{of_route}]"));
    let why = "ratelimit.key.http_filter_enabled is 0 of 100".to_owned();
    assert_eq!(seen(text, &[]), (Seen::LeftOut(why), Vec::new()));
}

/// As in Envoy, where the default is that of keys which the runtime does not have.
#[test]
fn a_route_matches_the_share_of_requests_that_the_runtime_has() {
    let routes = |default: u32| {
        format!(
            "{{ name: some, match: {{ prefix: /, runtime_fraction: {{ default_value: {{ numerator: {default} }}, runtime_key: a.b }} }}, \
             route: {{ cluster: application }} }}, {{ name: others, match: {{ prefix: / }}, route: {{ cluster: application }} }}"
        )
    };
    let of = |default: u32, value: &str| {
        let layer = format!("layered_runtime: {{ layers: [{{ static_layer: {{ {value} }} }}] }}");
        let (name, unknown) = route(&routes(default), &layer);
        (name, unknown.len())
    };
    assert_eq!(of(100, "a.b: 0"), ("others".to_owned(), 0));
    assert_eq!(of(0, "a.b: 100"), ("some".to_owned(), 0));
    assert_eq!(of(100, "a.c: 0"), ("some".to_owned(), 0));
    assert_eq!(of(100, "a.b: 50"), ("others".to_owned(), 1));
}

#[test]
fn a_descriptor_has_the_host_without_what_envoy_strips() {
    let entry = "{ actions: [{ request_headers: { header_name: ':authority', descriptor_key: k } }] }";
    let of = |manager: &str, authority: &str| {
        let text = config("", entry, manager, "");
        let files = Files::read(vec![Source::file("envoy.yaml", text)]).unwrap();
        let request: HttpRequest = format!("GET http://{authority}/").parse().unwrap();
        let one = explain(&Configuration::of(&files), None, &request).remove(0);
        let Made::Descriptor(entries) = &one.filters[0].applied[0].made else { panic!("{one:?}") };
        (entries[0].1.clone(), one.unknown.len())
    };
    let is = |value: &str, unknown: usize| (value.to_owned(), unknown);
    let (port, dot) = ("strip_any_host_port: true", "strip_trailing_host_dot: true");
    assert_eq!(of("", "a.example.:8080"), is("a.example.:8080", 0));
    assert_eq!(of(port, "a.example:8080"), is("a.example", 0));
    assert_eq!(of(port, "[::1]:8080"), is("[::1]", 0));
    assert_eq!(of(port, "[::1]"), is("[::1]", 0));
    assert_eq!(of(dot, "a.example."), is("a.example", 0));
    assert_eq!(of(dot, "a.example.:8080"), is("a.example:8080", 0));
    // Only Envoy knows the port of the listener.
    let matching = "strip_matching_host_port: true";
    assert_eq!(of(matching, "a.example:8080"), is("a.example:8080", 1));
    assert_eq!(of(matching, "a.example"), is("a.example", 0));
}

/// Such a cluster has an empty name in the configuration.
#[test]
fn a_weighted_cluster_that_a_header_names_is_not_known() {
    let entry = "{ actions: [{ destination_cluster: {} }] }";
    let weighted =
        "weighted_clusters: { clusters: [{ name: a, weight: 1 }, { cluster_header: x-cluster, weight: 1 }] }";
    let text = config("", entry, "", "").replace("cluster: application", weighted);
    let files = Files::read(vec![Source::file("envoy.yaml", text)]).unwrap();
    let rules = "domain: edge\ndescriptors:\n- {key: destination_cluster, rate_limit: {unit: minute, requests_per_unit: 1}}\n";
    let rules = RuleSet::parse(&[Source::file("rules.yaml", rules)], &LoadOptions::default()).unwrap();
    let checked = check(&Configuration::of(&files), &rules);
    let sent: Vec<&str> = checked.sent.iter().map(|sent| &*sent.descriptor).collect();
    assert_eq!(sent, ["destination_cluster=<cluster>"]);
}

/// A dump lists copies of inline routes before the routes that Envoy has discovered.
#[test]
fn the_routes_of_a_name_are_those_in_force() {
    let text = config("", ALL, "", "");
    let (listener, _) = text.split_once("route_config:").unwrap();
    let configs = |title: &str| {
        format!(
            "[{{ route_config: {{ name: local, virtual_hosts: [{{ name: all, domains: ['*'], routes: [{{ name: {title}, match: {{ prefix: / }}, \
             route: {{ cluster: application }} }}] }}] }} }}]"
        )
    };
    let of = |dumped: &[(&str, &str)]| {
        let dumped =
            dumped.iter().map(|(kind, title)| format!("---\nconfigs: [{{ {kind}: {} }}]\n", configs(title)));
        let text = format!("{listener}rds: {{ route_config_name: local }}\n{}", dumped.collect::<String>());
        let files = Files::read(vec![Source::file("envoy.yaml", text)]).unwrap();
        let request: HttpRequest = "GET http://shop.example/".parse().unwrap();
        let one = explain(&Configuration::of(&files), None, &request).remove(0);
        (one.route.map(|(title, _)| title), one.unknown.len())
    };
    let (inline, discovered) = (("static_route_configs", "inline"), ("dynamic_route_configs", "discovered"));
    let is = |title: &str| (Some(title.to_owned()), 0);
    assert_eq!(of(&[inline, discovered]), is("discovered"));
    assert_eq!(of(&[discovered, discovered]), is("discovered"));
    // Of several, it is not known which applies.
    assert_eq!(of(&[discovered, ("dynamic_route_configs", "other")]), (None, 1));
    assert_eq!(of(&[inline]), (None, 1));
}
