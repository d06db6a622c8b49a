//! Bounds on what clients of quotas report (RLQS).

use crate::{
    admin::metrics,
    rlqs::{ALLOW_ALL, Client, RULES, bucket, serve},
};
use std::{net::Ipv4Addr, time::Duration};
use tidegate::api::pb::quota::{
    RateLimitQuotaUsageReports, rate_limit_quota_usage_reports::BucketQuotaUsage,
};
use tidegate_core::clock::{Clock as _, SystemClock};

const HOSTILE: usize = 4;

/// A message with requests to so many buckets.
fn reports(buckets: usize) -> RateLimitQuotaUsageReports {
    let usage = |value: usize| BucketQuotaUsage {
        bucket_id: Some(bucket(&[("plan", &value.to_string())])),
        num_requests_allowed: 1,
        ..BucketQuotaUsage::default()
    };
    let bucket_quota_usages = (0..buckets).map(usage).collect();
    RateLimitQuotaUsageReports { domain: "shop".to_owned(), bucket_quota_usages }
}

/// Streams of one address report a thousand buckets each, as fast as these are taken in.
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
    // A thousand in a second, twice as many at once, and the message that is beyond that.
    let of_each = count / HOSTILE as f64;
    assert!(of_each >= 2_000.0 && of_each <= 1_000.0 * (secs + 3.0), "{of_each} in {secs} s");
    assert!(longest < Duration::from_secs(5), "{longest:?}");
    assert!(hostile.iter().all(|task| !task.is_finished()), "streams stay open");
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
    let page = metrics(server.admin_port()).await;
    assert_eq!(page["tidegate_quota_reports_total"], 4_000.0);
    assert_eq!(page["tidegate_quota_refused_reports_total{reason=\"buckets\"}"], 3_100.0);
}
