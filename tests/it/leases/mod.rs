//! Leases of a real server's counters: holders beside a client without leases, on the same limits.

mod callers;
mod edges;
mod node;
mod restart;

use crate::support::{Client, InProcess, limiter};
use node::{Fate, Node, Outcome};
use std::time::Duration;
use tidegate::api::pb::service::rate_limit_response::Code;
use tidegate_core::{
    limit::{Code as DecisionCode, Descriptor, Entry, Hits, Request, Timestamp},
    limiter::Limiter,
};
use tidegate_shared::lease::Monotonic;

const START: u64 = 1_700_000_000_000_000_000;
const MILLI: u64 = 1_000_000;
/// The limit of every rule below.
const LIMIT: u64 = 1_200;

/// Rules of every algorithm that is leased.
const KINDS: [&str; 7] = [
    "unit: second, requests_per_unit: 1200",
    "unit: second, requests_per_unit: 1200, precision: 8",
    "unit: second, requests_per_unit: 1200, algorithm: sliding_log",
    "unit: second, requests_per_unit: 1200, algorithm: fixed_window",
    "unit: second, requests_per_unit: 1200, algorithm: fixed_window, aligned: first_hit",
    "unit: second, requests_per_unit: 1200, algorithm: token_bucket",
    "unit: second, requests_per_unit: 1200, algorithm: leaky_bucket",
];

fn rules(kind: &str) -> String {
    format!("{{ domain: d, descriptors: [{{ key: a, rate_limit: {{ {kind} }} }}] }}")
}

/// One exact limiter, which gets all admissions at their true times.
struct Exact(Limiter);

impl Exact {
    fn new(kind: &str) -> Self {
        Self(limiter(&rules(kind)))
    }

    fn admits(&self, value: &str, now: u64) -> bool {
        let mut request = Request::new("d");
        let entries = [Entry { key: "a", value }].into_iter().collect();
        request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
        self.0.pin().decide(&request, Timestamp::from_nanos(now)).code == DecisionCode::Ok
    }
}

/// A server, its nodes and a client without leases.
struct World {
    server: InProcess,
    plain: Client,
    nodes: Vec<Node>,
    exact: Exact,
    now: u64,
    admitted: u64,
    by_credits: u64,
}

impl World {
    async fn new(kind: &str, nodes: u64) -> Self {
        let server = InProcess::granting(&rules(kind), Timestamp::from_nanos(START));
        let (mut plain, mut connected) = (server.client().await, Vec::new());
        // The learning phase begins when the server decides.
        while plain.hit("other", &[("a", "x")]).await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for number in 1..=nodes {
            connected.push(Node::new(number, server.channel().await));
        }
        let exact = Exact::new(kind);
        Self { server, plain, nodes: connected, exact, now: START, admitted: 0, by_credits: 0 }
    }

    fn clock(&self) -> Monotonic {
        Monotonic::from_nanos(self.now - START + MILLI)
    }

    fn pass(&mut self, nanos: u64) {
        self.now += nanos;
        self.server.clock.advance_to(Timestamp::from_nanos(self.now));
    }

    async fn by_node(&mut self, node: usize) -> Outcome {
        let clock = self.clock();
        let outcome = self.nodes[node].decide("x", clock).await.expect("the server decides");
        self.by_credits += u64::from(outcome == Outcome::Here(true));
        self.note(outcome.is_admitted());
        outcome
    }

    async fn by_plain_client(&mut self) {
        let response = self.plain.hit("d", &[("a", "x")]).await.expect("a response");
        self.note(response.overall_code() == Code::Ok);
    }

    fn note(&mut self, is_admitted: bool) {
        if is_admitted {
            self.admitted += 1;
            assert!(self.exact.admits("x", self.now), "admission {} is beyond the limit", self.admitted);
        }
    }
}

/// Random numbers of a fixed seed.
struct Random(u64);

impl Random {
    fn below(&mut self, max: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % max
    }
}

/// Three nodes and a client without leases demand `percent` of the limit for this many milliseconds; each call of a node is lost with this
/// chance in a hundred. Returns what one limiter admits of the same demand after the first half second.
async fn demand(world: &mut World, kind: &str, millis: u64, percent: u64, lost: u64) -> (u64, u64) {
    let (alone, mut random, mut admitted_alone, mut before) = (Exact::new(kind), Random(7), 0, 0);
    let mut due = 0;
    for milli in 0..millis {
        if milli == 500 {
            (admitted_alone, before) = (0, world.admitted);
        }
        world.pass(MILLI);
        due += LIMIT * percent / 100;
        while due >= 1_000 {
            due -= 1_000;
            admitted_alone += u64::from(alone.admits("x", world.now));
            match random.below(10) {
                0 => world.by_plain_client().await,
                // The second node has most of the demand.
                choice => {
                    let node = [0, 0, 1, 1, 1, 1, 1, 2, 2][choice as usize - 1];
                    _ = world.by_node(node.min(world.nodes.len() - 1)).await;
                }
            }
        }
        let clock = world.clock();
        for node in 0..world.nodes.len() {
            let fate = match random.below(100) {
                chance if chance < lost / 2 => Fate::RequestLost,
                chance if chance < lost => Fate::ResponseLost,
                _ => Fate::Answered,
            };
            world.nodes[node].exchange(clock, fate).await.expect("an exchange");
        }
    }
    (world.admitted - before, admitted_alone)
}

#[tokio::test]
async fn nodes_and_plain_clients_share_each_limit_exactly_and_use_it() {
    for kind in KINDS {
        for percent in [70, 150] {
            let mut world = World::new(kind, 3).await;
            let (admitted, alone) = demand(&mut world, kind, 2_500, percent, 0).await;
            assert!(admitted * 100 >= alone * 97, "{kind} at {percent} %: {admitted} of {alone}");
            let share = world.by_credits * 100 / world.admitted;
            println!("{kind} at {percent} %: {admitted} of {alone}, {share} % by credits");
            assert!(share >= 40, "{kind} at {percent} %: {share} % by credits");
        }
    }
}

#[tokio::test]
async fn lost_calls_cost_credits_and_never_the_limit() {
    for kind in KINDS {
        let mut world = World::new(kind, 3).await;
        demand(&mut world, kind, 1_500, 150, 30).await;
        assert!(world.admitted > LIMIT, "{kind}: {}", world.admitted);
        assert!(world.by_credits > 0, "{kind}");
    }
}
