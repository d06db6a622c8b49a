//! Edges of the protocol: roles, bounds, forged and repeated claims, rule changes, cancelled calls.

use super::{Fate, KINDS, MILLI, Node, World, demand};
use crate::{
    control::token,
    support::{Server, rules_file},
};
use std::{fs, time::Duration};
use tidegate::api::pb::{
    leases::{
        ExchangeRequest, exchange_request::Claim, exchange_response::decision::Result as Decided,
        leases_client::LeasesClient,
    },
    service::{RateLimitRequest, rate_limit_response::Code},
};
use tidegate_core::clock::{Clock as _, SystemClock};
use tidegate_shared::lease::Monotonic;
use tonic::{Code as GrpcCode, Request, transport::Channel};

const LOG: &str = KINDS[2];

/// A world in which the first node has credits.
async fn leased() -> World {
    let mut world = World::new(LOG, 2).await;
    // Waits for the end of the learning phase.
    world.pass(300 * MILLI);
    for _ in 0..60 {
        world.pass(MILLI);
        world.by_node(0).await;
    }
    let clock = world.clock();
    world.nodes[0].exchange(clock, Fate::Answered).await.expect("a grant");
    assert!(world.nodes[0].credits(clock) > 4, "{:?}", world.nodes[0].last);
    world
}

fn decision(key: &str, hits: u32) -> RateLimitRequest {
    let descriptors = vec![crate::support::descriptor(&[(key, "x")])];
    RateLimitRequest { domain: "d".into(), descriptors, hits_addend: hits }
}

async fn remaining(world: &mut World) -> u32 {
    let mut descriptor = crate::support::descriptor(&[("a", "x")]);
    descriptor.hits_addend = Some(0);
    let response = world.plain.should_rate_limit("d", vec![descriptor]).await.expect("a response");
    response.statuses[0].limit_remaining
}

#[tokio::test]
async fn nothing_is_granted_in_the_first_lease_length() {
    let mut world = World::new(LOG, 1).await;
    demand(&mut world, LOG, 190, 100, 0).await;
    assert_eq!(world.by_credits, 0);
    demand(&mut world, LOG, 500, 100, 0).await;
    assert!(world.by_credits > 0);
}

#[tokio::test]
async fn a_repeated_call_changes_nothing_and_its_grants_are_marked() {
    let mut world = leased().await;
    let (before, last) = (remaining(&mut world).await, world.nodes[0].last.clone().unwrap());
    for _ in 0..3 {
        let response = world.nodes[0].client.exchange(last.clone()).await.unwrap().into_inner();
        assert_eq!(response.grants.iter().map(|grant| grant.sequence).collect::<Vec<_>>(), [0]);
    }
    assert_eq!(remaining(&mut world).await, before);
}

#[tokio::test]
async fn false_claims_take_nothing_from_others() {
    let mut world = leased().await;
    let (before, last) = (remaining(&mut world).await, world.nodes[0].last.clone().unwrap());
    let counter = last.claims[0].counter.clone();
    let most = (1 << 53) - 1;
    let send = |node, claim: Claim| ExchangeRequest { node, claims: vec![claim], ..last.clone() };
    let mut client = world.nodes[1].client.clone();
    // From a node without credits: it claims to have spent and kept more than everything. Nothing is outstanding afterwards.
    let claim = Claim {
        counter: counter.clone(),
        holder: 1,
        sequence: 1,
        spent: most,
        kept: most,
        spent_ago_us: u64::MAX,
        ..Claim::default()
    };
    let response = client.exchange(send(99, claim.clone())).await.unwrap().into_inner();
    assert_eq!(response.grants[0].spend_to, most);
    assert_eq!(remaining(&mut world).await, before);
    let modest = Claim { demand: 100, spent: 0, kept: 0, sequence: 2, ..claim.clone() };
    let response = client.exchange(send(99, modest)).await.unwrap().into_inner();
    // A report of more hits than were granted counts only the granted hits.
    let credits = response.grants[0].spend_to;
    let liar = Claim { spent: most, sequence: 3, ..claim.clone() };
    client.exchange(send(99, liar)).await.unwrap();
    assert_eq!(u64::from(remaining(&mut world).await), u64::from(before) - credits);
    // A counter that does not exist, and a number that belongs to other rules.
    let forged = Claim { counter: vec![7; 16], demand: 100, spent: 0, kept: 0, sequence: 4, ..claim.clone() };
    let response = client.exchange(send(99, forged)).await.unwrap().into_inner();
    assert_eq!((response.grants[0].spend_to, response.grants[0].valid_us), (0, 0));
    let stale = Claim { demand: 100, spent: 0, kept: 0, holder: 5, sequence: 5, ..claim.clone() };
    let stale = ExchangeRequest { generation: 77, ..send(99, stale) };
    let response = client.exchange(stale).await.unwrap().into_inner();
    assert_eq!(response.grants[0].spend_to, 0);
    // Any number of holders: each holder of a node has a lease, up to four.
    let of = |holder| Claim { counter: counter.clone(), holder, sequence: 1, demand: 10, ..Claim::default() };
    let many = ExchangeRequest { node: 98, claims: (10..30).map(of).collect(), ..last.clone() };
    let response = client.exchange(many).await.unwrap().into_inner();
    let granted = response.grants.iter().filter(|grant| grant.spend_to > 0).count();
    assert!((1..=4).contains(&granted), "{granted}");
    // A demand beyond all measure gets what is free, and nothing that other holders have.
    let free = remaining(&mut world).await;
    let greedy = Claim { demand: u64::MAX, sequence: 1, spent: 0, kept: 0, ..claim };
    let response = client.exchange(send(97, greedy)).await.unwrap().into_inner();
    assert!((1..=u64::from(free)).contains(&response.grants[0].spend_to), "{response:?}");
}

#[tokio::test]
async fn malformed_calls_are_refused_and_a_malformed_request_fails_alone() {
    let mut world = leased().await;
    let client = &mut world.nodes[0].client;
    let refused = |status: tonic::Status| (status.code(), status.message().to_owned());
    let none = client.exchange(ExchangeRequest::default()).await.map_err(refused).unwrap_err();
    assert_eq!(none.0, GrpcCode::InvalidArgument);
    assert!(none.1.starts_with("node: is 0;"), "{none:?}");
    let many = ExchangeRequest { node: 1, decisions: vec![decision("a", 1); 65], ..Default::default() };
    let many = client.exchange(many).await.map_err(refused).unwrap_err();
    assert_eq!(many.1, "decisions: has 65; send at most 64 in a call");
    let claims = vec![Claim { counter: vec![1; 16], sequence: 1, ..Claim::default() }; 513];
    let many = client.exchange(ExchangeRequest { node: 1, claims, ..Default::default() }).await;
    assert_eq!(many.map_err(refused).unwrap_err().1, "claims: has 513; send at most 512 in a call");
    let empty = RateLimitRequest::default();
    let decisions = vec![decision("a", 1), empty, decision("unknown", 1)];
    let both = ExchangeRequest { node: 1, decisions, ..Default::default() };
    let response = client.exchange(both).await.unwrap().into_inner();
    let [first, second, third] = &*response.decisions else { panic!("three decisions") };
    assert!(matches!(&first.result, Some(Decided::Response(_))) && first.counters.len() == 1);
    let Some(Decided::Error(error)) = &second.result else { panic!("{second:?}") };
    assert_eq!(error.code, GrpcCode::InvalidArgument as i32);
    assert!(third.counters.is_empty(), "nothing to decide");
}

/// A client of the holder chooses values: each value has a counter, which is leased like any other.
#[tokio::test]
async fn values_of_any_bytes_have_counters_of_their_own() {
    let mut world = leased().await;
    let client = &mut world.nodes[0].client;
    let mut counters = Vec::new();
    for value in crate::client_texts::odd_values() {
        let mut of_value = Vec::new();
        for (hits, expected) in [(1, Code::Ok), (1_000_000, Code::OverLimit)] {
            let mut descriptor = crate::support::descriptor(&[("a", "")]);
            descriptor.entries[0].value = value.as_slice().into();
            let request =
                RateLimitRequest { domain: "d".into(), descriptors: vec![descriptor], hits_addend: hits };
            let call = ExchangeRequest { node: 1, decisions: vec![request], ..Default::default() };
            let response = client.exchange(call).await.expect("decided").into_inner();
            let [decision] = &*response.decisions else { panic!("one decision") };
            let Some(Decided::Response(decided)) = &decision.result else { panic!("{decision:?}") };
            assert_eq!(decided.overall_code(), expected, "{:?}", &value[..value.len().min(9)]);
            of_value.extend(decision.counters.iter().map(|counter| counter.id.clone()));
        }
        assert!(of_value.len() == 2 && of_value[0] == of_value[1], "{of_value:?}");
        counters.extend(of_value.pop());
    }
    let values = counters.len();
    counters.sort_unstable();
    counters.dedup();
    assert_eq!(counters.len(), values);
}

/// The server granted credits in a response that the node did not wait for.
#[tokio::test]
async fn credits_of_a_cancelled_call_count_until_their_end() {
    let mut world = leased().await;
    let before = remaining(&mut world).await;
    let last = world.nodes[0].last.clone().unwrap();
    let claim = Claim { holder: 3, sequence: 1, demand: 200, spent: 0, kept: 0, ..last.claims[0].clone() };
    let call = ExchangeRequest { node: 50, claims: vec![claim], ..last };
    let mut client = world.nodes[1].client.clone();
    let cancelled = tokio::spawn(async move { client.exchange(call).await });
    tokio::time::sleep(Duration::from_millis(1)).await;
    cancelled.abort();
    // Whether or not the server received it: its credits are counted, and never fewer than the first node's credits.
    assert!(remaining(&mut world).await <= before);
    world.pass(1_300 * MILLI);
    assert_eq!(u64::from(remaining(&mut world).await), super::LIMIT);
}

#[tokio::test]
async fn two_calls_of_a_node_at_once_are_in_order_by_their_sequence() {
    let world = leased().await;
    let last = world.nodes[0].last.clone().unwrap();
    let call = |sequence| {
        let claim = Claim { holder: 3, sequence, demand: 20, spent: 0, kept: 0, ..last.claims[0].clone() };
        ExchangeRequest { node: 51, claims: vec![claim], ..last.clone() }
    };
    let (mut one, mut other) = (world.nodes[1].client.clone(), world.nodes[1].client.clone());
    let (one, other) = tokio::join!(one.exchange(call(5)), other.exchange(call(6)));
    let sequence = |response: Result<tonic::Response<_>, _>| {
        let response: tidegate::api::pb::leases::ExchangeResponse = response.unwrap().into_inner();
        response.grants[0].sequence
    };
    assert!([0, 5].contains(&sequence(one)));
    assert_eq!(sequence(other), 6);
}

/// Holders such as a process and a copy of it: each has a number of its own, also if they are made at the same moment.
#[tokio::test]
async fn two_nodes_of_one_number_share_the_limit_exactly() {
    let mut world = World::new(LOG, 2).await;
    world.nodes[1].number = world.nodes[0].number;
    for node in 0..2 {
        world.by_node(node).await;
    }
    let (admitted, alone) = demand(&mut world, LOG, 2_000, 150, 5).await;
    assert!(world.by_credits > 0 && admitted * 100 >= alone * 90, "{admitted} of {alone}");
}

/// A server in a process of its own, with the real clock, and a token of each role.
struct Granting {
    server: Server,
    rules: tempfile::NamedTempFile,
    folder: tempfile::TempDir,
}

const RULES: &str = "
domain: d
descriptors:
  - { key: a, rate_limit: { unit: hour, requests_per_unit: 100000 } }
  - { key: shadow, shadow_mode: true, rate_limit: { unit: hour, requests_per_unit: 1000 } }
  - { key: special, on_deny: { body: no }, rate_limit: { unit: hour, requests_per_unit: 1000 } }
  - { key: off, lease: off, rate_limit: { unit: hour, requests_per_unit: 1000 } }
  - { key: small, rate_limit: { unit: hour, requests_per_unit: 2, algorithm: sliding_log } }
";

impl Granting {
    fn start() -> Self {
        let (folder, rules) = (tempfile::tempdir().expect("a temporary folder"), rules_file(RULES));
        let tokens = folder.path().join("tokens");
        for role in ["lease", "read", "operate"] {
            let made = token(&tokens, role, &["--role", role]);
            fs::write(folder.path().join(role), made).expect("a file");
        }
        let tokens = tokens.to_str().expect("UTF-8");
        let server = Server::with_rules(rules.path(), &["--leases", "loopback", "--http-token-file", tokens]);
        Self { server, rules, folder }
    }

    fn call<M>(&self, role: &str, message: M) -> Request<M> {
        let mut request = Request::new(message);
        if !role.is_empty() {
            let token = fs::read_to_string(self.folder.path().join(role)).expect("the file of its token");
            let value = format!("Bearer {token}").parse().expect("ASCII");
            request.metadata_mut().insert("authorization", value);
        }
        request
    }

    async fn client(&self) -> LeasesClient<Channel> {
        LeasesClient::new(self.server.channel().await)
    }
}

#[tokio::test]
async fn holders_need_the_role_lease() {
    let granting = Granting::start();
    let mut client = granting.client().await;
    for (role, expected) in [
        ("", Some(GrpcCode::Unauthenticated)),
        ("read", Some(GrpcCode::PermissionDenied)),
        ("lease", None),
        ("operate", None),
    ] {
        let message = ExchangeRequest { node: 1, ..ExchangeRequest::default() };
        let called = client.exchange(granting.call(role, message)).await;
        assert_eq!(called.err().map(|status| status.code()), expected, "{role:?}");
    }
}

#[tokio::test]
async fn a_server_without_leases_names_the_flag() {
    let rules = rules_file(RULES);
    let server = Server::with_rules(rules.path(), &[]);
    let called = LeasesClient::new(server.channel().await).exchange(ExchangeRequest::default()).await;
    let status = called.unwrap_err();
    assert_eq!(status.code(), GrpcCode::Unimplemented);
    assert_eq!(status.message(), "this server grants no leases; start it with --leases");
}

#[tokio::test]
async fn what_holders_cannot_decide_has_no_counters() {
    let granting = Granting::start();
    let mut client = granting.client().await;
    let keys = ["a", "shadow", "special", "off", "small", "unknown"];
    let decisions = keys.iter().map(|key| decision(key, 1)).collect();
    let message = ExchangeRequest { node: 1, decisions, ..ExchangeRequest::default() };
    let response = client.exchange(granting.call("lease", message)).await.unwrap().into_inner();
    let counters: Vec<_> = response.decisions.iter().map(|decision| decision.counters.len()).collect();
    assert_eq!(counters, [1, 0, 0, 0, 1, 0]);
    let limits = [0, 4].map(|index: usize| response.decisions[index].counters[0].limit);
    assert_eq!(limits, [100_000, 2]);
    let settings = response.settings.unwrap();
    assert!(settings.length_us == 200_000 && settings.limit_min > 2);
    let known = ExchangeRequest { node: 1, epoch: response.epoch, ..ExchangeRequest::default() };
    let response = client.exchange(granting.call("lease", known)).await.unwrap().into_inner();
    assert_eq!(response.settings, None);
}

/// Small limits are not leased, but a denial is kept for the time that it certainly lasts.
#[tokio::test]
async fn a_denial_is_sent_with_the_time_for_which_it_is_certain() {
    let granting = Granting::start();
    let mut client = granting.client().await;
    let decisions = vec![decision("small", 2), decision("small", 1)];
    let message = ExchangeRequest { node: 1, decisions, ..ExchangeRequest::default() };
    let response = client.exchange(granting.call("lease", message)).await.unwrap().into_inner();
    let Some(Decided::Response(denied)) = &response.decisions[1].result else { panic!("{response:?}") };
    assert_eq!(denied.overall_code(), Code::OverLimit);
    assert!(response.decisions[1].counters[0].denied_for_us > 1_000_000_000);
}

#[tokio::test]
async fn credits_are_given_back_when_the_rules_change() {
    let granting = Granting::start();
    let clock = SystemClock::new();
    let began = clock.now();
    let now = || Monotonic::from_nanos(u64::try_from(clock.now().since(began).as_nanos()).unwrap() + MILLI);
    let mut node = Node::new(7, granting.server.channel().await);
    node.token = Some(fs::read_to_string(granting.folder.path().join("lease")).unwrap());
    while node.credits(now()) == 0 {
        for _ in 0..20 {
            node.decide("x", now()).await.unwrap();
        }
        node.exchange(now(), Fate::Answered).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let generation = node.generation;
    fs::write(granting.rules.path(), RULES.replace("100000", "600")).unwrap();
    granting.server.signal(rustix::process::Signal::HUP);
    granting.server.logged("rules reloaded");
    // The node learns of the new rules with its next call, at most a lease length later.
    while node.generation == generation {
        node.decide("x", now()).await.unwrap();
        node.exchange(now(), Fate::Answered).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(node.credits(now()), 0);
    let mut admitted = 0;
    for _ in 0..700 {
        admitted += u64::from(node.decide("x", now()).await.unwrap().is_admitted());
        node.exchange(now(), Fate::Answered).await.unwrap();
    }
    assert!(admitted <= 600, "{admitted}");
}
