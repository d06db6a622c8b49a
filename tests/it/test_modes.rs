//! Modes for tests of clients: a server with a clock that is set, and a server that misbehaves.

use crate::support::{Client, Server, descriptor, rules_file};
use std::{process::Command, time::Duration};
use tidegate::api::pb::{
    service::{
        RateLimitRequest, rate_limit_response::Code, rate_limit_service_client::RateLimitServiceClient,
    },
    test::{SetRequest, clock_client::ClockClient},
};
use tonic::{Code as GrpcCode, Request};

const RULES: &str = "{domain: d, descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 1, algorithm: fixed_window}}]}";

fn at(seconds: i64) -> SetRequest {
    SetRequest { now: Some(prost_types::Timestamp { seconds, nanos: 0 }) }
}

async fn hit(client: &mut Client) -> Code {
    client.hit("d", &[("user", "a")]).await.expect("an answer").overall_code()
}

#[tokio::test]
async fn time_is_fixed_until_a_client_sets_it_and_never_runs_backwards() {
    let server = Server::with_rules(rules_file(RULES).path(), &["--test-clock"]);
    let (mut client, mut clock) = (server.client().await, ClockClient::new(server.channel().await));
    let mut set = async |seconds| {
        let now = clock.set(at(seconds)).await.expect("it is set").into_inner().now;
        now.expect("the time").seconds
    };
    assert_eq!(set(1_700_006_400).await, 1_700_006_400);
    assert_eq!(hit(&mut client).await, Code::Ok);
    assert_eq!(set(1_700_009_999).await, 1_700_009_999);
    assert_eq!(hit(&mut client).await, Code::OverLimit);
    assert_eq!(set(1_700_010_000).await, 1_700_010_000);
    assert_eq!(hit(&mut client).await, Code::Ok);
    assert_eq!(set(5).await, 1_700_010_000, "a time of the past changes nothing");
    let malformed = clock.set(SetRequest { now: None }).await.expect_err("no time");
    assert_eq!(malformed.code(), GrpcCode::InvalidArgument);
}

#[tokio::test]
async fn without_the_flag_the_clock_cannot_be_set() {
    let server = Server::with_rules(rules_file(RULES).path(), &[]);
    let refused = ClockClient::new(server.channel().await).set(at(0)).await.expect_err("no such service");
    assert_eq!(refused.code(), GrpcCode::Unimplemented);
}

#[test]
fn a_clock_that_clients_set_is_refused_where_other_machines_connect() {
    let tidegate = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_tidegate")).args(args).output().expect("it runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (done, error) = tidegate(&["serve", "--test-clock", "--listen", "0.0.0.0:0"]);
    assert!(!done && error.contains("open to other machines"), "{error}");
    let (done, error) = tidegate(&["test-server", "--fault", "reset", "--listen", "0.0.0.0:0"]);
    assert!(!done && error.contains("is not loopback"), "{error}");
}

#[tokio::test]
async fn each_fault_of_the_test_server_is_seen_by_its_client() {
    for (fault, expected) in [
        ("blackhole", Err(&[GrpcCode::DeadlineExceeded, GrpcCode::Cancelled][..])),
        ("reset", Err(&[GrpcCode::Unavailable, GrpcCode::Unknown, GrpcCode::Internal, GrpcCode::Cancelled])),
        ("unavailable", Err(&[GrpcCode::Unavailable])),
        ("slow=10s", Err(&[GrpcCode::DeadlineExceeded, GrpcCode::Cancelled])),
        ("slow=1ms", Ok(Code::Ok)),
        ("goaway", Ok(Code::Ok)),
        ("drain", Ok(Code::Ok)),
        ("garbage", Err(&[GrpcCode::Internal])),
    ] {
        let server = Server::misbehaving(fault);
        let mut client = RateLimitServiceClient::new(server.channel().await);
        let mut request = Request::new(RateLimitRequest {
            domain: "d".into(),
            descriptors: vec![descriptor(&[("user", "a")])],
            hits_addend: 0,
        });
        request.set_timeout(Duration::from_millis(if expected.is_ok() { 10_000 } else { 500 }));
        match (client.should_rate_limit(request).await, expected) {
            (Ok(response), Ok(code)) => assert_eq!(response.into_inner().overall_code(), code, "{fault}"),
            (Err(status), Err(codes)) => assert!(codes.contains(&status.code()), "{fault}: {status}"),
            (seen, _) => panic!("{fault}: {seen:?}"),
        }
    }
}

/// Calls that are lost are counted: a client that sends one again finds a number skipped.
#[tokio::test]
async fn a_lost_call_counts_and_the_next_response_states_how_many_arrived() {
    let server = Server::misbehaving("lost");
    let mut seen = Vec::new();
    for _ in 0..8 {
        let mut client = RateLimitServiceClient::new(server.channel().await);
        let request = RateLimitRequest {
            domain: "d".into(),
            descriptors: vec![descriptor(&[("user", "a")])],
            hits_addend: 0,
        };
        let response = client.should_rate_limit(request).await;
        seen.push(response.ok().map(|response| response.into_inner().statuses[0].limit_remaining));
    }
    assert_eq!(seen, [Some(999), None, Some(997), None, Some(995), None, Some(993), None]);
}
