//! A recipe whose counts only a real Envoy makes: hits by the code of the response.

use crate::{
    envoy_config,
    envoy_process::Envoy,
    support::{Server, descriptor, eventually, http1, rules_file},
};
use std::net::Ipv4Addr;
use tidegate::api::pb::common::RateLimitDescriptor;

crate::tests_with! { ENVOY: the_recipe_for_failed_responses_counts_these_alone }

const RECIPES: &str = include_str!("../../../docs/recipes.md");
const HEADING: &str = "\n## Only failed responses count\n";

/// The application returns 200 for one path, and 404 for all others.
const ROUTES: &str = "\
- { match: { path: /coupon/right }, direct_response: { status: 200 } }
- { match: { prefix: / }, direct_response: { status: 404 } }";

/// The first two YAML blocks of the recipe: its rules, and the entries of Envoy.
fn recipe() -> [&'static str; 2] {
    let (_, section) = RECIPES.split_once(HEADING).expect("the recipe");
    let mut blocks =
        section.split("```yaml\n").skip(1).map(|block| block.split("```").next().expect("an end"));
    [(); 2].map(|()| blocks.next().expect("rules, and entries of Envoy"))
}

async fn the_recipe_for_failed_responses_counts_these_alone() {
    let [rules, entries] = recipe();
    let filter = envoy_config::rate_limit(&format!("domain: shop\nfailure_mode_deny: true\n{entries}"));
    let server = Server::with_rules(rules_file(rules).path(), &[]);
    let envoy = Envoy::start_with(&envoy_config::bootstrap("", &filter, ROUTES), server.address(), &[]).await;
    let get = async |path: &str| {
        let response =
            http1::fetch(Ipv4Addr::LOCALHOST, envoy.port(envoy_config::LISTENER), http::Request::get(path))
                .await;
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
