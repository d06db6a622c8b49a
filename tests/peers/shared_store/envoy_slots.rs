//! Requests in flight behind a real Envoy with three servers and one store, as the back end counts them, while each of these processes is
//! killed.

#![expect(clippy::disallowed_methods, reason = "times how long slots are held after the last request")]

use super::{
    RedisServer, free_port,
    slot_servers::{DENY, World},
};
use crate::{
    envoy::concurrency::{
        BackEnd, Counts, KILLS, LIMIT, LISTENER, RULES, get, restless_clients_until, sequential_clients,
    },
    envoy_process::{Envoy, Program},
    support::{Client, Server, descriptor, eventually, http1},
    tests_with,
};
use std::{
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tidegate::api::pb::common::RateLimitDescriptor;
use tokio::{io::AsyncWriteExt as _, net::TcpStream};

tests_with! {
    ENVOY, REDIS:
    no_more_requests_are_in_flight_than_the_limit_while_envoy_a_server_and_the_store_are_killed,
    a_client_that_sends_one_request_after_the_other_is_not_denied_by_a_limit_of_one_in_a_store,
    no_slot_of_an_envoy_that_is_terminated_stays_held,
}

const MAX_HOLD: Duration = Duration::from_secs(2);

/// The ports of further servers in the config, after the first.
const FURTHER_SERVERS: [u16; 2] = [8082, 8083];

fn port(server: &Server) -> u16 {
    server.address().rsplit(':').next().and_then(|port| port.parse().ok()).expect("a port")
}

/// The config of the documentation with three servers.
fn config() -> String {
    let config =
        include_str!("../../../deploy/envoy/concurrency.yaml").replace("timeout: 0.25s", "timeout: 5s");
    let endpoint = |port: u16| {
        format!(
            "{{ endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }} }} }}"
        )
    };
    assert!(config.contains(&endpoint(8081)));
    let [second, third] = FURTHER_SERVERS.map(endpoint);
    config.replace(&endpoint(8081), &[endpoint(8081), second, third].join(", "))
}

/// The store is killed with its data on disk. A store that returns empty has no request in flight.
async fn no_more_requests_are_in_flight_than_the_limit_while_envoy_a_server_and_the_store_are_killed() {
    let program = Program::all_with_two_workers().into_iter().next().expect("the test declares its peer");
    let (store_port, data) = (free_port(), tempfile::tempdir().expect("a folder"));
    let folder = data.path().to_str().expect("temporary paths are UTF-8");
    let args = ["--dir", folder, "--appendonly", "yes", "--appendfsync", "always"];
    let mut store = RedisServer::start_on(store_port, &args);
    let rules = RULES.replace("max_hold: 1h", "max_hold: 2s");
    let mut world = World::with_rules(&rules, 3, &format!("redis://127.0.0.1:{store_port}"), &DENY);
    let (back_end, application) = BackEnd::start(30);
    let [second, third] = FURTHER_SERVERS;
    let given = [(8080, application), (second, port(&world.servers[1])), (third, port(&world.servers[2]))];
    let mut envoy = Envoy::start_program(&program, &config(), world.servers[0].address(), &given).await;
    let served_after_another = async |requests: usize| {
        let before = back_end.figures().1;
        eventually("requests reach the back end", async || back_end.figures().1 >= before + requests).await;
    };
    let is_stopped = Arc::new(AtomicBool::new(false));
    let clients = restless_clients_until(envoy.port(LISTENER), &is_stopped);
    for kill in 0..KILLS {
        served_after_another(10).await;
        world.replace(kill % 3);
        served_after_another(10).await;
        drop(store);
        store = RedisServer::start_on(store_port, &args);
        served_after_another(10).await;
        envoy.kill_and_restart(&program).await;
    }
    served_after_another(10).await;
    is_stopped.store(true, Ordering::Relaxed);
    let mut sum = Counts::default();
    for client in clients {
        sum.add(&client.await.expect("no client panics"));
    }
    let (mut client, began) = (world.servers[0].client().await, Instant::now());
    eventually("all slots are free", async || {
        let peek = RateLimitDescriptor { hits_addend: Some(0), ..descriptor(&[("api_key", "one")]) };
        let response = client.should_rate_limit("edge", vec![peek]).await.expect("a decision");
        match response.statuses[0].limit_remaining as usize {
            free if free == LIMIT => Ok(()),
            free => Err(free),
        }
    })
    .await;
    let (free_after, (most, served)) = (began.elapsed(), back_end.figures());
    println!(
        "{}: {served} served, {most} at once; {sum:?}; {KILLS} kills each of Envoy, a server and the store; free after {free_after:?}",
        program.binary.display()
    );
    assert!(sum.responses > 0 && sum.denials > 0, "{sum:?}");
    assert_eq!(most, LIMIT, "the limit is reached, and not exceeded");
    assert!(free_after < MAX_HOLD + Duration::from_millis(500), "free after {free_after:?}");
}

/// Envoy resets its requests, reports their ends, and closes its connections, all at once: 1 to 8 of 10 slots used to stay held.
///
/// It reports over its existing connections: one slot of two requests behind three servers stayed held in 6 of 6 runs, since the worker
/// would have had to open a connection for its end.
async fn no_slot_of_an_envoy_that_is_terminated_stays_held() {
    let program = Program::all_with_two_workers().into_iter().next().expect("the test declares its peer");
    let store = RedisServer::start();
    let rules = RULES.replace("in_flight: 3", "in_flight: 10");
    let world = World::with_rules(&rules, 3, &store.url(), &DENY);
    let mut client = world.servers[0].client().await;
    let expect_free = async |client: &mut Client, key: &str, expected: u32| {
        eventually(&format!("{expected} of {key} are free"), async || {
            let peek = RateLimitDescriptor { hits_addend: Some(0), ..descriptor(&[("api_key", key)]) };
            let response = client.should_rate_limit("edge", vec![peek]).await.expect("a decision");
            match response.statuses[0].limit_remaining {
                free if free == expected => Ok(()),
                free => Err(free),
            }
        })
        .await;
    };
    for _ in 0..3 {
        // The back end responds within an hour.
        let (_back_end, application) = BackEnd::start(3_600_000);
        let [second, third] = FURTHER_SERVERS;
        let given =
            [(8080, application), (second, port(&world.servers[1])), (third, port(&world.servers[2]))];
        let mut envoy = Envoy::start_program(&program, &config(), world.servers[0].address(), &given).await;
        let mut held = ten_requests(envoy.port(LISTENER), "other").await;
        expect_free(&mut client, "other", 0).await;
        // On enough connections for each worker to have called each server.
        for _ in 0..60 {
            let denied = http1::fetch(Ipv4Addr::LOCALHOST, envoy.port(LISTENER), get("other")).await;
            assert_eq!(denied.expect("Envoy responds").status(), 429);
        }
        held.extend(ten_requests(envoy.port(LISTENER), "one").await);
        expect_free(&mut client, "one", 0).await;
        envoy.terminate();
        expect_free(&mut client, "one", 10).await;
        expect_free(&mut client, "other", 10).await;
    }
}

/// Sends ten requests, each on a connection.
async fn ten_requests(port: u16, key: &str) -> Vec<TcpStream> {
    let mut requests = Vec::new();
    for _ in 0..10 {
        let mut request = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.expect("it listens");
        let head = format!("GET / HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\n\r\n");
        request.write_all(head.as_bytes()).await.expect("written");
        requests.push(request);
    }
    requests
}

/// Envoy sends the end of a request to one server, and the next start to another, perhaps before the end.
async fn a_client_that_sends_one_request_after_the_other_is_not_denied_by_a_limit_of_one_in_a_store() {
    let program = Program::all_with_two_workers().into_iter().next().expect("the test declares its peer");
    let rules = RULES.replace("in_flight: 3", "in_flight: 1");
    let mut denied = Vec::new();
    for wait in [", max_wait: 0s", "", ", max_wait: 1s"] {
        // In the store of an earlier run, the slot of its last request may be held: its Envoy has ended.
        let store = RedisServer::start();
        let rules = rules.replace("max_hold: 1h", &format!("max_hold: 1h{wait}"));
        let world = World::with_rules(&rules, 3, &store.url(), &DENY);
        let (_back_end, application) = BackEnd::start(1);
        let [second, third] = FURTHER_SERVERS;
        let given =
            [(8080, application), (second, port(&world.servers[1])), (third, port(&world.servers[2]))];
        let envoy = Envoy::start_program(&program, &config(), world.servers[0].address(), &given).await;
        let (denials, requests) = sequential_clients(envoy.port(LISTENER)).await;
        println!("{denials} of {requests} denied");
        denied.push((denials, requests));
    }
    let [(without, _), (by_default, requests), (denials, _)] = denied[..] else { unreachable!("three runs") };
    // A request is denied if the end before came later than the wait, as on a busy machine.
    let most = (requests / 200).max(without / 3);
    assert!(by_default <= most, "{by_default} of {requests} denied, {without} without a wait");
    assert!(denials <= requests / 500, "{denials} of {requests} denied with a wait of a second");
}
