//! Updates of listeners under load: counters stay, and memory does not grow.
//!
//! `TIDEGATE_LISTENER_UPDATES` is the number of updates, by default 20. From 200 on, memory at the end is compared with memory after a
//! quarter.

use crate::{
    client::{Connection, Request},
    config::{Filter, application, clusters, listener, route, service, typed},
    process::{Binary, Envoy, eventually},
};
use serde_json::{Value as Json, json};
use std::{
    env,
    io::Write as _,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

const RULES: &str = "domain: edge
descriptors: [{ key: api_key, rate_limit: { unit: year, requests_per_unit: 2 } }]
";

/// The most bytes by which memory may grow with each update. Envoy keeps the names of statistics, for example.
const GROWTH_MAX: u64 = 4 << 10;

/// The listener in a version, which shows only in its configuration.
fn edge(version: usize) -> Json {
    let action = json!({"request_headers": {"header_name": "x-api-key", "descriptor_key": "api_key"}});
    let settings = json!({
        "domain": "edge",
        "rate_limit_service": service(),
        "rate_limits": [{"actions": [action]}],
        "response_headers_to_add": [{"header": {"key": "x-version", "value": format!("version-{version}")}}],
    });
    let edge = listener("edge", Filter::Module, &settings, vec![route("/", None)]);
    typed("envoy.config.listener.v3.Listener", edge)
}

fn write(folder: &Path, version: usize) {
    let update = json!({"version_info": version.to_string(), "resources": [edge(version)]});
    let mut file = tempfile::NamedTempFile::new_in(folder).unwrap();
    file.write_all(update.to_string().as_bytes()).unwrap();
    file.persist(folder.join("listeners.json")).unwrap();
}

/// Listeners come from a file that is replaced many times, under load.
pub fn updates(binary: &Binary) {
    let count = env::var("TIDEGATE_LISTENER_UPDATES").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let folder = tempfile::tempdir().unwrap();
    let rules = folder.path().join("rules.yaml");
    std::fs::write(&rules, RULES).unwrap();
    write(folder.path(), 0);
    let config = json!({
        "node": {"id": "test", "cluster": "test"},
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
        "dynamic_resources": {"lds_config": {"path_config_source": {"path": folder.path().join("listeners.json")}}},
        "static_resources": {"listeners": [application()], "clusters": clusters(None)},
    });
    let envoy = Envoy::start(binary, &config, &[("TIDEGATE_RULES", rules.to_str().unwrap())]);
    let address = eventually("the listener", || envoy.find_listener("edge"));
    let (stop, served) = (AtomicBool::new(false), AtomicU64::new(0));
    let memory = thread::scope(|scope| {
        let load = scope.spawn(|| load(&address, &stop, &served));
        let memory = replace(&envoy, folder.path(), count);
        stop.store(true, Ordering::Relaxed);
        load.join().unwrap();
        memory
    });
    let served = served.into_inner();
    assert!(served > 2 * count as u64, "{served} requests beside {count} updates");
    let denied = Connection::open(&address).unwrap().send(&keyed("load")).unwrap();
    assert_eq!(denied.status, 429, "counters are kept");
    let (first, last) = memory;
    let updates = (count - count / 4) as u64;
    eprintln!("{updates} updates, {served} requests: {first} bytes resident before, {last} after");
    if count >= 200 {
        let growth = last.saturating_sub(first) / updates;
        assert!(growth <= GROWTH_MAX, "{growth} bytes for each of {updates} updates");
    }
}

fn keyed(key: &str) -> Request {
    Request::get("/").header("x-api-key", key)
}

/// Sends requests until it is stopped. Envoy closes connections when it replaces a listener.
fn load(address: &str, stop: &AtomicBool, served: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut connection) = Connection::open(address) else { continue };
        while let Ok(response) = connection.send(&keyed("load")) {
            assert!([200, 429].contains(&response.status), "{response:?}");
            served.fetch_add(1, Ordering::Relaxed);
            if stop.load(Ordering::Relaxed) || response.header("connection") == Some("close") {
                break;
            }
        }
    }
}

/// Replaces the listener `count` times; returns the bytes of memory after a quarter of them, and at the end.
fn replace(envoy: &Envoy, folder: &Path, count: usize) -> (u64, u64) {
    let mut first = 0;
    for version in 1..=count {
        write(folder, version);
        eventually("the update", || {
            let (_, page) = envoy.admin("/config_dump?resource=dynamic_listeners")?;
            page.contains(&format!("\"version-{version}\"")).then_some(())
        });
        if version == count / 4 {
            first = envoy.resident();
        }
    }
    // Former versions stay for a second, for their open connections.
    thread::sleep(std::time::Duration::from_secs(2));
    (first, envoy.resident())
}
