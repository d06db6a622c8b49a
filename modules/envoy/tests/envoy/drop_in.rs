//! The module as users have it: instead of the ratelimit filter, with that filter's configuration.

use crate::{
    client::{Connection, Request, Response},
    config::{Filter, bootstrap, listener, route, service, with_access_log},
    process::{Binary, Envoy, eventually},
};
use serde_json::{Value as Json, json};
use std::{net::TcpListener, path::Path};

const RULES: &str = "domain: edge
descriptors:
  - key: api_key
    rate_limit: { unit: year, requests_per_unit: 2, name: per-key }
  - key: tokens
    rate_limit: { unit: year, requests_per_unit: 1000, name: tokens, charge: always }
";

fn settings(rate_limits: Json) -> Json {
    json!({
        "domain": "edge",
        "enable_x_ratelimit_headers": "DRAFT_VERSION_03",
        "rate_limit_service": service(),
        "rate_limits": rate_limits,
    })
}

fn by_key() -> Json {
    json!({"actions": [{"request_headers": {"header_name": "x-api-key", "descriptor_key": "api_key"}}]})
}

/// An Envoy with a listener `edge`, and rules in a file of its folder.
fn start(binary: &Binary, filter: Filter, settings: &Json) -> (Envoy, tempfile::TempDir) {
    let rules = tempfile::tempdir().unwrap();
    let path = rules.path().join("rules.yaml");
    std::fs::write(&path, RULES).unwrap();
    let listeners = vec![listener("edge", filter, settings, vec![route("/", None)])];
    let variables = [("TIDEGATE_RULES", path.to_str().unwrap())];
    (Envoy::start(binary, &bootstrap(listeners, None), &variables), rules)
}

fn keyed(key: &str) -> Request {
    Request::get("/").header("x-api-key", key)
}

fn open(envoy: &Envoy) -> Connection {
    Connection::open(&envoy.listener("edge")).unwrap()
}

fn send(connection: &mut Connection, request: &Request) -> Response {
    connection.send(request).unwrap()
}

pub fn limits(binary: &Binary) {
    let (envoy, _rules) = start(binary, Filter::Module, &settings(json!([by_key()])));
    let mut edge = open(&envoy);
    for left in ["1", "0"] {
        let served = send(&mut edge, &keyed("alice"));
        assert_eq!((served.status, served.header("x-ratelimit-remaining")), (200, Some(left)), "{served:?}");
        assert_eq!(served.header("x-ratelimit-limit"), Some("2, 2;w=31536000;name=\"per-key\""));
    }
    // A connection of its own may have another worker: the counters are common.
    let denied = send(&mut open(&envoy), &keyed("alice"));
    assert_eq!((denied.status, denied.header("x-envoy-ratelimited")), (429, Some("true")), "{denied:?}");
    assert_eq!(send(&mut edge, &keyed("bob")).status, 200);
    assert_eq!(send(&mut edge, &Request::get("/")).header("x-ratelimit-limit"), None);
}

/// `deploy/envoy/module.yaml` with its rules, on free ports.
pub fn deployed(binary: &Binary) {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/envoy");
    let text = std::fs::read_to_string(deploy.join("module.yaml")).unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let text = text.replace("port_value: 8080", &format!("port_value: {free}"));
    let text =
        text.replace("port_value: 9901", "port_value: 0").replace("port_value: 10000", "port_value: 0");
    let rules = deploy.join("rules.yaml");
    let envoy = Envoy::run_text(binary, &text, &[("TIDEGATE_RULES", rules.to_str().unwrap())]).unwrap();
    let mut edge = open(&envoy);
    let first = send(&mut edge, &keyed("alice"));
    assert_eq!(first.header("x-ratelimit-limit"), Some("20, 20;w=60;name=\"api-key\""), "{first:?}");
    assert_eq!(send(&mut edge, &Request::get("/search")).header("x-ratelimit-remaining"), Some("29"));
}

pub fn json(binary: &Binary) {
    let mut settings = settings(json!([by_key()]));
    settings["tidegate"] = json!({"rules": {"domain": "edge", "descriptors": [
        {"key": "api_key", "rate_limit": {"unit": "year", "requests_per_unit": 1}},
    ]}});
    let (envoy, _rules) = start(binary, Filter::ModuleByJson, &settings);
    let mut edge = open(&envoy);
    assert_eq!(send(&mut edge, &keyed("alice")).status, 200);
    assert_eq!(send(&mut edge, &keyed("alice")).status, 429);
}

pub fn refusals(binary: &Binary) {
    let expression = json!({"name": "expr", "typed_config": crate::config::typed(
        "envoy.extensions.rate_limit_descriptors.expr.v3.Descriptor",
        json!({"descriptor_key": "k", "text": "'a'"}),
    )});
    let settings =
        settings(json!([by_key(), {"actions": [{"remote_address": {}}, {"extension": expression}]}]));
    let listeners = vec![listener("edge", Filter::Module, &settings, vec![route("/", None)])];
    let refused = Envoy::run(binary, &bootstrap(listeners, None), &[("TIDEGATE_RULES", "/dev/null")]);
    let log = refused.err().expect("a configuration with CEL is refused");
    let expected = "rate_limits[1].actions[1].extension: needs Envoy's own code; use another action";
    assert!(log.contains(expected), "{log}");
}

pub fn statistics(binary: &Binary) {
    let mut settings = settings(json!([by_key()]));
    settings["stat_prefix"] = "edge".into();
    let (envoy, _rules) = start(binary, Filter::Module, &settings);
    let mut edge = open(&envoy);
    for _ in 0..5 {
        send(&mut edge, &keyed("alice"));
    }
    let line = |outcome, count| {
        format!("envoy_dynamicmodulescustom_decisions{{outcome=\"{outcome}\",stat_prefix=\"edge\"}} {count}")
    };
    eventually("both counts", || {
        let (_, page) = envoy.admin("/stats/prometheus")?;
        (page.contains(&line("ok", 2)) && page.contains(&line("over_limit", 3))).then_some(())
    });
}

/// The metadata of decisions in access logs, in a namespace of the filter's configuration.
pub fn access_logs(binary: &Binary) {
    let mut settings = settings(json!([by_key()]));
    settings["metadata_namespace"] = "limits".into();
    let keys = ["outcome", "limit_name", "requests_per_unit", "remaining", "decided_in"];
    let format = keys.map(|key| format!("%DYNAMIC_METADATA(limits:{key})%")).join(" ");
    // As JSON: before Envoy 1.40, the message has no such field.
    let edge = listener("edge", Filter::ModuleByJson, &settings, vec![route("/", None)]);
    let rules = tempfile::tempdir().unwrap();
    let path = rules.path().join("rules.yaml");
    std::fs::write(&path, RULES).unwrap();
    let variables = [("TIDEGATE_RULES", path.to_str().unwrap()), ("TIDEGATE_DYNAMIC_METADATA", "true")];
    let envoy = Envoy::start(binary, &bootstrap(vec![with_access_log(edge, &format)], None), &variables);
    let mut edge = open(&envoy);
    let mut odd = Request::get("/");
    odd.headers.push(("x-api-key".to_owned(), b"\xe9".to_vec()));
    let requests = [keyed("alice"), keyed("alice"), keyed("alice"), Request::get("/"), odd];
    let statuses = requests.map(|request| send(&mut edge, &request).status);
    assert_eq!(statuses, [200, 200, 429, 200, 200]);
    envoy.await_access_log(&[
        "ok per-key 2 1 -",
        "ok per-key 2 0 -",
        "over_limit per-key 2 0 -",
        "- - - - -",
        "ok per-key 2 1 -",
    ]);
}

pub fn at_the_end(binary: &Binary) {
    let entries = json!([{"request_headers": {"header_name": "x-api-key", "descriptor_key": "tokens"}}]);
    let settings = settings(json!([
        {"actions": entries, "hits_addend": {"number": 0}},
        {"actions": entries, "hits_addend": {"format": "%RESP(x-cost)%"}, "apply_on_stream_done": true},
    ]));
    let (envoy, _rules) = start(binary, Filter::Module, &settings);
    let mut edge = open(&envoy);
    for left in ["1000", "600", "200"] {
        let request = keyed("alice").header("x-cost", "400");
        eventually("the charge of the former response", || {
            let peek = send(&mut edge, &keyed("alice").header("x-cost", "0"));
            (peek.header("x-ratelimit-remaining") == Some(left)).then_some(())
        });
        assert_eq!(send(&mut edge, &request).status, 200);
    }
    eventually("no more than the limit", || (send(&mut edge, &keyed("alice")).status == 429).then_some(()));
    assert_eq!(send(&mut edge, &keyed("bob")).status, 200);
}

pub fn reloads(binary: &Binary) {
    let (envoy, rules) = start(binary, Filter::Module, &settings(json!([by_key()])));
    let mut edge = open(&envoy);
    assert_eq!(send(&mut edge, &keyed("alice")).header("x-ratelimit-remaining"), Some("1"));
    std::fs::write(
        rules.path().join("rules.yaml"),
        RULES.replace("requests_per_unit: 2", "requests_per_unit: 9"),
    )
    .unwrap();
    eventually("the new limit", || {
        let limit = send(&mut edge, &keyed("bob")).header("x-ratelimit-limit")?.to_owned();
        limit.starts_with("9,").then_some(())
    });
    // The counter has kept its hits.
    assert_eq!(send(&mut edge, &keyed("alice")).header("x-ratelimit-remaining"), Some("7"));
}
