//! One request a second against 5 per 10 s on `sliding_log`: of sixty requests, thirty are admitted, in alternating runs of 5, because
//! denied requests do not count. Tested through the library, and through a running server whose clock the test sets.

use crate::support::{Client, InProcess, descriptor, limiter};
use std::time::Duration;
use tidegate::api::{
    PRECISION_HEADER,
    pb::service::{RateLimitRequest, RateLimitResponse, rate_limit_response::Code as WireCode},
};
use tidegate_core::limit::{Code, Descriptor, Entry, Hits, Request, RequestLimits, Timestamp};
use tonic::metadata::MetadataValue;

const RULES: &str = "
domain: d
descriptors: [{key: user, rate_limit: {per: 10s, requests_per_unit: 5, algorithm: sliding_log}}]
";

/// Not at a multiple of any window: a log has no windows.
const START: Timestamp = Timestamp::from_nanos(1_700_006_403_217_000_001);

fn after(elapsed: Duration) -> Timestamp {
    START.saturating_add_nanos(u64::try_from(elapsed.as_nanos()).expect("less than five hundred years"))
}

/// A letter for each second: `y` if its request was admitted.
fn expected() -> String {
    "yyyyynnnnn".repeat(6)
}

fn letter(is_admitted: bool) -> char {
    if is_admitted { 'y' } else { 'n' }
}

#[test]
fn through_the_library() {
    let limiter = limiter(RULES);
    let send = |second| {
        let mut request = Request::new("d");
        let entries = [Entry { key: "user", value: "a" }].into_iter().collect();
        request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
        let request = request.checked(&RequestLimits::default()).expect("a good request");
        let pinned = limiter.pin();
        let decision = pinned.decide(&request, after(Duration::from_secs(second)));
        letter(decision.code == Code::Ok)
    };
    assert_eq!((0..60).map(send).collect::<String>(), expected());
}

#[tokio::test]
async fn through_a_running_server() {
    let server = InProcess::start(RULES, START);
    let mut client = server.client().await;
    let mut answered = String::new();
    for second in 0..60 {
        server.clock.advance_to(after(Duration::from_secs(second)));
        let answer = client.hit("d", &[("user", "a")]).await.expect("an answer");
        answered.push(letter(answer.overall_code() == WireCode::Ok));
    }
    assert_eq!(answered, expected());
}

/// The reset on the wire is the nanosecond from which on the same request is admitted.
#[tokio::test]
async fn a_denial_through_the_server_ends_exactly_at_its_reset() {
    let server = InProcess::start(RULES, START);
    let mut client = server.client().await;
    let send = async |elapsed: Duration, client: &mut Client| -> RateLimitResponse {
        server.clock.advance_to(after(elapsed));
        let descriptors = vec![descriptor(&[("user", "a")])];
        let mut request =
            tonic::Request::new(RateLimitRequest { domain: "d".into(), descriptors, hits_addend: 0 });
        request.metadata_mut().insert(PRECISION_HEADER, MetadataValue::from_static("exact"));
        client.0.should_rate_limit(request).await.expect("an answer").into_inner()
    };
    for taken_at in 0..5 {
        send(Duration::from_millis(taken_at * 700), &mut client).await;
    }
    let denied_at = Duration::new(3, 123_456_789);
    let denial = send(denied_at, &mut client).await;
    let reset = denial.statuses[0].duration_until_reset.expect("a denial has a reset");
    let wait = Duration::try_from(reset).expect("a wait is not negative");
    assert_eq!(wait, Duration::from_secs(10) - denied_at);
    let a_nanosecond_less = send(denied_at + wait - Duration::from_nanos(1), &mut client).await;
    assert_eq!(a_nanosecond_less.overall_code(), WireCode::OverLimit);
    assert_eq!(send(denied_at + wait, &mut client).await.overall_code(), WireCode::Ok);
}
