//! Kuadrant's service: checks count nothing, reports count beyond the limit.

use crate::support::{Server, rules_file};
use tidegate::api::pb::{
    common::{RateLimitDescriptor, rate_limit_descriptor::Entry},
    kuadrant_v1::rate_limit_service_client::RateLimitServiceClient,
    service::{RateLimitRequest, rate_limit_response::Code},
};
use tonic::{Code as Status, transport::Channel};

struct Kuadrant(RateLimitServiceClient<Channel>);

fn request(key: &str, hits_addend: u32) -> RateLimitRequest {
    let entries = vec![Entry { key: key.into(), value: "a".into() }];
    let descriptors = vec![RateLimitDescriptor { entries, ..RateLimitDescriptor::default() }];
    RateLimitRequest { domain: "d".into(), descriptors, hits_addend }
}

impl Kuadrant {
    async fn check(&mut self, key: &str) -> Code {
        self.0.check_rate_limit(request(key, 7)).await.expect("a decision").into_inner().overall_code()
    }

    async fn report(&mut self, key: &str, hits: u32) {
        let response = self.0.report(request(key, hits)).await.expect("a decision").into_inner();
        assert_eq!((response.overall_code(), response.statuses.len()), (Code::Ok, 0));
    }
}

/// With the semantics of the reference server a request without hits is admitted at exactly the limit. Checks used to be admitted there
/// too, which was one too many.
#[tokio::test]
async fn a_check_at_exactly_the_limit_is_over_in_any_semantics() {
    let text = "domain: d\ndescriptors:\n\
                - {key: window, rate_limit: {unit: day, requests_per_unit: 3}}\n\
                - {key: bucket, rate_limit: {unit: day, requests_per_unit: 3, algorithm: token_bucket}}\n";
    let rules = rules_file(text);
    for compat in [&["--test-clock"][..], &["--test-clock", "--compat", "reference"]] {
        let server = Server::with_rules(rules.path(), compat);
        let mut client = Kuadrant(RateLimitServiceClient::new(server.channel().await));
        for key in ["window", "bucket"] {
            client.report(key, 2).await;
            assert_eq!(client.check(key).await, Code::Ok, "{key} {compat:?}");
            client.report(key, 1).await;
            assert_eq!(client.check(key).await, Code::OverLimit, "{key} {compat:?}");
        }
        // A peek of Envoy's service follows the semantics.
        let mut peek = request("window", 0);
        peek.descriptors[0].hits_addend = Some(0);
        let peeked = server.client().await.0.should_rate_limit(peek).await.expect("a decision");
        let expected = if compat.len() == 1 { Code::OverLimit } else { Code::Ok };
        assert_eq!(peeked.into_inner().overall_code(), expected, "{compat:?}");
    }
}

#[tokio::test]
async fn checks_count_nothing_and_reports_count_beyond_the_limit() {
    let text = "domain: d\ndescriptors:\n\
                - {key: window, rate_limit: {unit: day, requests_per_unit: 3}}\n\
                - {key: queue, rate_limit: {per: 1000s, requests_per_unit: 1, algorithm: leaky_bucket, burst: 2, max_wait: 1h}}\n";
    let rules = rules_file(text);
    let server = Server::with_rules(rules.path(), &[]);
    let mut client = Kuadrant(RateLimitServiceClient::new(server.channel().await));
    for key in ["window", "queue"] {
        for _ in 0..9 {
            assert_eq!(client.check(key).await, Code::Ok, "{key}");
        }
    }
    client.report("window", 2).await;
    assert_eq!(client.check("window").await, Code::Ok);
    // One hit fits; nine were used.
    client.report("window", 9).await;
    assert_eq!(client.check("window").await, Code::OverLimit);
    // Hits of a report are not queued.
    client.report("queue", 0).await;
    client.report("queue", 1).await;
    client.report("queue", 1).await;
    assert_eq!(client.check("queue").await, Code::OverLimit);
    // Envoy's service has the same counters.
    let hit = server.client().await.hit("d", &[("window", "a")]).await.expect("a decision");
    assert_eq!(hit.overall_code(), Code::OverLimit);
    let refused = client.0.report(RateLimitRequest::default()).await.expect_err("no domain");
    assert_eq!(refused.code(), Status::InvalidArgument);
}
