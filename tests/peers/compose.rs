//! The Envoy config and the rules of `deploy/compose`, with a real Envoy before a real server.

use crate::{
    envoy_process::Envoy,
    support::{Server, http1},
};
use http::Request;
use serde_json::Value;
use std::{net::Ipv4Addr, path::Path};

async fn the_compose_example_admits_five_requests_and_denies_the_sixth() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/compose");
    let server = Server::with_rules(&folder.join("rules/rules.yaml"), &[]);
    let config = std::fs::read_to_string(folder.join("envoy.yaml")).expect("the config");
    // Outside of Compose nothing resolves the service's name.
    let config = config.replace("STRICT_DNS", "STATIC").replace("address: tidegate,", "address: 127.0.0.1,");
    let envoy = Envoy::start_with(&config, server.address(), &[]).await;
    let mut statuses = Vec::new();
    for _ in 0..6 {
        let request = Request::get("/").header("x-api-key", "alice");
        let answer = http1::fetch(Ipv4Addr::LOCALHOST, envoy.port(10000), request).await;
        statuses.push(answer.expect("Envoy answers").status().as_u16());
    }
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
}

/// The page for Kubernetes shows the cluster that the test above runs, at another address.
async fn the_page_for_kubernetes_has_the_cluster_of_the_compose_example() {
    let page = include_str!("../../deploy/kubernetes/README.md");
    let (_, cluster) = page.split_once("```yaml\nclusters:").expect("a cluster");
    let (cluster, _) = cluster.split_once("```").expect("its end");
    let cluster = cluster.replace("tidegate.tidegate.svc.cluster.local", "tidegate");
    let shown: Value = serde_saphyr::from_str(&format!("clusters:{cluster}")).expect("YAML");
    let run: Value = serde_saphyr::from_str(include_str!("../../deploy/compose/envoy.yaml")).expect("YAML");
    let run = run["static_resources"]["clusters"].as_array().expect("clusters");
    assert_eq!(shown["clusters"][0], run[1]);
}

crate::tests_with! {
    ENVOY:
    the_compose_example_admits_five_requests_and_denies_the_sixth,
    the_page_for_kubernetes_has_the_cluster_of_the_compose_example,
}
