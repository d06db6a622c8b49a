//! A recipe whose counts only a real Envoy makes: hits by the code of the response.

use crate::{
    envoy_process::Envoy,
    support::{Server, descriptor, eventually, http1, rules_file},
};
use std::net::Ipv4Addr;
use tidegate::api::pb::common::RateLimitDescriptor;

crate::tests_with! { ENVOY: the_recipe_for_failed_responses_counts_these_alone }

const RECIPES: &str = include_str!("../../../docs/recipes.md");
const HEADING: &str = "\n## Only failed responses count\n";

/// Envoy with the entries of the recipe. The application behind it returns 200 for one path, and 404 for all others.
const CONFIG: &str = r#"
admin: { address: { socket_address: { address: 127.0.0.1, port_value: 9901 } } }
static_resources:
  listeners:
    - name: edge
      address: { socket_address: { address: 127.0.0.1, port_value: 10000 } }
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: edge
                http_filters:
                  - name: envoy.filters.http.ratelimit
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
                      domain: shop
                      timeout: 5s
                      failure_mode_deny: true
                      rate_limit_service: { transport_api_version: V3, grpc_service: { envoy_grpc: { cluster_name: tidegate } } }
                      RATE_LIMITS
                  - name: envoy.filters.http.router
                    typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
                route_config:
                  virtual_hosts:
                    - { name: all, domains: ["*"], routes: [{ match: { prefix: / }, route: { cluster: application } }] }
    - name: application
      address: { socket_address: { address: 127.0.0.1, port_value: 8080 } }
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: application
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes:
                        - { match: { path: /coupon/right }, direct_response: { status: 200 } }
                        - { match: { prefix: / }, direct_response: { status: 404 } }
  clusters:
    - name: application
      load_assignment: { cluster_name: application, endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 8080 } } } }] }] }
    - name: tidegate
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: { http2_protocol_options: {} }
      load_assignment: { cluster_name: tidegate, endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: 8081 } } } }] }] }
"#;

/// The first two YAML blocks of the recipe: its rules, and the entries of Envoy.
fn recipe() -> [&'static str; 2] {
    let (_, section) = RECIPES.split_once(HEADING).expect("the recipe");
    let mut blocks =
        section.split("```yaml\n").skip(1).map(|block| block.split("```").next().expect("an end"));
    [(); 2].map(|()| blocks.next().expect("rules, and entries of Envoy"))
}

async fn the_recipe_for_failed_responses_counts_these_alone() {
    let [rules, entries] = recipe();
    let entries: String = entries.lines().map(|line| format!("{line}\n{}", " ".repeat(22))).collect();
    let server = Server::with_rules(rules_file(rules).path(), &[]);
    let envoy = Envoy::start_with(&CONFIG.replace("RATE_LIMITS", &entries), server.address(), &[]).await;
    let get = async |path: &str| {
        let response = http1::fetch(Ipv4Addr::LOCALHOST, envoy.port(10000), http::Request::get(path)).await;
        response.expect("a response").status().as_u16()
    };
    let mut client = server.client().await;
    // Reports are sent when a response is complete, and nothing waits for them.
    let mut remaining_is = async |expected: u32| {
        eventually(&format!("{expected} failures left"), async || {
            let peek = descriptor(&[("generic_key", "failures"), ("remote_address", "127.0.0.1")]);
            let peek = RateLimitDescriptor { hits_addend: Some(0), ..peek };
            let response = client.should_rate_limit("shop", vec![peek]).await.expect("a decision");
            let remaining = response.statuses[0].limit_remaining;
            if remaining == expected { Ok(()) } else { Err(remaining) }
        })
        .await;
    };
    eventually("Envoy has its server", async || match get("/coupon/right").await {
        200 => Ok(()),
        other => Err(other),
    })
    .await;
    for failure in 1..=20 {
        assert_eq!(get("/coupon/right").await, 200);
        assert_eq!(get("/coupon/guess").await, 404, "failure {failure} is admitted");
        remaining_is(20 - failure).await;
    }
    assert_eq!(get("/coupon/right").await, 429, "20 failures are the limit");
}
