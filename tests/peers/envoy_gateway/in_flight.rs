//! Limits of requests in flight behind Envoy Gateway: a file beside the rules of a policy turns its limit into one, and an EnvoyPatchPolicy
//! adds the end of a request.

use super::{Cluster, LISTENER, Network, Pod, eventually};
use crate::support::http1;
use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

/// The policy's rule as a limit of requests in flight.
const EXTENSIONS: &str = "
domain: default/eg/http
extensions:
  - key: httproute/default/backend/rule/0/match/0/*
    value: httproute/default/backend/rule/0/match/0/*
    descriptors:
      - key: rule-0-match-0
        rate_limits: [{algorithm: concurrency, requests_in_flight: 3, max_hold: 60s}]
";

/// The most requests at a time that the backend has seen.
static MOST: AtomicUsize = AtomicUsize::new(0);

/// The time for which the backend holds a request.
const HOLD: Duration = Duration::from_millis(1_500);

fn serve_slowly() {
    static HELD: AtomicUsize = AtomicUsize::new(0);
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 3000)).unwrap();
    for stream in listener.incoming() {
        thread::spawn(move || {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            MOST.fetch_max(HELD.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            thread::sleep(HOLD);
            HELD.fetch_sub(1, Ordering::Relaxed);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        });
    }
}

/// The statuses of this many requests of one user at a time, sorted; requests that are given up after this time have status 0.
fn parallel(node: &Network, count: usize, patience: Duration) -> Vec<u16> {
    node.block_on(async move {
        let requests = (0..count).map(|_| {
            tokio::spawn(async move {
                let request = http::Request::get("/").header("x-user-id", "alice");
                let answer =
                    tokio::time::timeout(patience, http1::fetch(Ipv4Addr::LOCALHOST, LISTENER, request))
                        .await;
                answer.ok().and_then(Result::ok).map_or(0, |answer| answer.status().as_u16())
            })
        });
        let mut statuses = Vec::new();
        for request in requests.collect::<Vec<_>>() {
            statuses.push(request.await.unwrap());
        }
        statuses.sort_unstable();
        statuses
    })
}

async fn a_policy_of_the_gateway_limits_requests_in_flight() {
    tokio::task::spawn_blocking(limit_in_flight).await.unwrap();
}

fn limit_in_flight() {
    let resources = format!("{}---\n{}", super::resources(3), include_str!("in_flight.yaml"));
    let mut cluster = Cluster::with(&resources, serve_slowly);
    let hosts = cluster.files.path("hosts");
    let pod_network = Network::new(&hosts);
    cluster.node.link(&pod_network);
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let certs = cluster.files.certs("envoy-rate-limit");
    fs::write(certs.join("extensions.yaml"), EXTENSIONS).unwrap();
    let rules = "/certs/extensions.yaml:xds://envoy-gateway:18001?node=envoy-ratelimit";
    let pod = Pod::start(&pod_network, &folder, &certs, &hosts, &[("TIDEGATE_RULES", rules)]);
    cluster.start_gateway();
    cluster.start_envoy();

    let patience = Duration::from_secs(30);
    eventually("the limit of the file", || {
        parallel(&cluster.node, 1, patience) == [200] && pod.log().contains("rules reloaded")
    });
    MOST.store(0, Ordering::Relaxed);
    // Ends of the earlier requests may be on their way to the server. A lost end would hold a slot for a minute.
    eventually("three at a time", || {
        let statuses = parallel(&cluster.node, 8, patience);
        println!("8 at a time under a limit of 3: {statuses:?}");
        statuses == [200, 200, 200, 429, 429, 429, 429, 429]
    });
    assert_eq!(MOST.load(Ordering::Relaxed), 3, "at the backend");
    // Clients that have gone hold no slots. The backend does not notice that they have gone.
    parallel(&cluster.node, 3, HOLD / 3);
    eventually("the slots of clients that have gone", || {
        parallel(&cluster.node, 5, patience) == [200, 200, 200, 429, 429]
    });
}

crate::tests_with! { ENVOY_GATEWAY: a_policy_of_the_gateway_limits_requests_in_flight }
