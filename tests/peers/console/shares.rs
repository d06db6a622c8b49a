//! The page of clients' shares: buckets that two clients divide, a client that leaves, and the node of a lease.

use super::{Browser, Shop};
use crate::{
    lease_node::{Fate, Node},
    support::Server,
};
use serde_json::json;
use std::{env, time::Duration};
use tidegate::api::pb::quota::{
    BucketId, RateLimitQuotaUsageReports, bucket_id::BucketEntry,
    rate_limit_quota_service_client::RateLimitQuotaServiceClient,
    rate_limit_quota_usage_reports::BucketQuotaUsage,
};
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_shared::lease::Monotonic;
use tokio::{sync::mpsc, task::JoinHandle, time::sleep};
use tokio_stream::wrappers::ReceiverStream;

crate::tests_with! { CHROMIUM: shares_of_quotas_and_leases_are_shown_as_they_change }

pub(super) const RULES: &str = "
domain: d
rlqs: { clients: 2, unrecorded: 100% }
descriptors:
  - key: a
    rate_limit: { unit: hour, requests_per_unit: 1000000 }
  - key: plan
    rate_limit: { unit: second, requests_per_unit: 100, algorithm: token_bucket }
";

/// The value of the bucket: it has to be escaped, except on pictures of the documentation.
fn plan() -> &'static str {
    if env::var_os("TIDEGATE_PICTURES").is_some() { "free" } else { "<b>free</b>" }
}

/// Reports this many requests every second, until it is aborted.
pub(super) async fn reports(server: &Server, per_second: u64) -> JoinHandle<()> {
    let mut client = RateLimitQuotaServiceClient::new(server.channel().await);
    let (sender, receiver) = mpsc::channel(1);
    let responses = client.stream_rate_limit_quotas(ReceiverStream::new(receiver)).await;
    let mut responses = responses.expect("the response begins at once").into_inner();
    tokio::spawn(async move {
        let read = async { while let Ok(Some(_)) = responses.message().await {} };
        let write = async {
            loop {
                let bucket = vec![BucketEntry { key: "plan".into(), value: plan().into() }];
                let usage = BucketQuotaUsage {
                    bucket_id: Some(BucketId { bucket }),
                    num_requests_allowed: per_second,
                    ..BucketQuotaUsage::default()
                };
                let domain = "d".to_owned();
                let message = RateLimitQuotaUsageReports { domain, bucket_quota_usages: vec![usage] };
                if sender.send(message).await.is_err() {
                    return;
                }
                sleep(Duration::from_secs(1)).await;
            }
        };
        tokio::join!(read, write);
    })
}

/// Holds credits until it is aborted.
fn holds(mut node: Node) -> JoinHandle<()> {
    let clock = SystemClock::new();
    let began = clock.now();
    let now = move || {
        let nanos = u64::try_from(clock.now().since(began).as_nanos()).expect("no centuries");
        Monotonic::from_nanos(nanos + 1_000_000)
    };
    tokio::spawn(async move {
        loop {
            for _ in 0..20 {
                node.decide("x", now()).await.expect("a decision");
            }
            node.exchange(now(), Fate::Answered).await.expect("a grant");
            sleep(Duration::from_millis(5)).await;
        }
    })
}

async fn shares_of_quotas_and_leases_are_shown_as_they_change() {
    let (shop, browser) = (Shop::start(RULES, &["--leases"]), Browser::start().await);
    let server = shop.server.as_ref().expect("it runs");
    browser.look(1280, "light").await;
    shop.open(&browser, "shares", &shop.read).await;
    browser.shows("0 buckets, 0 streams").await;
    browser.shows("No client holds credits").await;

    let (small, large) = (reports(server, 20).await, reports(server, 60).await);
    browser.shows("1 bucket, 2 streams; the server has just started").await;
    let mut node = Node::new(7, server.channel().await);
    node.token = Some(shop.operate.clone());
    let held = holds(node);
    browser.shows("1 node, 1 lease").await;
    browser.shows("token:operate").await;
    // After the server has learned, shares are shown, each with its bar, and the client with more demand first.
    browser.until("return document.body.innerText.includes('ends in') && !document.body.innerText.includes('lately')", "shares grow").await;
    browser.shows(&format!("plan={}", plan())).await;
    let widths = "const bars = [...document.querySelectorAll('h3 ~ div td .bar > i')].map((bar) => parseFloat(bar.style.width)); \
                  return bars.length === 2 && bars[0] > bars[1] && bars[1] > 0 && bars[0] + bars[1] <= 100.1";
    browser.until(widths, "two bars of one bucket").await;
    assert_eq!(browser.run("return document.querySelectorAll('h3 b').length", &[]).await, json!(0));
    for width in [360, 1280] {
        browser.look(width, "light").await;
        let overflow = "return document.documentElement.scrollWidth - document.documentElement.clientWidth";
        assert_eq!(browser.run(overflow, &[]).await, json!(0), "at {width}");
    }
    super::pictures::take_picture(&browser, "shares").await;

    // The share of a client is held until the end of its assignment.
    small.abort();
    browser.shows("Held by clients that have gone").await;
    held.abort();
    browser.shows("No client holds credits").await;
    browser.write("main input[type=search]", "plan=gold").await;
    browser.shows("0 buckets, 1 stream").await;
    let address = browser.run("return location.hash", &[]).await;
    assert_eq!(address, json!("#/shares?contains=plan%3Dgold"));
    large.abort();
}
