//! One world: nodes, a network and a store, driven by events in true time, which is the store's.

use super::{
    super::{
        CounterState, ExactDecision, Holder, HolderDecision, LeaseRequest, LeaseResponse, Monotonic, NodeId,
        StoreDenial, Terms,
    },
    conditions::{Conditions, MILLIS},
    fault::{Fault, accept},
    journal::{By, Change, Journal},
    rng::Rng,
    rule::START,
    store::Store,
};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
};
use tidegate_core::{algorithm::State, limit::Timestamp};

pub(super) struct World<'c> {
    conditions: &'c Conditions,
    rng: Rng,
    now: u64,
    /// Ordered by time and number.
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event>,
    events_made: u64,
    nodes: Vec<Node>,
    nodes_made: u64,
    store: Store,
    pub(super) journal: Journal,
    pub(super) tally: Tally,
    /// Time and hits of every request.
    pub(super) requests: Vec<(u64, u64)>,
}

/// Counts of a world.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tally {
    /// Requests of clients.
    pub(super) requests: u64,
    /// Hits that credits admitted.
    pub(super) by_credits: u64,
    /// Hits that the store admitted.
    pub(super) by_store: u64,
    /// Messages of each kind to the store.
    pub(super) lease_requests: u64,
    pub(super) exact_requests: u64,
}

struct Node {
    id: u64,
    holders: Vec<Holder>,
    /// Difference of its clock in parts per million, and the reading at the start of the world.
    drift_ppm: i64,
    offset: u64,
    paused_until: u64,
    epoch: u64,
}

impl Node {
    fn clock(&self, now: u64) -> Monotonic {
        let elapsed = i128::from(now - START) * i128::from(1_000_000 + self.drift_ppm) / 1_000_000;
        Monotonic::from_nanos(self.offset + elapsed as u64)
    }
}

#[derive(Clone, Copy, Debug)]
enum Event {
    /// Clients' next request at a node.
    Request(usize),
    Poll(usize),
    ToStore {
        node: usize,
        id: u64,
        counter: usize,
        message: ToStore,
    },
    ToNode {
        node: usize,
        id: u64,
        counter: usize,
        message: ToNode,
    },
    FailOver,
    /// Of the epoch.
    EndLearning(u64),
}

#[derive(Clone, Copy, Debug)]
enum ToStore {
    Lease(LeaseRequest),
    Decide { hits: u64, asked: Monotonic },
    GiveBack(u64),
    Reset,
}

#[derive(Clone, Copy, Debug)]
enum ToNode {
    Lease(LeaseResponse),
    Decided { decision: ExactDecision, hits: u64, asked: Monotonic, epoch: u64 },
}

fn terms(conditions: &Conditions, counter: usize) -> Terms<'_> {
    Terms::of(&conditions.rules[counter].algorithm, conditions.settings).expect("rules that are leased")
}

impl<'c> World<'c> {
    pub(super) fn new(conditions: &'c Conditions, rng: Rng) -> Self {
        let mut world = Self {
            conditions,
            rng,
            now: START,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            events_made: 0,
            nodes: Vec::new(),
            nodes_made: 0,
            store: Store::new(conditions),
            journal: Journal::default(),
            tally: Tally::default(),
            requests: Vec::new(),
        };
        for (index, &gap) in conditions.gaps.iter().enumerate() {
            let node = world.new_node();
            world.nodes.push(node);
            let first = world.rng.below(gap + 1);
            world.after(first, Event::Request(index));
            let first = world.rng.below(conditions.poll_every);
            world.after(first, Event::Poll(index));
        }
        world.plan_failover();
        world
    }

    /// Runs the world to its end.
    pub(super) fn run(&mut self) {
        let end = START + self.conditions.length;
        while let Some(Reverse((at, number))) = self.queue.pop() {
            if at >= end {
                break;
            }
            self.now = at;
            let event = self.events.remove(&number).expect("queued once");
            self.apply(event);
        }
        self.store.end_learning(&mut self.journal);
    }

    fn after(&mut self, wait: u64, event: Event) {
        self.events_made += 1;
        self.queue.push(Reverse((self.now + wait, self.events_made)));
        self.events.insert(self.events_made, event);
    }

    /// Whether an event happens that has a chance of one in `once_in`. Never if that is zero.
    fn happens(&mut self, once_in: u64) -> bool {
        once_in > 0 && self.rng.once_in(once_in)
    }

    fn new_node(&mut self) -> Node {
        self.nodes_made += 1;
        let ppm = self.conditions.drift_ppm_max;
        let drift_ppm = self.rng.between(0, 2 * ppm) as i64 - ppm as i64;
        let mut node = Node {
            id: self.nodes_made,
            holders: Vec::new(),
            drift_ppm,
            offset: self.rng.below(1 << 40),
            paused_until: 0,
            epoch: self.store.epoch.id,
        };
        let clock = node.clock(self.now);
        node.holders = (0..self.conditions.rules.len())
            .map(|counter| Holder::new(terms(self.conditions, counter).for_holder(), clock))
            .collect();
        node
    }

    fn apply(&mut self, event: Event) {
        match event {
            Event::Request(node) | Event::Poll(node) | Event::ToNode { node, .. }
                if self.nodes[node].paused_until > self.now =>
            {
                let wait = self.nodes[node].paused_until - self.now;
                self.after(wait, event);
            }
            Event::Request(node) => self.request(node),
            Event::Poll(node) => {
                (0..self.conditions.rules.len()).for_each(|counter| self.poll(node, counter));
                self.after(self.conditions.poll_every, event);
            }
            Event::ToStore { node, id, counter, message } => self.at_store(node, id, counter, message),
            Event::ToNode { node, id, counter, message } => {
                // A message to a node that crashed.
                if self.nodes[node].id == id {
                    self.at_node(node, counter, message);
                }
            }
            Event::FailOver => {
                let lost = self.rng.between(0, self.conditions.writes_lost_max) as usize;
                self.store.fail_over(lost, self.now, &mut self.journal);
                let learning = self.conditions.settings.length_nanos() + 1;
                self.after(learning, Event::EndLearning(self.store.epoch.id));
                self.plan_failover();
            }
            Event::EndLearning(epoch) if epoch == self.store.epoch.id => {
                self.store.end_learning(&mut self.journal);
            }
            Event::EndLearning(_) => {}
        }
    }

    fn plan_failover(&mut self) {
        if self.conditions.failover_gap > 0 {
            let wait = self.rng.between(0, 2 * self.conditions.failover_gap);
            self.after(wait, Event::FailOver);
        }
    }

    fn request(&mut self, node: usize) {
        let gap = self.rng.between(0, 2 * self.conditions.gaps[node]);
        self.after(gap, Event::Request(node));
        if self.happens(self.conditions.crash_once_in) {
            self.nodes[node] = self.new_node();
            return;
        }
        if self.happens(self.conditions.pause_once_in) {
            self.nodes[node].paused_until = self.now + self.rng.below(500 * MILLIS);
            return;
        }
        let counter = self.rng.below(self.conditions.rules.len() as u64) as usize;
        if self.happens(self.conditions.give_back_once_in) {
            let hits = self.rng.between(1, 4);
            return self.send(node, counter, ToStore::GiveBack(hits));
        }
        if self.happens(self.conditions.reset_once_in) {
            return self.send(node, counter, ToStore::Reset);
        }
        let hits = self.rng.between(1, self.conditions.hits_max);
        self.decide(node, counter, hits);
    }

    fn decide(&mut self, node: usize, counter: usize, hits: u64) {
        self.tally.requests += 1;
        self.requests.push((self.now, hits));
        let is_stale = self.conditions.fault == Some(Fault::DecideByStaleClock);
        let clock = if is_stale { self.earlier_clock(node) } else { self.nodes[node].clock(self.now) };
        let holder = &mut self.nodes[node];
        match holder.holders[counter].decide(hits, clock) {
            HolderDecision::Covered => {
                self.tally.by_credits += hits;
                let spender = &holder.holders[counter];
                let by = By::Node { holder: (holder.id, spender.id()), spent: spender.spent() };
                self.journal.push(self.now, counter, Change::Admitted { hits, by });
            }
            HolderDecision::Denied { .. } => {}
            HolderDecision::Undecided => self.send(node, counter, ToStore::Decide { hits, asked: clock }),
        }
    }

    /// A reading of a clock by a thread that was suspended afterwards.
    fn earlier_clock(&mut self, node: usize) -> Monotonic {
        let ago = self.rng.below(self.conditions.stale_max + 1);
        self.nodes[node].clock(self.now.saturating_sub(ago).max(START))
    }

    fn poll(&mut self, node: usize, counter: usize) {
        let (id, clock) = (self.nodes[node].id, self.earlier_clock(node));
        let holder = &mut self.nodes[node].holders[counter];
        let terms = terms(self.conditions, counter);
        if let Some(request) = holder.poll(NodeId(id), clock) {
            self.send(node, counter, ToStore::Lease(request));
        } else if holder.is_idle(clock) {
            let clock = self.nodes[node].clock(self.now);
            self.nodes[node].holders[counter] = Holder::new(terms.for_holder(), clock);
        }
    }

    fn send(&mut self, node: usize, counter: usize, message: ToStore) {
        let id = self.nodes[node].id;
        let may_be_duplicated = match message {
            ToStore::Lease(_) => {
                self.tally.lease_requests += 1;
                true
            }
            _ => {
                self.tally.exact_requests += 1;
                false
            }
        };
        self.transmit(may_be_duplicated, Event::ToStore { node, id, counter, message });
    }

    fn transmit(&mut self, may_be_duplicated: bool, event: Event) {
        let network = self.conditions.network;
        if self.happens(network.loss_once_in) {
            return;
        }
        let copies = if may_be_duplicated && self.happens(network.duplicate_once_in) { 2 } else { 1 };
        for _ in 0..copies {
            let mut delay = self.rng.between(network.delay.0, network.delay.1);
            if self.happens(network.slow_once_in) {
                delay += self.rng.below(network.slow_delay_max);
            }
            self.after(delay, event);
        }
    }

    fn at_store(&mut self, node: usize, id: u64, counter: usize, message: ToStore) {
        let terms = terms(self.conditions, counter);
        let (store, now, journal) = (&mut self.store, self.now, &mut self.journal);
        let reply = match message {
            ToStore::Lease(request) => store.lease(terms, counter, &request, now).map(ToNode::Lease),
            ToStore::Decide { hits, asked } => {
                let decision = store.decide(terms, counter, hits, now, journal);
                if matches!(decision, ExactDecision::Admitted { .. }) {
                    self.tally.by_store += hits;
                }
                Some(ToNode::Decided { decision, hits, asked, epoch: store.epoch.id })
            }
            ToStore::GiveBack(hits) => {
                store.give_back(terms, counter, hits, now, journal);
                None
            }
            ToStore::Reset => {
                store.reset(terms, counter, now, journal);
                None
            }
        };
        if let Some(message) = reply {
            self.transmit(true, Event::ToNode { node, id, counter, message });
        }
    }

    fn at_node(&mut self, node: usize, counter: usize, message: ToNode) {
        let clock = self.earlier_clock(node);
        let node = &mut self.nodes[node];
        let epoch = match message {
            ToNode::Lease(response) => {
                accept(self.conditions.fault, &mut node.holders[counter], &response, clock);
                response.epoch
            }
            ToNode::Decided { decision, hits, asked, epoch } => {
                let holder = &mut node.holders[counter];
                match decision {
                    ExactDecision::Denied { denied_for, free: remaining, .. } => {
                        // More hits are denied too. Their waits, which follow from the state, are not looked at.
                        let state = Some(CounterState { state: State::EMPTY, at: Timestamp::EPOCH });
                        let denied = StoreDenial { hits, remaining, denied_for, reset: denied_for, state };
                        holder.keep_denial(denied, asked, clock);
                    }
                    ExactDecision::Admitted { free, .. } => holder.admitted(free, clock),
                    ExactDecision::Learning => {}
                }
                epoch
            }
        };
        if epoch > node.epoch {
            node.epoch = epoch;
            node.holders.iter_mut().for_each(Holder::declare);
        }
    }
}
