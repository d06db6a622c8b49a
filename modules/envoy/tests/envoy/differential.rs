//! Compares the module with the ratelimit filter: the same random configurations and requests, in one Envoy.
//!
//! `TIDEGATE_COMPARISONS` is the least number of requests that are compared, `TIDEGATE_SEED` the seed of the first configurations.

use crate::{
    client::{Connection, Request, Response},
    config::{Filter, bootstrap, listener, route, service},
    generate::{DONE, Generator, rules},
    process::{Binary, Envoy, Server, eventually},
    rng::Rng,
};
use serde_json::{Value as Json, json};
use std::env;

/// Filters with settings of their own.
const FILTERS: usize = 12;
/// Routes below each filter.
const ROUTES: usize = 40;
/// Requests to each route.
const REQUESTS: usize = 6;

pub fn decisions(binary: &Binary) {
    let number = |name: &str| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let (first, wanted) = (number("TIDEGATE_SEED").unwrap_or(1), number("TIDEGATE_COMPARISONS").unwrap_or(1));
    let mut compared = 0;
    for seed in first.. {
        compared += round(binary, seed);
        if compared >= wanted {
            return;
        }
    }
}

/// Compares the decisions of configurations made by a seed; returns the number of requests.
fn round(binary: &Binary, seed: u64) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rules.yaml");
    std::fs::write(&path, rules()).unwrap();
    let server = Server::start(&path);
    let mut generator = Generator { rng: Rng::of_seed(seed), binary };
    let mut listeners = Vec::new();
    let mut described = Vec::new();
    for filter in 0..FILTERS {
        let settings = generator.settings();
        let routes: Vec<_> = (0..ROUTES).map(|_| generator.per_route()).collect();
        for (kind, name) in [(Filter::RateLimit, "filter"), (Filter::Module, "module")] {
            let of_kind = |(index, own)| route(&format!("/{index}/"), Some(Filter::per_route(kind, own)));
            let mut of_listener: Vec<_> = routes.iter().enumerate().map(of_kind).collect();
            of_listener.push(route("/", None));
            listeners.push(listener(&format!("{name}-{filter}"), kind, &settings, of_listener));
        }
        described.push((settings, routes));
    }
    for (kind, name) in [(Filter::RateLimit, "filter"), (Filter::Module, "module")] {
        listeners.push(listener(&format!("{name}-peek"), kind, &peek(), vec![route("/", None)]));
    }
    let variables = [("TIDEGATE_RULES", path.to_str().unwrap()), ("TIDEGATE_SOURCE_CLUSTER", "node-cluster")];
    let envoy = Envoy::start(binary, &bootstrap(listeners, Some(&server.socket())), &variables);
    let (mut requests, mut denied, mut differences) = (0, 0, Vec::new());
    for (filter, (settings, routes)) in described.iter().enumerate() {
        let mut by_filter = Client::new(&envoy, &format!("filter-{filter}"));
        let mut by_module = Client::new(&envoy, &format!("module-{filter}"));
        for index in 0..=ROUTES {
            for _ in 0..REQUESTS {
                let prefix = if index < ROUTES { format!("/{index}/") } else { "/none".to_owned() };
                let request = generator.request(&prefix);
                let (expected, seen) = (by_filter.send(&request), by_module.send(&request));
                requests += 1;
                denied += usize::from(expected.header("x-envoy-ratelimited").is_some());
                if !is_same(&expected, &seen) {
                    let own = routes.get(index);
                    differences.push(format!(
                        "{request:?}\nsettings {settings}\nroute {}\nfilter {expected:?}\nmodule {seen:?}",
                        own.map_or_else(|| "none".to_owned(), |own| own.to_string())
                    ));
                }
            }
        }
    }
    let charged = eventually("equal charges at the ends of streams", || charges(&envoy));
    eprintln!("seed {seed}: {charged} hits at the ends of streams");
    eprintln!("seed {seed}: {requests} requests, {denied} denied, {} differences", differences.len());
    assert!(denied > 10, "{denied} of {requests} were denied: the comparison says little");
    if let Ok(path) = env::var("TIDEGATE_DIFFERENCES") {
        std::fs::write(path, differences.join("\n\n")).unwrap();
    }
    let shown = differences.iter().take(3).map(String::as_str).collect::<Vec<_>>().join("\n\n");
    assert!(differences.is_empty(), "TIDEGATE_SEED={seed}: {} differences:\n{shown}", differences.len());
    requests
}

/// Settings that count nothing, and show the hits charged to values of [`DONE`].
fn peek() -> Json {
    let action = json!({"request_headers": {"header_name": "x-done", "descriptor_key": DONE}});
    json!({
        "domain": "d",
        "rate_limit_service": service(),
        "timeout": "5s",
        "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
        "rate_limits": [{"actions": [action], "hits_addend": {"number": 0}}],
    })
}

/// The hits that both filters have charged at the ends of streams; none while they differ.
fn charges(envoy: &Envoy) -> Option<u64> {
    let (mut filter, mut module) = (Client::new(envoy, "filter-peek"), Client::new(envoy, "module-peek"));
    let mut sum = 0;
    for value in ["a", "b", "1", "2", "", "-1", "A", "a b", "é", "1,2", "Ä"] {
        let request = Request::get("/").header("x-done", value);
        let remaining = |client: &mut Client| {
            let left = client.send(&request).header("x-ratelimit-remaining")?.parse::<u64>().ok()?;
            Some(1_000_000_000 - left)
        };
        let (expected, seen) = (remaining(&mut filter), remaining(&mut module));
        if expected != seen {
            eprintln!("{value:?}: filter {expected:?}, module {seen:?}");
            return None;
        }
        sum += seen.unwrap_or(0);
    }
    Some(sum)
}

/// Connections to a listener, opened again where Envoy closes them.
struct Client {
    address: String,
    connection: Option<Connection>,
}

impl Client {
    fn new(envoy: &Envoy, listener: &str) -> Self {
        Self { address: envoy.listener(listener), connection: None }
    }

    fn send(&mut self, request: &Request) -> Response {
        for _ in 0..3 {
            let mut connection = match self.connection.take() {
                Some(connection) => connection,
                None => Connection::open(&self.address).unwrap(),
            };
            if let Ok(response) = connection.send(request) {
                if response.header("connection") != Some("close") {
                    self.connection = Some(connection);
                }
                return response;
            }
        }
        panic!("no response to {request:?}");
    }
}

/// Whether two responses are the same except for times.
fn is_same(one: &Response, other: &Response) -> bool {
    let (mut headers, mut others) = (compared(one), compared(other));
    headers.sort();
    others.sort();
    let is_near = |name: &str| {
        let seconds = |response: &Response| response.header(name).and_then(|text| text.parse::<i64>().ok());
        match (seconds(one), seconds(other)) {
            // The two filters get their requests one after the other.
            (Some(one), Some(other)) => (one - other).abs() <= 2,
            (one, other) => one == other,
        }
    };
    one.status == other.status
        && one.body == other.body
        && headers == others
        && is_near("x-ratelimit-reset")
        && is_near("retry-after")
}

fn compared(response: &Response) -> Vec<(String, String)> {
    let varies = ["date", "x-envoy-upstream-service-time", "x-ratelimit-reset", "retry-after"];
    response.headers.iter().filter(|(name, _)| !varies.contains(&name.as_str())).cloned().collect()
}
