//! The world: nodes, the server, the messages between them, demand and faults.

use super::{
    LIMIT, MILLI, SECOND, START,
    node::Node,
    server::{Decided, Server},
};
use crate::{
    oracle::{Model, Oracle},
    rng::Rng,
};
use std::collections::BTreeMap;
use tidegate_core::limit::Timestamp;
use tidegate_shared::lease::{HolderDecision, LeaseRequest, LeaseResponse, Monotonic};

const NODES: usize = 10;

/// A step of the world.
const STEP: u64 = MILLI / 10;

/// Faults of a run: the chance is one in this number, for each message or each millisecond. 0 means never.
#[derive(Clone, Copy, Debug)]
pub(super) struct Faults {
    pub(super) lost_once_in: u64,
    pub(super) late_once_in: u64,
    pub(super) node_killed_once_in: u64,
    pub(super) server_killed_once_in: u64,
    pub(super) server_stopped_once_in: u64,
    /// A fault that is planted: snapshots lack the outstanding credits.
    pub(super) forgets: bool,
}

impl Faults {
    pub(super) const NONE: Self = Self {
        lost_once_in: 0,
        late_once_in: 0,
        node_killed_once_in: 0,
        server_killed_once_in: 0,
        server_stopped_once_in: 0,
        forgets: false,
    };

    pub(super) const ALL: Self = Self {
        lost_once_in: 20,
        late_once_in: 30,
        node_killed_once_in: 300,
        server_killed_once_in: 1_000,
        server_stopped_once_in: 1_000,
        forgets: false,
    };
}

/// The server's handling of messages that arrive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serves,
    /// Messages are lost until it starts again.
    KilledUntil(u64),
    /// Messages are read when it continues.
    StoppedUntil(u64),
}

enum Message {
    Decide { node: usize, id: u64, asked: Monotonic },
    Decided { node: usize, id: u64, asked: Monotonic, decided: Decided },
    Claim { node: usize, id: u64, epoch: u64, claim: LeaseRequest },
    Granted { node: usize, id: u64, response: LeaseResponse },
}

pub(super) struct Fleet {
    rng: Rng,
    faults: Faults,
    now: u64,
    server: Server,
    phase: Phase,
    nodes: Vec<Node>,
    nodes_made: u64,
    /// Messages by the time of their arrival, and a number.
    messages: BTreeMap<(u64, u64), Message>,
    sent: u64,
    /// The counter of all admissions.
    oracle: Oracle,
    /// The counter of a limiter that gets all requests alone.
    alone: Oracle,
    by_server: u64,
    pub(super) by_credits: u64,
    by_one: u64,
    /// Admissions although nothing was left.
    pub(super) beyond: u64,
    /// Number of occurrences of each fault.
    pub(super) happened: [(&'static str, u64); 4],
}

impl Fleet {
    pub(super) fn new(keys: &str, model: &Model, rng: Rng, faults: Faults) -> Self {
        Self {
            rng,
            faults,
            now: START,
            server: Server::new(keys, LIMIT, Timestamp::from_nanos(START)),
            phase: Phase::Serves,
            nodes: (1..=NODES as u64).map(Node::new).collect(),
            nodes_made: NODES as u64,
            messages: BTreeMap::new(),
            sent: 0,
            oracle: Oracle::new(model.clone()),
            alone: Oracle::new(model.clone()),
            by_server: 0,
            by_credits: 0,
            by_one: 0,
            beyond: 0,
            happened: [("node killed", 0), ("server killed", 0), ("server stopped", 0), ("message lost", 0)],
        }
    }

    pub(super) fn admitted(&self) -> u64 {
        self.by_server + self.by_credits
    }

    /// Admissions of one limiter with the same demand.
    pub(super) fn admitted_by_one(&self) -> u64 {
        self.by_one
    }

    /// Runs for this long, with a demand of `percent` of the limit in each second.
    pub(super) fn run(&mut self, nanos: u64, percent: u64) {
        let mut due = 0;
        for step in 0..nanos / STEP {
            self.now += STEP;
            self.end_phase();
            self.deliver();
            due += LIMIT * percent * STEP / 100;
            while due >= SECOND {
                due -= SECOND;
                self.request();
            }
            if step % (MILLI / STEP) == 0 {
                self.fail();
                (0..NODES).for_each(|node| self.poll(node));
            }
        }
    }

    fn clock(&self) -> Monotonic {
        Monotonic::from_nanos(self.now - START + MILLI)
    }

    fn time(&self) -> Timestamp {
        Timestamp::from_nanos(self.now)
    }

    fn happens(&mut self, once_in: u64) -> bool {
        once_in > 0 && self.rng.once_in(once_in)
    }

    fn admit(&mut self) {
        self.beyond += u64::from(self.oracle.remaining(self.now) == 0);
        self.oracle.take(1, self.now);
    }

    /// A request at a node; six of ten requests are at the same node.
    fn request(&mut self) {
        if self.alone.remaining(self.now) > 0 {
            self.alone.take(1, self.now);
            self.by_one += 1;
        }
        let hot = (self.now / (SECOND / 2)) as usize % NODES;
        let node = if self.rng.below(10) < 6 { hot } else { self.rng.below(NODES as u64) as usize };
        let clock = self.clock();
        match self.nodes[node].decide(clock) {
            HolderDecision::Covered => {
                self.by_credits += 1;
                self.admit();
            }
            HolderDecision::Denied { .. } => {}
            HolderDecision::Undecided => {
                let id = self.nodes[node].id;
                self.send(Message::Decide { node, id, asked: clock });
            }
        }
    }

    fn poll(&mut self, node: usize) {
        let clock = self.clock();
        if let Some(claim) = self.nodes[node].poll(clock) {
            let epoch = self.nodes[node].epoch;
            self.claim(node, epoch, claim);
        }
    }

    fn claim(&mut self, node: usize, epoch: u64, claim: LeaseRequest) {
        let id = self.nodes[node].id;
        self.send(Message::Claim { node, id, epoch, claim });
    }

    fn send(&mut self, message: Message) {
        if self.happens(self.faults.lost_once_in) {
            self.happened[3].1 += 1;
            return;
        }
        let mut delay = self.rng.between(MILLI / 10, MILLI / 2);
        if self.happens(self.faults.late_once_in) {
            delay += self.rng.below(300) * MILLI;
        }
        self.sent += 1;
        self.messages.insert((self.now + delay, self.sent), message);
    }

    fn deliver(&mut self) {
        let later = self.messages.split_off(&(self.now + 1, 0));
        for ((_, number), message) in std::mem::replace(&mut self.messages, later) {
            let is_for_server = matches!(message, Message::Decide { .. } | Message::Claim { .. });
            match self.phase {
                Phase::KilledUntil(_) if is_for_server => {}
                Phase::StoppedUntil(end) if is_for_server => {
                    self.messages.insert((end, number), message);
                }
                _ => self.arrive(message),
            }
        }
    }

    fn arrive(&mut self, message: Message) {
        let (clock, now) = (self.clock(), self.time());
        match message {
            Message::Decide { node, id, asked } => {
                let decided = self.server.decide(now);
                if decided.is_admitted {
                    self.by_server += 1;
                    self.admit();
                }
                self.send(Message::Decided { node, id, asked, decided });
            }
            Message::Claim { node, id, epoch, claim } => {
                if let Some(response) = self.server.lease(&claim, epoch, now) {
                    self.send(Message::Granted { node, id, response });
                }
            }
            Message::Decided { node, id, asked, decided } if self.nodes[node].id == id => {
                let former = self.nodes[node].epoch;
                let last = self.nodes[node].decided(&decided, asked, clock);
                last.into_iter().for_each(|claim| self.claim(node, former, claim));
            }
            Message::Granted { node, id, response } if self.nodes[node].id == id => {
                let former = self.nodes[node].epoch;
                let last = self.nodes[node].granted(&response, clock);
                last.into_iter().for_each(|claim| self.claim(node, former, claim));
            }
            // The node was killed.
            Message::Decided { .. } | Message::Granted { .. } => {}
        }
    }

    fn fail(&mut self) {
        if self.happens(self.faults.node_killed_once_in) {
            self.happened[0].1 += 1;
            self.nodes_made += 1;
            let node = self.rng.below(NODES as u64) as usize;
            self.nodes[node] = Node::new(self.nodes_made);
        }
        if self.phase != Phase::Serves {
            return;
        }
        let end = self.now + self.rng.between(20, 300) * MILLI;
        if self.happens(self.faults.server_killed_once_in) {
            self.happened[1].1 += 1;
            // Hits admitted after the last snapshot are forgotten, with and without leases.
            if self.faults.forgets {
                self.server.forget_credits(self.time());
            }
            self.server.write_snapshot(self.time());
            self.phase = Phase::KilledUntil(end);
        } else if self.happens(self.faults.server_stopped_once_in) {
            self.happened[2].1 += 1;
            self.phase = Phase::StoppedUntil(end);
        }
    }

    fn end_phase(&mut self) {
        match self.phase {
            Phase::KilledUntil(end) if end <= self.now => {
                self.server.restart(self.time());
                self.phase = Phase::Serves;
            }
            Phase::StoppedUntil(end) if end <= self.now => self.phase = Phase::Serves,
            _ => {}
        }
    }
}
