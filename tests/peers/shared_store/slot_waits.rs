//! Calls that wait for slots in one store: releases of their server wake them at once, and releases of other servers soon after.

#![expect(clippy::disallowed_methods, reason = "the time of real processes is measured")]

use super::{
    RedisServer,
    slot_servers::{DENY, World, free, release, take, ticket, wait_until_free},
};
use crate::{
    support::{
        Client, descriptor, eventually,
        frames::{CANCEL, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, RawConnection, call_head},
        http2,
    },
    tests_with,
};
use prost::Message;
use std::time::{Duration, Instant};
use tidegate::api::pb::service::RateLimitRequest;
use tokio::task::JoinHandle;

tests_with! {
    REDIS:
    a_call_waits_for_a_slot_that_any_server_releases,
    calls_wait_in_their_order_and_those_that_are_reset_leave_it,
    a_call_without_a_slot_is_denied_after_its_wait,
    a_call_that_another_limit_denies_does_not_wait,
}

const RULES: &str = "
domain: d
descriptors:
  - {key: one, rate_limit: {algorithm: concurrency, requests_in_flight: 1, max_hold: 1h, max_wait: 20s, max_queue: 3}}
  - {key: short, rate_limit: {algorithm: concurrency, requests_in_flight: 1, max_hold: 1h, max_wait: 100ms}}
  - {key: window, rate_limit: {unit: year, requests_per_unit: 1}}
  - {key: ends, rate_limit: {algorithm: concurrency, requests_in_flight: 1, max_hold: 700ms, max_wait: 20s}}
";

fn start(servers: usize, store: &RedisServer) -> World {
    World::with_rules(RULES, servers, &store.url(), &DENY)
}

async fn waiting(world: &World, server: usize, expected: u64) {
    let found = || world.metric(server, "tidegate_queued");
    eventually(&format!("{expected} wait"), async || match found().await {
        found if found == expected => Ok(()),
        found => Err(found),
    })
    .await;
}

/// A call that waits for a slot; returns its ticket, if it is admitted.
fn start_waiting(mut client: Client, key: &'static str) -> JoinHandle<Option<String>> {
    tokio::spawn(async move { take(&mut client, &[key]).await })
}

async fn a_call_waits_for_a_slot_that_any_server_releases() {
    let store = RedisServer::start();
    let world = start(2, &store);
    let [mut first, mut second] = [world.servers[0].client().await, world.servers[1].client().await];
    let mut held = take(&mut first, &["one"]).await.expect("it is free");
    for round in 0..6 {
        let caller = start_waiting(world.servers[1].client().await, "one");
        waiting(&world, 1, 1).await;
        let by = if round % 2 == 0 { &mut second } else { &mut first };
        let began = Instant::now();
        release(by, &held).await;
        held = caller.await.expect("a decision").expect("a slot");
        let waited = began.elapsed();
        assert!(waited < Duration::from_secs(1), "round {round}: {waited:?} after the release");
        waiting(&world, 1, 0).await;
        assert_eq!(free(&mut first, "one").await, 0);
    }
    // This slot ends by itself, without a release.
    take(&mut first, &["ends"]).await.expect("it is free");
    take(&mut second, &["ends"]).await.expect("the first has ended");
}

async fn calls_wait_in_their_order_and_those_that_are_reset_leave_it() {
    let store = RedisServer::start();
    let world = start(1, &store);
    let mut client = world.servers[0].client().await;
    let mut held = take(&mut client, &["one"]).await.expect("it is free");
    let mut connection = RawConnection::open(world.servers[0].address()).await;
    let request = RateLimitRequest {
        domain: "d".into(),
        descriptors: vec![descriptor(&[("one", "v")])],
        ..RateLimitRequest::default()
    };
    connection.send(HEADERS, END_HEADERS, 1, &call_head()).await;
    connection.send(DATA, END_STREAM, 1, &http2::plain(&request.encode_to_vec())).await;
    waiting(&world, 0, 1).await;
    let mut callers = Vec::new();
    for number in 2..=3 {
        callers.push(start_waiting(world.servers[0].client().await, "one"));
        waiting(&world, 0, number).await;
    }
    // `max_queue`: there is no room for a fourth call.
    assert_eq!(take(&mut client, &["one"]).await, None);
    connection.send(RST_STREAM, 0, 1, &CANCEL.to_be_bytes()).await;
    waiting(&world, 0, 2).await;
    while !callers.is_empty() {
        release(&mut client, &held).await;
        held = callers.remove(0).await.expect("a decision").expect("a slot");
        assert!(callers.iter().all(|later| !later.is_finished()), "a later caller was first");
    }
    release(&mut client, &held).await;
    wait_until_free(&mut client, "one", 1).await;
}

async fn a_call_without_a_slot_is_denied_after_its_wait() {
    let store = RedisServer::start();
    let world = start(1, &store);
    let mut client = world.servers[0].client().await;
    take(&mut client, &["short"]).await.expect("it is free");
    let began = Instant::now();
    assert_eq!(take(&mut client, &["short"]).await, None);
    assert!(began.elapsed() >= Duration::from_millis(90), "{:?}", began.elapsed());
    waiting(&world, 0, 0).await;
}

async fn a_call_that_another_limit_denies_does_not_wait() {
    let store = RedisServer::start();
    let world = start(1, &store);
    let mut client = world.servers[0].client().await;
    let held = take(&mut client, &["one", "window"]).await.expect("both are free");
    let began = Instant::now();
    assert_eq!(take(&mut client, &["one", "window"]).await, None);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    release(&mut client, &held).await;
    let response = client.hit("d", &[("one", "v")]).await.expect("a decision");
    assert!(ticket(&response).is_some(), "the denied request has taken nothing");
}
