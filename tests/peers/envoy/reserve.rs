//! Costs known at the end, through a real Envoy: estimates while requests run, and the costs that their responses state.

use super::APPLICATION;
use crate::{
    envoy_process::{Envoy, Program},
    support::{Client, Server, descriptor, eventually, http1},
};
use http::Request;
use std::{
    io::{Read, Write},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::Path,
    time::Duration,
};
use tidegate::api::pb::{
    common::{RateLimitDescriptor, rate_limit_descriptor::RateLimitOverride},
    types::RateLimitUnit,
};

/// The listener of the config.
const LISTENER: u16 = 8000;
const BUDGET: usize = 100_000;
const ESTIMATE: usize = 2_000;
const PARALLEL: usize = 30;

/// A service that responds after some milliseconds. The path of the request is the cost that it states; without a cost, it breaks the
/// connection.
fn service() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = listener.local_addr().expect("a bound socket has an address").port();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || respond(stream));
        }
    });
    port
}

fn respond(mut stream: TcpStream) {
    let mut head = [0; 4096];
    // One read returns the whole of such a small request.
    let Ok(length @ 1..) = stream.read(&mut head) else { return };
    let head = String::from_utf8_lossy(&head[..length]);
    let cost = head.strip_prefix("GET /").and_then(|rest| rest.split(' ').next()?.parse::<u64>().ok());
    std::thread::sleep(Duration::from_millis(200));
    if let Some(cost) = cost {
        let response = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\nx-total-tokens: {cost}\r\n\r\n"
        );
        let _ = stream.write_all(response.as_bytes());
    }
}

async fn remaining(client: &mut Client) -> usize {
    let peek = RateLimitDescriptor { hits_addend: Some(0), ..descriptor(&[("api_key", "one")]) };
    let response = client.should_rate_limit("edge", vec![peek]).await.expect("a decision");
    response.statuses[0].limit_remaining as usize
}

/// Waits until this many hits remain: Envoy sends the end of a request after its response.
async fn until_remain(client: &mut Client, hits: usize) {
    eventually(&format!("{hits} remain"), async || match remaining(client).await {
        found if found == hits => Ok(()),
        found => Err(found),
    })
    .await;
}

async fn get(port: u16, path: String) -> u16 {
    let request = Request::get(path).header("x-api-key", "one");
    http1::fetch(Ipv4Addr::LOCALHOST, port, request).await.expect("Envoy responds").status().as_u16()
}

async fn a_budget_is_charged_estimates_while_requests_run_and_their_costs_in_the_end() {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/envoy/reserve-rules.yaml");
    let config = include_str!("../../../deploy/envoy/reserve.yaml").replace("timeout: 0.25s", "timeout: 5s");
    for program in Program::all_with_two_workers() {
        let server = Server::with_rules(&rules, &[]);
        let envoy =
            Envoy::start_program(&program, &config, server.address(), &[(APPLICATION, service())]).await;
        let (port, mut client) = (envoy.port(LISTENER), server.client().await);
        // All requests run at once: their estimates are charged.
        let requests: Vec<_> =
            (0..PARALLEL).map(|number| tokio::spawn(get(port, format!("/{}", 100 * number)))).collect();
        until_remain(&mut client, BUDGET - PARALLEL * ESTIMATE).await;
        for request in requests {
            assert_eq!(request.await.expect("no request panics"), 200);
        }
        let spent = (0..PARALLEL).map(|number| 100 * number).sum::<usize>();
        until_remain(&mut client, BUDGET - spent).await;
        // Without a cost, the estimate stays.
        assert_eq!(get(port, "/broken".to_owned()).await, 503);
        until_remain(&mut client, BUDGET - spent - ESTIMATE).await;
        // The budget is in debt, and denied requests change nothing.
        assert_eq!(get(port, format!("/{BUDGET}")).await, 200);
        until_remain(&mut client, 0).await;
        assert_eq!([get(port, "/1".to_owned()).await, get(port, "/1".to_owned()).await], [429; 2]);
        println!("{}: {spent} of {BUDGET}, then a debt", program.binary.display());
    }
}

/// The descriptor of a request that states its own budget.
fn with_budget() -> RateLimitDescriptor {
    let limit = RateLimitOverride { requests_per_unit: 1_000, unit: RateLimitUnit::Hour.into() };
    RateLimitDescriptor { hits_addend: Some(0), limit: Some(limit), ..descriptor(&[("api_key", "one")]) }
}

/// A budget of 1,000 admits two of twenty requests that cost 700 each: by an estimate at the start, and by a peek.
async fn a_budget_that_requests_bring_along_is_enforced_by_costs_at_the_end() {
    let deployed =
        include_str!("../../../deploy/envoy/budgets.yaml").replace("timeout: 0.25s", "timeout: 5s");
    let ticket = "{ metadata: { descriptor_key: slot, source: DYNAMIC, metadata_key: { key: envoy.filters.http.ratelimit, path: [{ key: slot }] } } }";
    let key = "{ request_headers: { header_name: x-api-key, descriptor_key: api_key } }";
    let limit = "limit: { dynamic_metadata: { metadata_key: { key: budgets, path: [{ key: tokens }] } } }";
    assert!(deployed.contains(ticket) && deployed.contains(key) && deployed.contains(limit));
    let indent = " ".repeat(34);
    let peeking = deployed
        .replace(limit, &format!("{limit}\n{indent}hits_addend: {{ number: 0 }}"))
        .replace(&format!("actions: [{ticket}]"), &format!("actions: [{key}]\n{indent}{limit}"));
    let directory = tempfile::tempdir().expect("a directory");
    let always = directory.path().join("rules.yaml");
    std::fs::write(&always, "domain: edge\nrequest_limits: { charge: always }\n")
        .expect("the file is written");
    let reserving = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/envoy/budgets-rules.yaml");
    for (config, rules) in [(deployed, &reserving), (peeking, &always)] {
        let program = Program::all_with_two_workers().remove(0);
        let server = Server::with_rules(rules, &[]);
        let envoy =
            Envoy::start_program(&program, &config, server.address(), &[(APPLICATION, service())]).await;
        let (port, mut client) = (envoy.port(LISTENER), server.client().await);
        let mut statuses = Vec::new();
        for left in [Some(300), Some(0)].into_iter().chain([None; 18]) {
            statuses.push(get(port, "/700".to_owned()).await);
            if let Some(left) = left {
                eventually(&format!("{left} remain"), async || {
                    let response =
                        client.should_rate_limit("edge", vec![with_budget()]).await.expect("a decision");
                    let found = response.statuses[0].limit_remaining;
                    if found == left { Ok(()) } else { Err(found) }
                })
                .await;
            }
        }
        let admitted = statuses.iter().filter(|status| **status == 200).count();
        assert_eq!((admitted, statuses.len()), (2, 20), "{}: {statuses:?}", rules.display());
        println!("{}: {admitted} of {} requests", rules.display(), statuses.len());
    }
}

crate::tests_with! {
    ENVOY: a_budget_is_charged_estimates_while_requests_run_and_their_costs_in_the_end,
    a_budget_that_requests_bring_along_is_enforced_by_costs_at_the_end
}
