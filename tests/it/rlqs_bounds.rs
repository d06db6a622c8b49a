//! Bounds on what clients of quotas report (RLQS).

use crate::{
    admin::metrics,
    rlqs::{ALLOW_ALL, Client, RULES, bucket, serve},
    streaming_calls::rss,
    support::eventually,
};
use std::{net::Ipv4Addr, time::Duration};
use tidegate::api::pb::quota::{
    RateLimitQuotaUsageReports, rate_limit_quota_usage_reports::BucketQuotaUsage,
};
use tidegate_core::clock::{Clock as _, SystemClock};
use tonic::Code;

const HOSTILE: usize = 4;

/// A message with requests to this many buckets.
fn reports(buckets: usize) -> RateLimitQuotaUsageReports {
    let usage = |value: usize| BucketQuotaUsage {
        bucket_id: Some(bucket(&[("plan", &value.to_string())])),
        num_requests_allowed: 1,
        ..BucketQuotaUsage::default()
    };
    let bucket_quota_usages = (0..buckets).map(usage).collect();
    RateLimitQuotaUsageReports { domain: "shop".to_owned(), bucket_quota_usages }
}

/// Streams of one address report a thousand buckets each, as fast as the server reads them.
#[tokio::test]
async fn clients_that_report_all_the_time_do_not_delay_the_assignments_of_others() {
    let server = serve(RULES, &["--http-listen", "127.0.0.1:0"]);
    let began = SystemClock::new().now();
    let mut hostile = Vec::new();
    for _ in 0..HOSTILE {
        let Client { reports: sender, mut responses } = Client::open(&server).await;
        hostile.push(tokio::spawn(async move { while sender.send(reports(1_000)).await.is_ok() {} }));
        hostile.push(tokio::spawn(async move { while let Ok(Some(_)) = responses.message().await {} }));
    }
    let mut honest = Client::open_from(&server, Ipv4Addr::new(127, 0, 0, 2)).await;
    let mut longest = Duration::ZERO;
    for _ in 0..20 {
        let sent = SystemClock::new().now();
        honest.report("shop", &[&[("plan", "gold")]], 1).await;
        assert_eq!(honest.strategy().await, ALLOW_ALL);
        longest = longest.max(SystemClock::new().now().since(sent));
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let page = metrics(server.admin_port()).await;
    let (count, secs) =
        (page["tidegate_quota_reports_total"], SystemClock::new().now().since(began).as_secs_f64());
    println!("{count} reports in {secs:.1} s, an assignment took {longest:?} at most");
    // Fifty thousand reports of the address in a second, as many again at once, and the messages that exceed that.
    assert!(count >= 10_000.0 && count <= 50_000.0 * (secs + 1.5), "{count} in {secs} s");
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    hostile.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn reports_beyond_the_bounds_of_a_message_and_a_stream_are_counted() {
    let server = serve(RULES, &["--http-listen", "127.0.0.1:0"]);
    let mut client = Client::open(&server).await;
    client.reports.send(reports(4_100)).await.expect("the stream is open");
    let mut assigned = 0;
    while assigned < 1_000 {
        assigned += client.next().await.expect("assignments").len();
    }
    assert_eq!(assigned, 1_000);
    // The last reports are processed after those that already have assignments.
    let look = async || {
        let page = metrics(server.admin_port()).await;
        let refused = page["tidegate_quota_refused_reports_total{reason=\"buckets\"}"];
        let seen = (page["tidegate_quota_reports_total"], refused);
        if seen == (4_000.0, 3_100.0) { Ok(()) } else { Err(seen) }
    };
    eventually("4,000 reports, 3,100 of them refused", look).await;
}

/// A stream that sent nothing used to keep its place for ever: two addresses with five hundred of them kept all others out.
#[tokio::test]
async fn streams_without_a_first_message_end() {
    let server = serve(RULES, &["--body-timeout", "500ms"]);
    let mut silent = Client::open(&server).await;
    assert_eq!(silent.end().await, Code::DeadlineExceeded);
    server.logged(r#""reason":"quota_first_message""#);
}

/// Streams that each report a thousand new buckets and end: half a minute of them used to kill a server in a cgroup of 512 MiB.
#[tokio::test]
async fn the_memory_of_buckets_of_ended_streams_is_bounded_and_calls_are_decided_meanwhile() {
    const MEMORY: u64 = 16 << 20;
    let rules = RULES.replace("    value: free\n", "");
    let memory = MEMORY.to_string();
    let server = serve(&rules, &["--http-listen", "127.0.0.1:0", "--max-quota-memory", &memory]);
    let mut calls = server.client().await;
    let (before, mut refused, mut streams) = (rss(&server), 0.0, 0);
    while refused == 0.0 {
        let client = Client::open(&server).await;
        let mut reports = reports(1_000);
        for (value, usage) in reports.bucket_quota_usages.iter_mut().enumerate() {
            usage.bucket_id = Some(bucket(&[("plan", &format!("{streams}-{value}"))]));
        }
        let Client { reports: sender, mut responses } = client;
        sender.send(reports).await.expect("the stream is open");
        drop(sender);
        // The stream ends once its reports are processed, or with RESOURCE_EXHAUSTED if there are too many.
        while let Ok(Some(_)) = responses.message().await {}
        calls.hit("shop", &[("plan", "one")]).await.expect("a call is decided");
        streams += 1;
        assert!(streams < 100, "nothing is refused");
        let page = metrics(server.admin_port()).await;
        refused = page["tidegate_quota_refused_reports_total{reason=\"memory\"}"];
        assert!(page["tidegate_quota_memory_bytes"] <= MEMORY as f64);
        assert_eq!(page["tidegate_quota_memory_max_bytes"], MEMORY as f64);
    }
    let grown = rss(&server).saturating_sub(before) << 10;
    println!("{streams} streams, {grown} bytes more");
    assert!(grown < 2 * MEMORY, "{grown} bytes of {MEMORY}");
    let mut other = Client::open_from(&server, Ipv4Addr::new(127, 0, 0, 2)).await;
    other.report("shop", &[&[("plan", "gold")]], 1).await;
    assert!(other.next().await.is_ok(), "another address has room");
}
