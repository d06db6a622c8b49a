//! Renewals while the store does not respond: `--on-store-failure` decides, and neither charges nor loses anything.

use super::{
    RedisServer,
    process::free_port,
    slot_servers::{World, free, take, wait_until_free},
};
use crate::{
    support::{Client, descriptor, eventually},
    tests_with,
};
use rustix::process::{Pid, Signal, kill_process};
use tidegate::api::pb::service::rate_limit_response::Code;

tests_with! {
    REDIS:
    a_renewal_is_decided_by_the_policy_while_the_store_is_suspended,
    a_renewal_is_decided_by_the_policy_while_the_store_is_gone,
    what_was_taken_without_the_store_is_renewed_by_its_own_server_alone,
    a_renewal_of_what_is_not_held_denies_the_request_and_leaves_the_other_statuses_as_they_are,
}

const BUDGET: u32 = 1_000;
const ESTIMATE: u32 = 40;
const LIMIT: u32 = 6;
const RULES: &str = "
domain: d
descriptors:
  - key: budget
    rate_limit: {unit: year, requests_per_unit: 1000, algorithm: fixed_window, reserve: 40, max_hold: 1h}
  - {key: slot_of, rate_limit: {algorithm: concurrency, requests_in_flight: 6, max_hold: 1h, max_wait: 0s}}
  - {key: plan, rate_limit: {unit: year, requests_per_unit: 3, algorithm: fixed_window}}
";
const KEYS: [&str; 2] = ["budget", "slot_of"];

/// Each policy, and the response to a renewal without the store: whether the ticket is held, or the code of the error.
const POLICIES: [(&str, Result<bool, tonic::Code>); 4] = [
    ("deny", Ok(false)),
    ("allow", Ok(true)),
    ("local", Ok(false)),
    ("error", Err(tonic::Code::Unavailable)),
];

fn policy(name: &str) -> [&str; 4] {
    ["--on-store-failure", name, "--counters-timeout", "200ms"]
}

async fn renew(client: &mut Client, ticket: &str) -> Result<bool, tonic::Code> {
    let descriptors = KEYS.iter().map(|key| descriptor(&[(key, "v"), ("renew", ticket)])).collect();
    let response = client.should_rate_limit("d", descriptors).await.map_err(|status| status.code())?;
    Ok(response.overall_code() == Code::Ok)
}

/// Waits until the store renews its tickets again, then ends the request with a cost of 7: renewals without the store have charged nothing.
async fn expect_held(client: &mut Client, ticket: &str, policy: &str) {
    eventually("the store decides again", async || match renew(client, ticket).await {
        Ok(true) => Ok(()),
        other => Err(other),
    })
    .await;
    wait_until_free(client, "budget", BUDGET - ESTIMATE).await;
    assert_eq!(free(client, "slot_of").await, LIMIT - 1, "{policy}");
    let mut end = descriptor(&[("slot", ticket)]);
    end.hits_addend = Some(7);
    client.should_rate_limit("d", vec![end]).await.expect("a response");
    wait_until_free(client, "budget", BUDGET - 7).await;
    assert_eq!(free(client, "slot_of").await, LIMIT, "{policy}");
    assert_eq!(renew(client, ticket).await, Ok(false), "{policy}: it has ended");
}

async fn a_renewal_is_decided_by_the_policy_while_the_store_is_suspended() {
    for (name, expected) in POLICIES {
        let store = RedisServer::start();
        let world = World::with_rules(RULES, 1, &store.url(), &policy(name));
        let mut client = world.servers[0].client().await;
        let ticket = take(&mut client, &KEYS).await.expect("a ticket");
        let signal = |signal| {
            let pid = Pid::from_raw(i32::try_from(store.pid()).expect("a process")).expect("a process");
            kill_process(pid, signal).expect("the store runs");
        };
        signal(Signal::STOP);
        // First by a late call, and then without any.
        for _ in 0..8 {
            assert_eq!(renew(&mut client, &ticket).await, expected, "{name}");
        }
        signal(Signal::CONT);
        expect_held(&mut client, &ticket, name).await;
    }
}

async fn a_renewal_is_decided_by_the_policy_while_the_store_is_gone() {
    for (name, expected) in POLICIES {
        let (port, data) = (free_port(), tempfile::tempdir().expect("a folder"));
        let folder = data.path().to_str().expect("temporary paths are UTF-8");
        let args = ["--dir", folder, "--appendonly", "yes", "--appendfsync", "always"];
        let store = RedisServer::start_on(port, &args);
        let world = World::with_rules(RULES, 1, &format!("redis://127.0.0.1:{port}"), &policy(name));
        let mut client = world.servers[0].client().await;
        let ticket = take(&mut client, &KEYS).await.expect("a ticket");
        drop(store);
        for _ in 0..8 {
            assert_eq!(renew(&mut client, &ticket).await, expected, "{name}");
        }
        let _store = RedisServer::start_on(port, &args);
        expect_held(&mut client, &ticket, name).await;
    }
}

/// With `local`, the server that granted the slots has them.
async fn what_was_taken_without_the_store_is_renewed_by_its_own_server_alone() {
    let port = free_port();
    let store = RedisServer::start_on(port, &[]);
    let world = World::with_rules(RULES, 2, &format!("redis://127.0.0.1:{port}"), &policy("local"));
    let (mut first, mut second) = (world.servers[0].client().await, world.servers[1].client().await);
    drop(store);
    let ticket = take(&mut first, &KEYS).await.expect("a ticket");
    let left = (free(&mut first, "budget").await, free(&mut first, "slot_of").await);
    for _ in 0..3 {
        assert_eq!(renew(&mut first, &ticket).await, Ok(true));
        assert_eq!(renew(&mut second, &ticket).await, Ok(false));
    }
    let now = (free(&mut first, "budget").await, free(&mut first, "slot_of").await);
    assert_eq!(now, left, "a renewal takes nothing");
}

/// The reply of the store used to be regarded as a disagreement: UNAVAILABLE with `error`, statuses of local counters with `local`, and an
/// ERROR in the log each time.
async fn a_renewal_of_what_is_not_held_denies_the_request_and_leaves_the_other_statuses_as_they_are() {
    for (name, _) in POLICIES {
        let store = RedisServer::start();
        let world = World::with_rules(
            RULES,
            1,
            &store.url(),
            &["--on-store-failure", name, "--counters-timeout", "2s"],
        );
        let mut client = world.servers[0].client().await;
        let ticket = take(&mut client, &KEYS).await.expect("a ticket");
        client.hit("d", &[("slot", &ticket)]).await.expect("a response");
        for _ in 0..2 {
            client.hit("d", &[("plan", "v")]).await.expect("a response");
        }
        for _ in 0..3 {
            let mut descriptors: Vec<_> =
                KEYS.iter().map(|key| descriptor(&[(key, "v"), ("renew", &ticket)])).collect();
            descriptors.push(descriptor(&[("plan", "v")]));
            let response = client.should_rate_limit("d", descriptors).await.expect("a decision");
            let codes: Vec<_> = response.statuses.iter().map(|status| status.code()).collect();
            assert_eq!(codes, [Code::OverLimit, Code::OverLimit, Code::Ok], "{name}");
            assert_eq!(response.statuses[2].limit_remaining, 1, "{name}");
        }
        assert_eq!(free(&mut client, "plan").await, 1, "{name}");
        let log = world.servers[0].log();
        assert!(log.iter().all(|line| !line.contains("disagree")), "{name}: {log:?}");
    }
}
