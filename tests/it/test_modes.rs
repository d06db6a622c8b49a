//! A mode for tests of clients: a server whose clock the client sets.

use crate::support::{Client, Server, rules_file};
use std::process::Command;
use tidegate::api::pb::{
    service::rate_limit_response::Code,
    test::{SetRequest, clock_client::ClockClient},
};
use tonic::Code as GrpcCode;

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
}
