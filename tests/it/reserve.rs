//! Costs known at the end, on a real server: tickets, restarts, and calls that clients reset.

use crate::admin::{metrics, start_from};
use crate::concurrency::{acknowledged, remaining, send_call, slot};
use crate::control::{Controlled, descriptors};
use crate::support::{
    Client, Server, descriptor,
    frames::{CANCEL, END_STREAM, RST_STREAM, RawConnection, call_head},
    rules_file,
};
use serde_json::json;
use std::process::Command;
use tidegate::api::pb::{common::RateLimitDescriptor, service::rate_limit_response::Code};

const RULES: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { unit: year, requests_per_unit: 100, algorithm: fixed_window, reserve: 40, max_hold: 1h }
";

/// Starts a request, and returns its ticket.
async fn start(client: &mut Client) -> String {
    let response = client.hit("edge", &[("user", "ann")]).await.expect("a decision");
    let (ticket, cost) = slot(&response).expect("a ticket");
    assert_eq!((response.overall_code(), cost), (Code::Ok, 40));
    ticket
}

async fn end(client: &mut Client, ticket: &str, hits: u64) {
    let end = RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(&[("slot", ticket)]) };
    let response = client.should_rate_limit("edge", vec![end]).await.expect("a decision");
    assert_eq!((response.overall_code(), response.statuses.len(), slot(&response)), (Code::Ok, 1, None));
}

#[tokio::test]
async fn an_end_charges_the_actual_cost_in_the_place_of_the_estimate() {
    let rules = rules_file(RULES);
    let (server, port) = start_from(rules.path(), &[]);
    let mut client = server.client().await;
    let ticket = start(&mut client).await;
    assert_eq!(remaining(&mut client).await, 60);
    end(&mut client, &ticket, 7).await;
    end(&mut client, &ticket, 50).await;
    assert_eq!(remaining(&mut client).await, 93);
    let ticket = start(&mut client).await;
    end(&mut client, &ticket, 0).await;
    assert_eq!(remaining(&mut client).await, 93);
    let ticket = start(&mut client).await;
    end(&mut client, &ticket, 500).await;
    let denied = client.hit("edge", &[("user", "ann")]).await.unwrap();
    assert_eq!((denied.overall_code(), slot(&denied)), (Code::OverLimit, None));
    let metrics = metrics(port).await;
    let event = |event: &str| metrics[&*format!("tidegate_reservations_total{{event=\"{event}\"}}")];
    assert_eq!(
        ["started", "ended", "unknown_end", "lost", "uncorrected"].map(event),
        [3.0, 3.0, 1.0, 0.0, 0.0]
    );
}

#[tokio::test]
async fn operators_see_what_is_reserved() {
    let shop = Controlled::start(RULES, &[]);
    let mut client = shop.server.client().await;
    let ann = json!({ "domain": "edge", "descriptors": descriptors(&[("user", "ann")]) });
    let tickets = [start(&mut client).await, start(&mut client).await];
    let counter = shop.operate("ListCounters", ann.clone()).await["descriptors"][0]["counters"][0].clone();
    assert_eq!((&counter["reserved"], &counter["reservationCount"]), (&json!("80"), &json!(2)), "{counter}");
    end(&mut client, &tickets[0], 7).await;
    let status = shop.operate("Peek", ann.clone()).await["statuses"][0].clone();
    assert_eq!((&status["reserved"], &status["remaining"]), (&json!("40"), &json!(53)), "{status}");
    for command in ["counters", "peek", "explain"] {
        let ctl = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["ctl", "--addr", shop.server.address(), command, "edge", "user=ann"])
            .env("TIDEGATE_TOKEN", &shop.read)
            .output()
            .expect("the command runs");
        let shown = String::from_utf8_lossy(&ctl.stdout).into_owned();
        assert!(shown.contains(", 40 reserved by 1 request"), "{command}: {shown}");
    }
    end(&mut client, &tickets[1], 1).await;
    let explained = shop.operate("Explain", ann).await["descriptors"][0]["counters"][0].clone();
    assert_eq!((&explained["reserved"], &explained["used"]), (&json!(null), &json!(8)), "{explained}");
}

#[tokio::test]
async fn estimates_and_their_tickets_outlive_a_restart() {
    let (rules, data) = (rules_file(RULES), tempfile::tempdir().unwrap());
    let args = ["--data", data.path().to_str().expect("temporary paths are UTF-8")];
    let server = Server::with_rules(rules.path(), &args);
    let mut client = server.client().await;
    let tickets = [start(&mut client).await, start(&mut client).await];
    end(&mut client, &tickets[0], 7).await;
    assert!(server.terminate().success());
    let server = Server::with_rules(rules.path(), &args);
    let mut client = server.client().await;
    assert_eq!(remaining(&mut client).await, 53);
    end(&mut client, &tickets[0], 90).await;
    end(&mut client, &tickets[1], 1).await;
    assert_eq!(remaining(&mut client).await, 92);
}

/// Envoy resets a call whose client has gone, and sends no end then.
#[tokio::test]
async fn a_call_that_is_reset_after_its_response_is_given_its_estimate_back() {
    let rules = rules_file(RULES);
    let server = Server::with_rules(rules.path(), &[]);
    let mut client = server.client().await;
    let mut connection = RawConnection::open(server.address()).await;
    send_call(&mut connection, 1, &call_head()).await;
    while connection.next_frame_of(1).await.flags & END_STREAM == 0 {}
    assert_eq!(remaining(&mut client).await, 60);
    connection.send(RST_STREAM, 0, 1, &CANCEL.to_be_bytes()).await;
    acknowledged(&mut connection).await;
    assert_eq!(remaining(&mut client).await, 100);
}
