//! Requests in flight on a real server: tickets, and calls that their clients reset.

use crate::admin::{page_with_token, start_from};
use crate::control::{Controlled, descriptors};
use crate::metrics::metrics_when;
use crate::support::{
    Client, Server, descriptor, eventually,
    frames::{CANCEL, DATA, END_HEADERS, END_STREAM, HEADERS, PING, RST_STREAM, RawConnection, call_head},
    http2, rules_file,
};
use prost::Message;
use prost_types::value::Kind;
use serde_json::json;
use std::process::Command;
use tidegate::api::pb::{
    common::RateLimitDescriptor,
    service::{RateLimitRequest, RateLimitResponse, rate_limit_response::Code},
};

const RULES: &str = "
domain: edge
descriptors:
  - key: user
    rate_limit: { algorithm: concurrency, requests_in_flight: 2, max_hold: 1h }
";

/// The ticket and the cost in the metadata of a response, if it has them.
pub(crate) fn slot(response: &RateLimitResponse) -> Option<(String, u64)> {
    let fields = &response.dynamic_metadata.as_ref()?.fields;
    let Some(Kind::StringValue(ticket)) = &fields["slot"].kind else { panic!("{fields:?}") };
    let Some(Kind::NumberValue(cost)) = fields["cost"].kind else { panic!("{fields:?}") };
    Some((ticket.clone(), cost as u64))
}

pub(crate) async fn remaining(client: &mut Client) -> u32 {
    let peek = RateLimitDescriptor { hits_addend: Some(0), ..descriptor(&[("user", "ann")]) };
    let response = client.should_rate_limit("edge", vec![peek]).await.expect("a decision");
    response.statuses[0].limit_remaining
}

#[tokio::test]
async fn an_admitted_request_has_a_ticket_that_frees_its_slot_and_a_denied_one_has_none() {
    let rules = rules_file(RULES);
    let server = Server::with_rules(rules.path(), &[]);
    let mut client = server.client().await;
    let two = RateLimitDescriptor { hits_addend: Some(2), ..descriptor(&[("user", "ann")]) };
    let admitted = client.should_rate_limit("edge", vec![two]).await.unwrap();
    let (ticket, cost) = slot(&admitted).expect("a ticket");
    assert_eq!((admitted.overall_code(), cost), (Code::Ok, 2));
    let denied = client.hit("edge", &[("user", "ann")]).await.unwrap();
    assert_eq!((denied.overall_code(), slot(&denied)), (Code::OverLimit, None));

    let released = client.hit("edge", &[("user", "ann"), ("slot", &ticket)]).await.unwrap();
    assert_eq!((released.overall_code(), released.statuses.len(), slot(&released)), (Code::Ok, 1, None));
    assert_eq!(remaining(&mut client).await, 2);
    // A repeated release does not free the slot of the later request.
    let next = client.hit("edge", &[("user", "ann")]).await.unwrap();
    client.hit("edge", &[("slot", &ticket)]).await.unwrap();
    assert_eq!(remaining(&mut client).await, 1);
    client.hit("edge", &[("slot", &slot(&next).expect("a ticket").0)]).await.unwrap();
    assert_eq!(remaining(&mut client).await, 2);
}

#[tokio::test]
async fn a_renewal_of_what_is_held_is_ok_and_of_anything_else_over_limit() {
    let rules = rules_file(RULES);
    let (server, port) = start_from(rules.path(), &[]);
    let mut client = server.client().await;
    let response = client.hit("edge", &[("user", "ann")]).await.unwrap();
    let (ticket, _) = slot(&response).expect("a ticket");
    let renewal = [("user", "ann"), ("renew", &*ticket)];
    let renewed = client.hit("edge", &renewal).await.unwrap();
    // A renewal has no ticket of its own: if its call is reset, nothing is released.
    assert_eq!((renewed.overall_code(), renewed.statuses.len(), slot(&renewed)), (Code::Ok, 1, None));
    assert_eq!(remaining(&mut client).await, 1);
    client.hit("edge", &[("slot", &ticket)]).await.unwrap();
    let late = client.hit("edge", &renewal).await.unwrap();
    let status = &late.statuses[0];
    assert_eq!(
        (late.overall_code(), status.code, slot(&late)),
        (Code::OverLimit, Code::OverLimit.into(), None)
    );
    assert_eq!((&status.current_limit, &status.duration_until_reset), (&None, &None));
    assert_eq!(remaining(&mut client).await, 2);
    let events =
        ["renewed", "unknown_renewal"].map(|event| format!("tidegate_slots_total{{event=\"{event}\"}}"));
    let found = metrics_when(port, |found| found.get(&events[1]) == Some(&1.0)).await;
    assert_eq!(found[&events[0]], 1.0);
}

#[tokio::test]
async fn slots_and_their_tickets_outlive_a_restart() {
    let (rules, data) = (rules_file(RULES), tempfile::tempdir().unwrap());
    let args = ["--data", data.path().to_str().expect("temporary paths are UTF-8")];
    let server = Server::with_rules(rules.path(), &args);
    let response = server.client().await.hit("edge", &[("user", "ann")]).await.unwrap();
    let (ticket, _) = slot(&response).expect("a ticket");
    assert!(server.terminate().success());
    let server = Server::with_rules(rules.path(), &args);
    let mut client = server.client().await;
    assert_eq!(remaining(&mut client).await, 1);
    client.hit("edge", &[("user", "ann"), ("slot", &ticket)]).await.unwrap();
    assert_eq!(remaining(&mut client).await, 2);
}

#[tokio::test]
async fn operators_see_the_slots_of_a_key_and_those_of_a_limit() {
    let shop = Controlled::start(RULES, &[]);
    let mut client = shop.server.client().await;
    let ann = json!({ "domain": "edge", "descriptors": descriptors(&[("user", "ann")]) });
    let ticket = slot(&client.hit("edge", &[("user", "ann")]).await.unwrap()).expect("a ticket").0;
    let counter = shop.operate("ListCounters", ann.clone()).await["descriptors"][0]["counters"][0].clone();
    assert_eq!((&counter["slotCount"], &counter["slots"][0]["hits"]), (&json!(1), &json!(1)), "{counter}");
    let status = shop.operate("Peek", ann.clone()).await["statuses"][0].clone();
    assert!(status["slots"][0]["age"].is_string() && status["slots"][0]["endsIn"].is_string(), "{status}");
    let explained = shop.operate("Explain", ann.clone()).await["descriptors"][0]["counters"][0].clone();
    assert_eq!(explained["slotCount"], 1);
    for _ in 0..2 {
        client.hit("edge", &[("user", "bob")]).await.unwrap();
    }
    for command in ["counters", "peek", "explain"] {
        let ctl = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["ctl", "--addr", shop.server.address(), command, "edge", "user=bob"])
            .env("TIDEGATE_TOKEN", &shop.read)
            .output()
            .expect("the command runs");
        assert!(String::from_utf8_lossy(&ctl.stdout).contains(", slots for "), "{command}: {ctl:?}");
    }

    client.hit("edge", &[("slot", &ticket)]).await.unwrap();
    client.hit("edge", &[("slot", &ticket)]).await.unwrap();
    let of_limit = |name: &str| format!("tidegate_limit_{name}{{domain=\"edge\",limit=\"user\"}}");
    // The sweeper counts requests in flight.
    let found = eventually("two requests in flight, and a release of neither", async || {
        let found = page_with_token(shop.port, &shop.read).await;
        let figures = ["in_flight", "unknown_releases_total"].map(|name| found[&of_limit(name)]);
        if figures == [2.0, 1.0] { Ok(found) } else { Err(found) }
    })
    .await;
    let [oldest, expired] = ["oldest_slot_seconds", "expired_slots_total"].map(|name| found[&of_limit(name)]);
    assert!(oldest > 0.0 && oldest < 3_600.0, "{oldest}");
    assert_eq!(expired, 0.0);
    let limit = shop.operate("ListRules", json!({})).await["rules"][0]["limits"][0].clone();
    assert_eq!(limit["inFlight"], "2", "{limit}");
    assert!(limit["oldestSlot"].is_string(), "{limit}");
}

/// The header block of a call that is not in the common form: it requests the windows of statuses.
pub(crate) fn routed_head() -> Vec<u8> {
    [&call_head()[..], b"\x00\x10tidegate-windows\x011"].concat()
}

pub(crate) async fn send_call(connection: &mut RawConnection, stream: u32, head: &[u8]) {
    let request = RateLimitRequest {
        domain: "edge".into(),
        descriptors: vec![descriptor(&[("user", "ann")])],
        ..RateLimitRequest::default()
    };
    connection.send(HEADERS, END_HEADERS, stream, head).await;
    connection.send(DATA, END_STREAM, stream, &http2::plain(&request.encode_to_vec())).await;
}

/// Envoy resets a call whose client has gone, or that was too slow, and sends no end then. A gRPC library does not show the frame.
#[tokio::test]
async fn a_call_that_is_reset_after_its_response_frees_its_slot() {
    let rules = rules_file(RULES);
    let server = Server::with_rules(rules.path(), &[]);
    let mut client = server.client().await;
    for (number, head) in (0..).zip([call_head(), routed_head()]) {
        let mut connection = RawConnection::open(server.address()).await;
        let kept = 1 + 4 * number;
        for stream in [kept, kept + 2] {
            send_call(&mut connection, stream, &head).await;
            while connection.next_frame_of(stream).await.flags & END_STREAM == 0 {}
        }
        assert_eq!(remaining(&mut client).await, 0);
        for stream in [kept, kept + 2] {
            connection.send(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()).await;
        }
        acknowledged(&mut connection).await;
        assert_eq!(remaining(&mut client).await, 2, "call {number}");
    }
}

/// The frames may be read together, before a task has made the response.
#[tokio::test]
async fn a_call_that_is_reset_before_its_response_holds_no_slot() {
    let rules = rules_file(RULES);
    let server = Server::with_rules(rules.path(), &[]);
    let mut client = server.client().await;
    let mut connection = RawConnection::open(server.address()).await;
    for (number, head) in (0..).zip([call_head(), routed_head()].into_iter().cycle().take(40)) {
        let stream = 1 + 2 * number;
        send_call(&mut connection, stream, &head).await;
        connection.send(RST_STREAM, 0, stream, &CANCEL.to_be_bytes()).await;
    }
    acknowledged(&mut connection).await;
    // The response of a task may be made a moment later.
    for _ in 0..1_000 {
        if remaining(&mut client).await == 2 {
            return;
        }
    }
    panic!("a slot is held");
}

/// Rules with another `max_wait`.
fn waiting_rules(max_wait: &str) -> tempfile::NamedTempFile {
    rules_file(&RULES.replace("max_hold: 1h", &format!("max_hold: 1h, max_wait: {max_wait}")))
}

/// Takes both slots and returns their tickets.
async fn take_both(client: &mut Client) -> [String; 2] {
    let mut tickets = Vec::new();
    for _ in 0..2 {
        let response = client.hit("edge", &[("user", "ann")]).await.expect("a decision");
        tickets.push(slot(&response).expect("a ticket").0);
    }
    tickets.try_into().expect("two tickets")
}

async fn waiting_for_slots(port: u16, requests: u32) {
    metrics_when(port, |found| found["tidegate_queued"] == f64::from(requests)).await;
}

#[tokio::test]
async fn a_call_waits_for_a_slot_and_has_it_when_one_is_released() {
    let rules = waiting_rules("1h");
    let (server, port) = start_from(rules.path(), &[]);
    let mut client = server.client().await;
    let [first, _second] = take_both(&mut client).await;
    let mut connection = RawConnection::open(server.address()).await;
    for (number, head) in (0..).zip([call_head(), routed_head()]) {
        let stream = 1 + 2 * number;
        send_call(&mut connection, stream, &head).await;
        waiting_for_slots(port, 1 + number).await;
    }
    // Requests that arrive later, and do not wait for long, are behind them; all other requests are decided meanwhile.
    client.hit("edge", &[("user", "bob")]).await.unwrap();
    assert_eq!(remaining(&mut client).await, 0);
    client.hit("edge", &[("slot", &first)]).await.unwrap();
    while connection.next_frame_of(1).await.flags & END_STREAM == 0 {}
    waiting_for_slots(port, 1).await;
    assert_eq!(remaining(&mut client).await, 0, "the slot is taken again");
    // A client that gives up leaves the line.
    connection.send(RST_STREAM, 0, 3, &CANCEL.to_be_bytes()).await;
    waiting_for_slots(port, 0).await;
}

#[tokio::test]
async fn a_call_that_no_slot_is_released_for_is_denied_after_its_wait() {
    let rules = waiting_rules("20ms");
    let (server, port) = start_from(rules.path(), &[]);
    let mut client = server.client().await;
    take_both(&mut client).await;
    for _ in 0..3 {
        let denied = client.hit("edge", &[("user", "ann")]).await.unwrap();
        assert_eq!((denied.overall_code(), slot(&denied)), (Code::OverLimit, None));
    }
    waiting_for_slots(port, 0).await;
}

/// Waits until the server has handled everything sent before.
pub(crate) async fn acknowledged(connection: &mut RawConnection) {
    connection.send(PING, 0, 0, b"handled?").await;
    while connection.next().await.expect("the connection stands").kind != PING {}
}

/// They used to be admitted last come, first served, and after a request that came with the release of a slot.
#[tokio::test]
async fn requests_of_one_read_have_slots_in_the_order_of_their_arrival() {
    let rules = rules_file(&RULES.replace("requests_in_flight: 2", "requests_in_flight: 1, max_wait: 20s"));
    let server = Server::with_rules(rules.path(), &[]);
    let mut client = server.client().await;
    let held = client.hit("edge", &[("user", "ann")]).await.unwrap();
    let (ticket, _) = slot(&held).expect("a ticket");
    let frame = |kind, flags, stream: u32, payload: &[u8]| {
        let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    let call = |stream, entries: &[(&str, &str)]| {
        let (domain, descriptors) = ("edge".into(), vec![descriptor(entries)]);
        let request = RateLimitRequest { domain, descriptors, ..RateLimitRequest::default() };
        let message = http2::plain(&request.encode_to_vec());
        [frame(HEADERS, END_HEADERS, stream, &call_head()), frame(DATA, END_STREAM, stream, &message)]
            .concat()
    };
    let start = |stream| call(stream, &[("user", "ann")]);
    let mut connection = RawConnection::open(server.address()).await;
    let read = [start(1), start(3), start(5), call(7, &[("slot", &ticket)]), start(9)].concat();
    assert!(connection.send_bytes(&read).await);
    for expected in [1, 3, 5, 9] {
        let (stream, response) = loop {
            let frame = connection.next().await.expect("the connection stands");
            if frame.kind == DATA && frame.stream != 7 {
                break (frame.stream, RateLimitResponse::decode(&frame.payload[5..]).expect("a response"));
            }
        };
        assert_eq!((stream, response.overall_code()), (expected, Code::Ok));
        let (ticket, _) = slot(&response).expect("a ticket");
        client.hit("edge", &[("slot", &ticket)]).await.unwrap();
    }
}
