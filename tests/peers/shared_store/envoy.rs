//! One limit over three servers behind a real Envoy.

use super::RedisServer;
use crate::{
    envoy_process::Envoy,
    support::{Server, http1, rules_file},
    tests_with,
};
use http::Request;
use std::{collections::BTreeMap, fs, net::Ipv4Addr, path::Path};

tests_with! { ENVOY, REDIS: three_servers_share_one_limit }

/// The listener that fails closed, so that a request passes only by a decision; the port of the config.
const FAIL_CLOSED: u16 = 10001;

const RULES: &str = "
domain: edge
descriptors:
  - key: route
    value: login
    descriptors:
      - {key: remote_address, rate_limit: {unit: day, requests_per_unit: 100}}
";

/// Requests that Envoy has in flight at once.
const CLIENTS: usize = 8;
const REQUESTS: usize = 1_000;

async fn three_servers_share_one_limit() {
    let store = RedisServer::start();
    let rules = rules_file(RULES);
    let url = store.url();
    // The limit is exact while the store decides: a loaded machine may take longer than 10 ms.
    let args = ["--counters", &url, "--on-store-failure", "deny", "--counters-timeout", "2s"];
    let args = [&args[..], &["--http-listen", "127.0.0.1:0"]].concat();
    let servers = [(); 3].map(|()| Server::with_rules(rules.path(), &args));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/envoy/http.yaml");
    let config =
        fs::read_to_string(path).expect("a config of deploy/envoy").replace("timeout: 0.25s", "timeout: 5s");
    let endpoint = "- endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 8081 } } }";
    let line = config.lines().find(|line| line.trim() == endpoint).expect("the endpoint of the server");
    let more = |port: &str| line.replace("8081", port);
    let config = config.replacen(line, &[line, &more("8082"), &more("8083")].join("\n"), 1);
    let port = |server: &Server| {
        server.address().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
    };
    let given = [(8082, port(&servers[1])), (8083, port(&servers[2]))];
    let envoy = Envoy::start_with(&config, servers[0].address(), &given).await;
    let port = envoy.port(FAIL_CLOSED);
    let clients = (0..CLIENTS).map(|_| {
        tokio::spawn(async move {
            let mut statuses = Vec::new();
            for _ in 0..REQUESTS / CLIENTS {
                let response = http1::fetch(Ipv4Addr::LOCALHOST, port, Request::get("/login")).await;
                statuses.push(response.expect("Envoy responds").status().as_u16());
            }
            statuses
        })
    });
    let mut counts: BTreeMap<u16, usize> = BTreeMap::new();
    for client in clients.collect::<Vec<_>>() {
        for status in client.await.expect("no client panics") {
            *counts.entry(status).or_default() += 1;
        }
    }
    println!("three servers, one store, Envoy: {REQUESTS} requests for a limit of 100: {counts:?}");
    assert_eq!(counts, BTreeMap::from([(200, 100), (429, REQUESTS - 100)]));
    let (mut decided, mut by_lease) = (Vec::new(), Vec::new());
    for server in &servers {
        let page = http1::fetch(Ipv4Addr::LOCALHOST, server.admin_port(), Request::get("/metrics")).await;
        let page = String::from_utf8_lossy(page.expect("a response").body()).into_owned();
        let metric = |name: &str| {
            let value = page.lines().find_map(|line| line.strip_prefix(name)).expect("a metric");
            value.trim().parse::<usize>().expect("a number")
        };
        decided.push(metric("tidegate_shared_decisions_total{result=\"decided\"}"));
        let of_leases = ["admitted", "denied"]
            .map(|result| metric(&format!("tidegate_lease_decisions_total{{result=\"{result}\"}}")));
        by_lease.push(of_leases);
        assert!(server.log().iter().all(|line| !line.contains("shared store unavailable")));
    }
    println!("decided for each server by the store: {decided:?}; by leases and denials kept: {by_lease:?}");
    let kept: usize = by_lease.iter().map(|[_, denied]| denied).sum();
    // A limit of 100 is too small to be leased, but its denials are kept.
    assert!(by_lease.iter().all(|[admitted, _]| *admitted == 0), "{by_lease:?}");
    assert!(decided.iter().all(|&decided| decided > 0) && kept > 0, "{decided:?}, {by_lease:?}");
    assert_eq!(decided.iter().sum::<usize>() + kept, REQUESTS, "{decided:?}, {by_lease:?}");
}
