//! Compares `tidegate envoy explain` with a real Envoy: random routes and requests, and for each the route, the domain and the descriptors.
//!
//! The server describes each call in metadata, which Envoy writes into the response, and each route adds its name.
//! `TIDEGATE_COMPARISONS` is the least number of requests that are compared, `TIDEGATE_SEED` the first seed.

use crate::{
    client::{Connection, Request, Response},
    config::{Filter, application, clusters, service, typed},
    generate::Generator,
    process::{Binary, Envoy, Server},
    rng::Rng,
};
use serde_json::{Value as Json, json};
use std::env;
use tidegate_core::rules::Source;
use tidegate_envoy_config::{
    Files,
    configuration::Configuration,
    explain::{HttpRequest, Made, explain},
};

const LISTENERS: usize = 12;
const REQUESTS: usize = 80;
const FILTER: &str = "envoy.filters.http.ratelimit";

/// Never exceeded: a denial has no headers of the route.
const RULES: &str = "domain: d\ndescriptors:\n  - key: generic_key\n    rate_limit: { unit: second, requests_per_unit: 1000000 }\n";

pub fn differential(binary: &Binary) {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, wanted) = (number("TIDEGATE_SEED").unwrap_or(1), number("TIDEGATE_COMPARISONS").unwrap_or(1));
    let (mut compared, mut calls) = (0, 0);
    for seed in first.. {
        let (requests, limited) = round(binary, seed);
        (compared, calls) = (compared + requests, calls + limited);
        println!("seed {seed}: {limited} of {requests} requests are limited");
        if compared >= wanted {
            break;
        }
    }
    assert!(calls * 20 > compared, "only {calls} of {compared} requests are limited");
}

/// Compares the requests to configurations made by a seed; returns their number, and how many of them are limited.
fn round(binary: &Binary, seed: u64) -> (u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.yaml");
    std::fs::write(&rules, RULES).unwrap();
    let server = Server::describing(&rules);
    let mut random = Routes { generator: Generator { rng: Rng::of_seed(seed), binary }, names: 0 };
    let mut listeners: Vec<Json> =
        (0..LISTENERS).map(|number| random.listener(&format!("l{number}"))).collect();
    listeners.push(application());
    let config = json!({
        "node": {"id": "test", "cluster": "node-cluster"},
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
        "static_resources": {"listeners": listeners, "clusters": clusters(Some(&server.socket()))},
    });
    let envoy = Envoy::start(binary, &config, &[]);
    let files = Files::read(vec![Source::file("envoy.yaml", config.to_string())]).unwrap();
    let configuration = Configuration::of(&files);
    let (mut compared, mut unknown, mut calls, mut differences) = (0, 0, 0, Vec::new());
    for number in 0..LISTENERS {
        let name = format!("l{number}");
        let mut connection = Connection::open(&envoy.listener(&name)).unwrap();
        for _ in 0..REQUESTS {
            let request = random.request();
            let response = match connection.send(&request) {
                Ok(response) => response,
                Err(_) => {
                    connection = Connection::open(&envoy.listener(&name)).unwrap();
                    continue;
                }
            };
            if response.header("connection") == Some("close") {
                connection = Connection::open(&envoy.listener(&name)).unwrap();
            }
            let Some(expected) = explained(&configuration, &name, &request) else {
                unknown += 1;
                continue;
            };
            let seen = seen(&response);
            compared += 1;
            calls += u64::from(seen.call.is_some());
            if expected != seen {
                differences.push(format!(
                    "{name} {request:?}\n  explained {expected:?}\n  seen      {seen:?} {}",
                    response.status
                ));
            }
        }
    }
    let first: Vec<_> = differences.iter().take(8).collect();
    assert!(
        differences.is_empty(),
        "seed {seed}: {} of {compared} requests differ:\n{}\n{}",
        differences.len(),
        first.iter().map(|one| one.as_str()).collect::<Vec<_>>().join("\n"),
        env::var("TIDEGATE_SHOW").map_or(String::new(), |_| serde_json::to_string_pretty(&config).unwrap())
    );
    assert!(unknown * 2 < compared, "of {unknown} requests beside {compared} it is not known");
    (compared, calls)
}

/// The known facts of a request: the name of its route, and the call for it.
#[derive(Debug, PartialEq)]
struct Seen {
    route: Option<String>,
    /// Domain and descriptors.
    call: Option<(String, Vec<String>)>,
}

fn seen(response: &Response) -> Seen {
    let metadata = response.header("x-decided").and_then(|text| serde_json::from_str::<Json>(text).ok());
    let call = metadata.filter(|metadata| metadata["domain"].is_string()).map(|metadata| {
        let text = |entry: &Json| entry.as_str().unwrap().to_owned();
        let entries = |descriptor: &Json| {
            let entries: Vec<String> = descriptor["entries"].as_array().unwrap().iter().map(text).collect();
            entries.join(",")
        };
        let descriptors = metadata["descriptors"].as_array().unwrap().iter().map(entries).collect();
        (metadata["domain"].as_str().unwrap().to_owned(), descriptors)
    });
    Seen { route: response.header("x-route").map(str::to_owned), call }
}

/// Route and call by the explanation; none where they are not known.
fn explained(configuration: &Configuration<'_>, listener: &str, request: &Request) -> Option<Seen> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let url = format!(
        "{} http://{}{}",
        request.method,
        request.host.as_deref().unwrap_or("test"),
        text(&request.path)
    );
    let mut http: HttpRequest = url.parse().unwrap();
    http.headers =
        request.headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), text(value))).collect();
    let explained = explain(configuration, Some(listener), &http);
    let [explained] = &*explained else { panic!("{explained:?}") };
    if !explained.unknown.is_empty() {
        return None;
    }
    let mut call: Option<(String, Vec<String>)> = None;
    for filter in &explained.filters {
        for entry in filter.applied.iter().filter(|entry| !entry.is_at_end) {
            match &entry.made {
                Made::Unknown(_) => return None,
                Made::Nothing(_) => {}
                Made::Descriptor(entries) => {
                    let entries: Vec<String> =
                        entries.iter().map(|(key, value)| format!("{key}={value}")).collect();
                    let call = call.get_or_insert_with(|| (filter.domain.to_owned(), Vec::new()));
                    call.1.push(entries.join(","));
                }
            }
        }
    }
    Some(Seen { route: explained.route.as_ref().map(|(title, _)| title.clone()), call })
}

/// A message as JSON in a `TypedStruct` of this name.
fn in_typed_struct(name: &str, mut message: Json) -> Json {
    let url = message.as_object_mut().unwrap().remove("@type");
    typed(name, json!({"type_url": url, "value": message}))
}

/// Makes listeners with routes, and requests that meet them.
struct Routes<'b> {
    generator: Generator<'b>,
    names: usize,
}

impl Routes<'_> {
    fn listener(&mut self, name: &str) -> Json {
        let random = &mut self.generator;
        let mut settings = json!({"domain": "d", "rate_limit_service": service(), "timeout": "5s"});
        if random.rng.once_in(4) {
            settings["stage"] = 1.into();
        }
        if random.rng.once_in(4) {
            settings["rate_limits"] = json!([self.entry(false)]);
        }
        let share = |numerator: u32| json!({"default_value": {"numerator": numerator}});
        let enabled = if self.generator.rng.once_in(8) { share(0) } else { share(100) };
        self.generator.maybe(&mut settings, "filter_enabled", &[enabled]);
        let mut config = typed("envoy.extensions.filters.http.ratelimit.v3.RateLimit", settings);
        if self.generator.rng.once_in(4) {
            config = in_typed_struct("xds.type.v3.TypedStruct", config);
        }
        let mut filter = json!({"name": FILTER, "typed_config": config});
        if self.generator.rng.once_in(12) {
            filter["disabled"] = true.into();
        }
        let mut config = json!({
            "name": name,
            "virtual_hosts": self.hosts(),
            "response_headers_to_add": [{"header": {"key": "x-decided", "value": format!("%DYNAMIC_METADATA({FILTER})%")}}],
        });
        self.generator.maybe(&mut config, "ignore_port_in_host_matching", &[true.into()]);
        self.per_filter(&mut config, 8);
        let mut manager = typed(
            "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
            json!({
                "stat_prefix": name,
                "http_filters": [
                    filter,
                    {"name": "envoy.filters.http.router", "typed_config": typed("envoy.extensions.filters.http.router.v3.Router", json!({}))},
                ],
                "route_config": config,
            }),
        );
        self.generator.maybe(&mut manager, "use_remote_address", &[true.into()]);
        self.generator.maybe(&mut manager, "xff_num_trusted_hops", &[1.into(), 2.into()]);
        json!({
            "name": name,
            "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
            "filter_chains": [{"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}],
        })
    }

    fn hosts(&mut self) -> Vec<Json> {
        let mut domains = vec![
            "shop.example",
            "*.example",
            "*.shop.example",
            "shop.*",
            "www.*",
            "*",
            "shop.example:8080",
            "*-api.example",
            "WWW.Shop.example",
            "sh*",
            "*e",
        ];
        let count = self.generator.rng.between(1, 4);
        (0..count)
            .map(|number| {
                let mut own: Vec<&str> = (0..self.generator.rng.between(1, 2))
                    .map(|_| domains.remove(self.generator.rng.below(domains.len() as u64) as usize))
                    .collect();
                let count = self.generator.rng.between(1, 6);
                if number == 0 && self.generator.half() && !own.contains(&"*") && domains.contains(&"*") {
                    domains.retain(|domain| *domain != "*");
                    own.push("*");
                }
                let mut host = json!({
                    "name": format!("h{number}"),
                    "domains": own,
                    "routes": (0..count).map(|_| self.route()).collect::<Vec<_>>(),
                });
                if !self.generator.rng.once_in(4) {
                    host["rate_limits"] = json!([self.entry(true)]);
                }
                self.per_filter(&mut host, 5);
                host
            })
            .collect()
    }

    fn route(&mut self) -> Json {
        self.names += 1;
        let name = format!("r{}", self.names);
        let mut route = json!({
            "name": name,
            "match": self.matched(),
            "response_headers_to_add": [{"header": {"key": "x-route", "value": name}}],
            "metadata": {"filter_metadata": {"test": {"route": "of-the-route"}}},
        });
        match self.generator.rng.below(8) {
            0 => route["direct_response"] = json!({"status": 200}),
            1 => route["redirect"] = json!({"path_redirect": "/elsewhere"}),
            kind => {
                let mut action = json!({"cluster": "application"});
                if kind == 2 {
                    let mut cluster = json!({"name": "application", "weight": 1});
                    self.per_filter(&mut cluster, 2);
                    action = json!({"weighted_clusters": {"clusters": [cluster]}});
                }
                let count = self.generator.rng.between(1, 3);
                if !self.generator.rng.once_in(4) {
                    action["rate_limits"] = (0..count).map(|_| self.entry(true)).collect();
                }
                self.generator.maybe(&mut action, "include_vh_rate_limits", &[true.into(), false.into()]);
                route["route"] = action;
            }
        }
        self.per_filter(&mut route, 3);
        route
    }

    fn matched(&mut self) -> Json {
        let random = &mut self.generator;
        let mut matched = match random.rng.below(6) {
            0 => json!({"path": random.one(&["/", "/api", "/Api/v1", "/a b"])}),
            1 => json!({"safe_regex": {"regex": random.one(&["/api.*", "/[a-z]+", "/api/v\\d", ".*"])}}),
            2 => json!({"path_separated_prefix": random.one(&["/api", "/api/v1", "/Api"])}),
            _ => json!({"prefix": random.one(&["/", "/", "/", "/api", "/api/", "/x"])}),
        };
        random.maybe(&mut matched, "case_sensitive", &[true.into(), false.into()]);
        if random.rng.once_in(3) {
            matched["headers"] = json!([random.header_matcher()]);
        }
        if random.rng.once_in(4) {
            matched["query_parameters"] = json!([random.query_matcher()]);
        }
        if random.rng.once_in(10) {
            let none = json!({"default_value": {"numerator": 0}});
            matched["runtime_fraction"] = random.one(&[none, json!({"default_value": {"numerator": 100}})]);
        }
        if random.rng.once_in(12) {
            matched["grpc"] = json!({});
        }
        matched
    }

    /// An entry of `rate_limits`, of a route or of the filter.
    fn entry(&mut self, is_of_route: bool) -> Json {
        let random = &mut self.generator;
        let count = random.rng.between(1, 2);
        let mut entry = json!({"actions": (0..count).map(|_| random.action()).collect::<Vec<_>>()});
        if is_of_route {
            random.maybe(&mut entry, "stage", &[0.into(), 0.into(), 1.into(), 2.into()]);
            if random.rng.once_in(6) {
                entry["disable_key"] = "key".into();
            }
        }
        if random.rng.once_in(6) {
            entry["hits_addend"] = json!({"number": 3});
        }
        if !is_of_route && random.rng.once_in(3) {
            let hits = [
                json!({"format": "%REQ(x-a)%"}),
                json!({"format": "%REQ(x-none?x-b)%"}),
                json!({"number": 0}),
            ];
            entry["hits_addend"] = random.one(&hits);
        }
        if random.rng.once_in(8) {
            entry["apply_on_stream_done"] = true.into();
        }
        entry
    }

    /// Adds a part's configuration for the filter, in one of `times` cases.
    fn per_filter(&mut self, part: &mut Json, times: u64) {
        if !self.generator.rng.once_in(times) {
            return;
        }
        let mut own = json!({});
        let count = self.generator.rng.below(3);
        if count > 0 {
            own["rate_limits"] = (0..count).map(|_| self.entry(false)).collect();
        }
        self.generator.maybe(
            &mut own,
            "vh_rate_limits",
            &["OVERRIDE".into(), "INCLUDE".into(), "IGNORE".into()],
        );
        self.generator.maybe(&mut own, "domain", &["other".into()]);
        let rate_limits = json!([{"actions": [{"generic_key": {"descriptor_value": "of-the-module"}}]}]);
        let of_module = Filter::Module.per_route(&json!({"rate_limits": rate_limits}))["tidegate"].take();
        let own = typed("envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute", own);
        let wrapped = |fields: Json| typed("envoy.config.route.v3.FilterConfig", fields);
        let config = match self.generator.rng.below(16) {
            0 | 1 => wrapped(json!({"disabled": true})),
            2 | 3 => wrapped(json!({"config": own})),
            4 | 5 => wrapped(json!({"config": {}})),
            6 => of_module,
            7 => wrapped(json!({"config": of_module})),
            8 | 9 => in_typed_struct("xds.type.v3.TypedStruct", own),
            10 => in_typed_struct("udpa.type.v1.TypedStruct", own),
            _ => own,
        };
        part["typed_per_filter_config"] = json!({FILTER: config});
    }

    fn request(&mut self) -> Request {
        let random = &mut self.generator;
        let path = random
            .one(&["/", "/api", "/api/", "/Api/v1", "/api/v1", "/api/v12", "/x", "/xyz", "/API", "/apis"]);
        let query = random.one(&["", "", "?q=1", "?q=a%20b", "?r=1&q=2", "?q", "?q=&r=A", "?q=%41"]);
        let mut request = Request::get(&format!("{path}{query}"));
        request.method = random.one(&["GET", "GET", "POST", "PURGE"]).to_owned();
        let hosts = [
            "shop.example",
            "SHOP.example",
            "shop.example:8080",
            "www.shop.example",
            "www.other",
            "a-api.example",
            "-api.example",
            ".example",
            "example",
            "shop.other:1",
        ];
        request.host = Some(random.one(&hosts).to_owned());
        // Earlier versions match the values of a repeated header joined by commas, the explanation each value.
        let names: &[&str] = if random.binary.is_from(39) { &["x-a", "x-b", "x-a"] } else { &["x-a", "x-b"] };
        for name in names {
            if random.half() {
                request
                    .headers
                    .push(((*name).to_owned(), random.one(&["1", "2", "A", "a b", "1,2", ""]).into()));
            }
        }
        if random.half() {
            let clients =
                ["10.1.2.3", "10.1.2.3, 192.0.2.7", "2001:db8::1, 10.1.9.9,192.0.2.1", "nobody", ""];
            request.headers.push(("x-forwarded-for".to_owned(), random.one(&clients).into()));
        }
        if random.rng.once_in(10) {
            request.headers.push((
                "content-type".to_owned(),
                random.one(&["application/grpc", "application/grpc+proto", "text/plain"]).into(),
            ));
        }
        request
    }
}
