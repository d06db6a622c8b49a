//! One limit, spent through three real Envoys that decide in three ways: by calls of the server (`ratelimit`), by credits in their own
//! process (the module), and by quotas (`rate_limit_quota`).

use super::{
    APPLICATION,
    load::{BackEnd, Client},
    quotas::LISTENER,
    rlqs_filters,
};
use crate::{
    envoy_process::{Envoy, Program},
    support::{Server, eventually, http1, rules_file},
};
use http::Request;
use std::{env, ffi::OsStr, net::Ipv4Addr, path::PathBuf, process::Command};

crate::tests_with! { ENVOY: calls_credits_and_quotas_spend_one_limit }

/// Limits that leases and quotas divide: a bucket, a window that quotas divide by rates, and a window that they divide by slices.
const RULES: &str = "
domain: shop
rlqs: { clients: 1, unrecorded: 100% }
descriptors:
  - key: api_key
    value: bucket
    rate_limit: { unit: second, requests_per_unit: 200, algorithm: token_bucket, size: 600 }
  - key: api_key
    value: window
    rate_limit: { per: 10s, requests_per_unit: 1500, algorithm: sliding_log }
  - key: api_key
    value: slices
    rate_limit: { per: 20m, requests_per_unit: 3000, algorithm: sliding_log }
";

const BUCKET: (f64, f64) = (200.0, 600.0);
const WINDOW: (f64, f64) = (1_500.0, 10.0);
const SLICES: usize = 3_000;

/// Keys, and the requests per second that a client of each Envoy sends with each key.
const KEYS: [(&str, u32); 3] = [("bucket", 130), ("window", 100), ("slices", 60)];

/// Seconds in which the server assigns no quota after its start, and then until shares follow the demand.
const SETTLED: f64 = 32.0;
/// Seconds that are measured after that.
const MEASURED: f64 = 15.0;

const RATE_LIMIT: &str = r#"- name: envoy.filters.http.ratelimit
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
    domain: shop
    failure_mode_deny: true
    timeout: 0.5s
    rate_limit_service: { transport_api_version: V3, grpc_service: { envoy_grpc: { cluster_name: tidegate } } }
    rate_limits: [{ actions: [{ request_headers: { header_name: x-api-key, descriptor_key: api_key } }] }]
"#;

const MODULE: &str = r#"- name: tidegate
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter
    dynamic_module_config: { name: tidegate, do_not_close: true }
    filter_name: ratelimit
    filter_config:
      "@type": type.googleapis.com/google.protobuf.Struct
      value:
        domain: shop
        failure_mode_deny: true
        timeout: 0.5s
        rate_limit_service: { transport_api_version: V3, grpc_service: { envoy_grpc: { cluster_name: tidegate } } }
        rate_limits: [{ actions: [{ request_headers: { header_name: x-api-key, descriptor_key: api_key } }] }]
        tidegate: { server: { address: "ADDRESS" } }
"#;

/// The folder of the module, which is built unless it is there: to Cargo, this test does not depend on it.
fn modules() -> PathBuf {
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--locked", "--package", "tidegate-envoy", "--lib"]);
    // With the variables of this test's package, the build script of ring would run again, and everything that depends on it be built
    // again.
    for (name, _) in env::vars_os().filter(|(name, _)| is_of_package(name)) {
        build.env_remove(name);
    }
    let status = build.current_dir(env!("CARGO_MANIFEST_DIR")).status();
    assert!(status.is_ok_and(|status| status.success()), "libtidegate.so does not build");
    let test = env::current_exe().expect("a program");
    test.parent().and_then(|deps| deps.parent()).expect("in a folder of build products").to_owned()
}

/// Whether Cargo sets this variable for the package that it runs.
fn is_of_package(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")
}

async fn calls_credits_and_quotas_spend_one_limit() {
    let program = Program { modules: Some(modules()), ..Program::new() };
    let rules = rules_file(RULES);
    // On a socket, users of this machine may hold credits.
    let folder = tempfile::tempdir().expect("a folder");
    let socket = format!("unix:{}", folder.path().join("socket").display());
    let server = Server::with_rules(rules.path(), &["--leases", "--listen", &socket]);
    let (back_end, port) = BackEnd::start();
    let filters = [
        rlqs_filters::config(RATE_LIMIT),
        rlqs_filters::config(&MODULE.replace("ADDRESS", &socket)),
        rlqs_filters::config(&rlqs_filters::printed(rules.path(), &["api_key=header:x-api-key"], "deny")),
    ];
    let mut all = Vec::new();
    for config in &filters {
        let envoy = Envoy::start_program(&program, config, server.address(), &[(APPLICATION, port)]).await;
        // Until the module reaches the server, its failure mode decides.
        let port_of_clients = envoy.port(LISTENER);
        eventually("the filter reaches the server", async || {
            match http1::fetch(
                Ipv4Addr::LOCALHOST,
                port_of_clients,
                Request::get("/").header("x-api-key", "of no limit").header("x-sent", "0"),
            )
            .await
            {
                Ok(response) if response.status() != 500 => Ok(()),
                other => Err(other.map(|response| response.status())),
            }
        })
        .await;
        let start = |(key, rate)| Client::start(&back_end, port_of_clients, key, rate);
        let clients = KEYS.map(start);
        all.push((envoy, clients));
    }
    back_end.until(SETTLED).await;
    let admitted = || all.iter().map(|(_, clients)| clients.each_ref().map(Client::admitted));
    let before: Vec<[usize; 3]> = admitted().collect();
    back_end.until(SETTLED + MEASURED).await;
    let [bucket, window, slices] = KEYS.map(|(key, _)| back_end.rate(key, SETTLED, SETTLED + MEASURED));
    println!("bucket {bucket:.1}/s of {}, window {window:.1}/s of {}", BUCKET.0, WINDOW.0 / WINDOW.1);
    for (name, (now, before)) in ["calls", "credits", "quotas"].iter().zip(admitted().zip(&before)) {
        println!("{name}: {now:?} admitted, {before:?} of them before");
        // Each Envoy has a part of each limit.
        assert!(now.iter().all(|count| *count > 100), "{name}: {now:?}");
        assert!(now[0] > before[0] + 100 && now[1] > before[1] + 100, "{name}: {now:?}, {before:?}");
    }
    let beyond_bucket = back_end.most_beyond("bucket", |seconds| BUCKET.0 * seconds + BUCKET.1);
    let beyond_window = back_end.most_beyond("window", |seconds| WINDOW.0 * (seconds / WINDOW.1).ceil());
    let count = back_end.count("slices");
    println!(
        "bucket {beyond_bucket:.0} and window {beyond_window:.0} beyond the limit, slices {count} of {SLICES}"
    );
    assert!(beyond_bucket <= 0.0 && beyond_window <= 0.0 && count <= SLICES);
    // The limit did not hold merely because little was admitted. Quotas hold a larger part of a short window than they spend.
    assert!(bucket >= 0.9 * BUCKET.0 && window >= 0.6 * WINDOW.0 / WINDOW.1);
    assert!(count as f64 >= 0.95 * SLICES as f64 && slices < 10.0, "{count}, {slices}");
}
