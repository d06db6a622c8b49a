//! Several processes and their server, simulated: messages take time and are lost, processes and the server end, rules change.

mod costs;
mod hooks;
mod sizes;
mod world;

use crate::rng::Rng;
use std::{cell::Cell, collections::BTreeMap, sync::atomic::Ordering};
use tidegate_core::limit::{Descriptor, Entry, Hits, Request, Timestamp};
use tidegate_shared::lease::Monotonic;
use world::{BEGAN, MILLI, Node, Server};

const SECOND: u64 = 1_000 * MILLI;
thread_local! {
    /// Nanoseconds of the clock, if a test sets them.
    pub(super) static TIME: Cell<Option<u64>> = const { Cell::new(None) };
}

/// An empty SETTINGS frame, the first that a server sends.
pub(super) const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];

/// The limit of each value of the key `k`, per second.
const LIMIT: u64 = 2_000;

fn rules(kind: &str, limit: u64) -> String {
    format!(
        "{{ domain: d, descriptors: [{{ key: k, rate_limit: {{ unit: second, requests_per_unit: {limit}, {kind} }} }}] }}"
    )
}

/// A request with a descriptor for each of the keys and values.
fn request<'r>(descriptors: &[(&'r str, &'r str)], hits: u64) -> Request<'r> {
    let mut request = Request::new("d");
    for &(key, value) in descriptors {
        let entries = [Entry { key, value }].into_iter().collect();
        request.push(Descriptor { entries, limit: None, hits: Hits::new(Some(hits), 0, false) });
    }
    request
}

/// A run of several processes.
struct Run {
    server: Server,
    nodes: Vec<Node>,
    rng: Rng,
    /// Nanoseconds since the beginning.
    time: u64,
    /// Times and values of requests that credits have admitted.
    admitted: Vec<(u64, String)>,
    undecided: usize,
    lost: u64,
}

impl Run {
    fn new(text: &str, nodes: u64, seed: u64) -> Self {
        let nodes = (1..=nodes).map(Node::new).collect();
        let (server, rng) = (Server::new(text), Rng::of_seed(seed));
        // Beyond the learning phase of the server.
        Self { server, nodes, rng, time: SECOND, admitted: Vec::new(), undecided: 0, lost: 0 }
    }

    fn at(&self) -> u64 {
        BEGAN + self.time
    }

    /// Sends one request to a node; notes whether credits admitted it.
    fn send(&mut self, node: usize, value: &str, hits: u64) {
        let (at, now) = (self.at(), Monotonic::from_nanos(self.time));
        if self.nodes[node].decide(&request(&[("k", value)], hits), now) == Some(true) {
            (0..hits).for_each(|_| self.admitted.push((at, value.to_owned())));
        }
    }

    /// Sends so many requests to the first node, one every half millisecond.
    fn load(&mut self, count: usize) {
        for _ in 0..count {
            self.send(0, "hot", 1);
            self.step();
        }
    }

    /// Lets half a millisecond pass.
    fn step(&mut self) {
        self.time += MILLI / 2;
        let (at, now) = (self.at(), Monotonic::from_nanos(self.time));
        for node in &mut self.nodes {
            node.exchange(&self.server, (now, at), &mut self.rng, self.lost);
            self.undecided += node.outcomes().iter().filter(|outcome| outcome.is_none()).count();
        }
    }

    /// Hits that were admitted, by value and time.
    fn all(&self) -> BTreeMap<String, Vec<u64>> {
        let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (at, value) in self.admitted.iter().chain(&*self.server.admitted.borrow()) {
            all.entry(value.clone()).or_default().push(*at);
        }
        all.values_mut().for_each(|times| times.sort_unstable());
        all
    }

    /// No second has more than the limit of any value: no window of the clock or, with a sliding window, no second at all.
    fn assert_bound(&self, slides: bool) {
        for (value, times) in self.all() {
            let window = |at: u64| if slides { at } else { at / SECOND * SECOND };
            let mut end = 0;
            for (index, &at) in times.iter().enumerate() {
                while end < times.len() && times[end] < window(at) + SECOND {
                    end += 1;
                }
                let count = (end - index) as u64;
                assert!(count <= LIMIT, "{count} of {value} in the second from {}", at - BEGAN);
            }
        }
    }
}

/// Demand of a value at each node, per half millisecond, in requests and thousandths: skewed, and moving every 700 ms.
fn demand(run: &mut Run, factor: u64) {
    let nodes = run.nodes.len() as u64;
    let busy = run.time / (700 * MILLI) % nodes;
    for node in 0..nodes {
        // The busy node has half of all.
        let share = if node == busy { 500 } else { 500 / (nodes - 1) };
        let expected = LIMIT * factor * share / 2_000;
        let count = expected / 1_000 / 10 + u64::from(run.rng.below(10_000) < expected % 10_000);
        (0..count).for_each(|_| run.send(node as usize, "hot", 1));
    }
}

#[test]
fn five_processes_share_a_limit_and_use_all_of_it() {
    for (kind, slides) in [("algorithm: fixed_window", false), ("algorithm: sliding_log", true)] {
        for factor in [8, 12, 30] {
            let mut run = Run::new(&rules(kind, LIMIT), 5, factor);
            while run.time < 6 * SECOND {
                demand(&mut run, factor);
                run.step();
            }
            run.assert_bound(slides);
            let inner = run.all()["hot"]
                .iter()
                .filter(|&&at| (BEGAN + 2 * SECOND..BEGAN + 5 * SECOND).contains(&at))
                .count();
            let wanted = LIMIT * 3 * factor.min(10) / 10 * 97 / 100;
            assert!(inner as u64 >= wanted, "{kind}, {factor}: {inner} of {wanted}");
            assert_eq!(run.undecided, 0);
            let by_credits: u64 = run.nodes.iter().map(|node| node.by_credits).sum();
            assert!(by_credits > 4_000, "{by_credits} decisions by credits");
        }
    }
}

/// Their holders are made at the same moments.
#[test]
fn processes_with_the_same_number_share_the_limit() {
    let mut run = Run::new(&rules("algorithm: sliding_log", LIMIT), 2, 7);
    run.nodes = (0..2).map(|_| Node::new(1)).collect();
    while run.time < 4 * SECOND {
        for node in 0..2 {
            (0..2).for_each(|_| run.send(node, "hot", 1));
        }
        run.step();
    }
    run.assert_bound(true);
    let by_credits = [0, 1].map(|node: usize| run.nodes[node].by_credits);
    assert!(by_credits.iter().all(|own| *own > 500), "{by_credits:?} decisions by credits");
}

#[test]
fn faults_never_lead_beyond_the_limit() {
    for seed in 0..8 {
        let slides = seed % 2 == 0;
        let kind = if slides { "algorithm: sliding_log" } else { "algorithm: fixed_window" };
        let mut run = Run::new(&rules(kind, LIMIT), 3, seed);
        run.lost = 2;
        while run.time < 4 * SECOND {
            demand(&mut run, 15);
            if run.rng.once_in(600) {
                let (node, number) = (run.rng.below(3) as usize, 10 + run.time);
                run.nodes[node] = Node::new(number);
            }
            if run.rng.once_in(3_000) {
                let at = run.at();
                run.server.restart(Timestamp::from_nanos(at));
            }
            if run.rng.once_in(2_000) {
                run.server.load(&rules(kind, LIMIT));
            }
            run.step();
        }
        run.assert_bound(slides);
    }
}

#[test]
fn a_process_that_ends_gives_its_credits_back() {
    let mut run = Run::new(&rules("algorithm: fixed_window", LIMIT), 2, 1);
    run.load(400);
    let now = Monotonic::from_nanos(run.time);
    run.nodes[0].retire(now);
    (0..10).for_each(|_| run.step());
    let spent = run.all()["hot"].iter().filter(|at| **at >= run.at() / SECOND * SECOND).count() as u64;
    // Without outstanding credits, another process is admitted the rest, in one request.
    run.send(1, "hot", LIMIT - spent);
    (0..10).for_each(|_| run.step());
    let all = run.all()["hot"].iter().filter(|at| **at >= run.at() / SECOND * SECOND).count() as u64;
    assert_eq!(all, LIMIT, "{spent} before");
}

#[test]
fn a_request_is_charged_to_all_of_its_counters_or_none() {
    let limits = "{ domain: d, descriptors: [{ key: k, rate_limit: { unit: hour, requests_per_unit: 100000 } }, \
                  { key: small, rate_limit: { unit: hour, requests_per_unit: 1000 } }] }";
    let mut run = Run::new(limits, 1, 3);
    let both = request(&[("k", "both"), ("small", "b"), ("free", "c")], 1);
    let (mut admitted, mut denied) = (0, 0);
    for _ in 0..6_000 {
        let now = Monotonic::from_nanos(run.time);
        match run.nodes[0].decide(&both, now) {
            Some(true) => admitted += 1,
            Some(false) => denied += 1,
            None => {}
        }
        run.step();
    }
    let cold = run.server.admitted.borrow().len();
    assert_eq!(admitted + cold, 1_000, "{cold} by the server");
    assert!(admitted > 500 && denied > 4_000, "{admitted} admitted and {denied} denied without the server");
    let now = Monotonic::from_nanos(run.time);
    run.nodes[0].retire(now);
    (0..10).for_each(|_| run.step());
    run.send(0, "both", 99_000);
    (0..10).for_each(|_| run.step());
    assert_eq!(
        run.server.admitted.borrow().len() - cold,
        99_000,
        "the other counter has only the hits of admitted requests"
    );
}

#[test]
fn a_server_that_is_away_leaves_no_request_waiting() {
    let mut run = Run::new(&rules("algorithm: fixed_window", LIMIT), 1, 4);
    run.lost = 1_000;
    run.load(100);
    (0..60).for_each(|_| run.step());
    assert_eq!((run.undecided, run.nodes[0].wakes.load(Ordering::Relaxed)), (100, 100));
}

#[test]
fn while_no_call_can_be_sent_nothing_is_due_before_a_deadline() {
    let mut run = Run::new(&rules("algorithm: fixed_window", LIMIT), 1, 5);
    run.load(200);
    assert!(!run.admitted.is_empty(), "the node has credits");
    // The connection is lost, and credits are not renewed.
    run.time += SECOND;
    let now = Monotonic::from_nanos(run.time);
    assert!(run.nodes[0].exchanges.next_step(now) <= now);
    assert!(run.nodes[0].exchanges.next_deadline(now) > now);
}
