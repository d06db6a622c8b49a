//! Holders of leases on the same counter, which spend the limit beside clients of quota and requests to the server.

use super::{
    client::{MILLIS, SECOND},
    world::{START, request},
};
use crate::{
    granter::Granter,
    lease::{Holder, HolderDecision, LeaseRequest, Monotonic, NodeId, StoreDenial, simulation::rng::Rng},
};
use std::time::Duration;
use tidegate_core::{
    limit::{Code, Timestamp},
    limiter::Pinned,
    store::Key,
};

/// Nodes with a holder each, and their granter.
pub(super) struct Holders {
    granter: Granter,
    nodes: Vec<Node>,
    /// Requests per second, of each.
    demand: f64,
    made: u64,
    /// Hits that they admitted by credits.
    pub(super) by_credits: u64,
}

struct Node {
    id: NodeId,
    /// The granter's epoch when it was last read.
    epoch: u64,
    holder: Option<Holder>,
    owed: f64,
}

/// The server, while it is up.
struct Server<'a, 'l> {
    granter: &'a Granter,
    rules: &'a Pinned<'l>,
    key: Key,
    now: Timestamp,
}

impl Holders {
    pub(super) fn new(nodes: usize, demand: f64) -> Self {
        // The first process has no former one.
        let granter = Granter::new(1, Timestamp::from_nanos(START - 60 * SECOND));
        let mut holders = Self { granter, nodes: Vec::new(), demand, made: 0, by_credits: 0 };
        for _ in 0..nodes {
            let node = holders.node();
            holders.nodes.push(node);
        }
        holders
    }

    fn node(&mut self) -> Node {
        self.made += 1;
        Node { id: NodeId(self.made), epoch: 0, holder: None, owed: 0.0 }
    }

    /// The server starts anew.
    pub(super) fn restart(&mut self, began: u64) {
        self.granter = Granter::new(self.granter.epoch() + 1, Timestamp::from_nanos(began));
    }

    /// Decides requests that arrive in the `nanos` before `now`, and reports. Returns the hits that were admitted. Some claims and grants
    /// are lost, and some nodes end without a message.
    pub(super) fn step(&mut self, rules: Option<&Pinned<'_>>, nanos: u64, now: u64, rng: &mut Rng) -> u64 {
        let mut admitted = 0;
        for index in 0..self.nodes.len() {
            if rng.below(40 * SECOND / nanos) == 0 {
                self.nodes[index] = self.node();
            }
            let at = Timestamp::from_nanos(now);
            let server = rules.and_then(|rules| {
                let request = request();
                let key = rules.grantable(&request)?[0].as_ref()?.key();
                Some(Server { granter: &self.granter, rules, key, now: at })
            });
            let node = &mut self.nodes[index];
            node.owed += self.demand * nanos as f64 / SECOND as f64;
            while node.owed >= 1.0 {
                node.owed -= 1.0;
                let (is_admitted, by_credits) =
                    node.decide(server.as_ref(), Monotonic::from_nanos(now - START));
                admitted += u64::from(is_admitted);
                self.by_credits += u64::from(by_credits);
            }
            if let Some(server) = &server {
                node.exchange(server, Monotonic::from_nanos(now - START), rng);
            }
        }
        admitted
    }
}

impl Node {
    /// Whether a request is admitted, and whether by credits.
    fn decide(&mut self, server: Option<&Server<'_, '_>>, at: Monotonic) -> (bool, bool) {
        match (self.holder.as_mut().map_or(HolderDecision::Undecided, |holder| holder.decide(1, at)), server)
        {
            (HolderDecision::Covered, _) => (true, true),
            (HolderDecision::Undecided, Some(server)) => (self.ask(server, at), false),
            (HolderDecision::Denied { .. } | HolderDecision::Undecided, _) => (false, false),
        }
    }

    fn ask(&mut self, server: &Server<'_, '_>, at: Monotonic) -> bool {
        let is_admitted = server.rules.decide(&request(), server.now).code == Code::Ok;
        self.see(server, at);
        let Some(terms) = server.granter.terms(server.rules, server.key, 1, server.now) else {
            return is_admitted;
        };
        let holder = self.holder.get_or_insert_with(|| {
            let mut holder = Holder::new(terms.holder, at);
            holder.decide(1, at);
            holder
        });
        if is_admitted {
            holder.admitted(0, at);
        } else {
            let reset = terms.denied_for.max(Duration::from_millis(1));
            let denial =
                StoreDenial { hits: 1, remaining: 0, denied_for: terms.denied_for, reset, state: None };
            holder.keep_denial(denial, at, at);
        }
        is_admitted
    }

    fn exchange(&mut self, server: &Server<'_, '_>, at: Monotonic, rng: &mut Rng) {
        let claim = self.holder.as_mut().and_then(|holder| {
            holder.drop_expired(at);
            holder.poll(self.id, at)
        });
        let Some(claim) = claim.filter(|_| !rng.once_in(10)) else { return };
        let response = self.claim(server, &claim);
        if let (Some(response), false) = (response, rng.once_in(10)) {
            if let Some(holder) = &mut self.holder {
                holder.accept(&response, at);
            }
            self.see(server, at);
        }
    }

    fn claim(&self, server: &Server<'_, '_>, claim: &LeaseRequest) -> Option<crate::lease::LeaseResponse> {
        let is_current = self.epoch == server.granter.epoch();
        server.granter.lease(server.rules, server.key, claim, is_current, server.now)
    }

    /// Gives up all credits if the granter has another epoch, and starts without a holder in that epoch.
    fn see(&mut self, server: &Server<'_, '_>, at: Monotonic) {
        let epoch = server.granter.epoch();
        if epoch == self.epoch {
            return;
        }
        if let Some(last) = self.holder.take().and_then(|mut holder| holder.release(self.id, at)) {
            self.claim(server, &last);
        }
        self.epoch = epoch;
    }
}

/// Each of the three gets a part, and together they keep the limit.
#[test]
fn clients_of_quota_holders_of_leases_and_requests_share_one_limit() {
    use super::{conditions::Conditions, limit::Limit, usefulness::calm, world::World};
    for (limit, rate) in [
        (Limit::bucket("token_bucket", 1_000, 1_000), 1_000),
        (Limit::bucket("leaky_bucket", 2_000, 1_000), 2_000),
        (Limit::log(10_000, 10), 1_000),
        (Limit::fixed(20_000, 20), 1_000),
        (Limit::fixed(60_000, 1_200), 50),
    ] {
        let rule = limit.rule.clone();
        let mut world = World::new(
            Conditions { limit, direct: 0.5, holders: 2, delay_max: 50 * MILLIS, ..calm(5, 2, 1.0, true) },
            Rng::of_seed(3),
        );
        world.run_for(60 * SECOND);
        let (by_clients, by_credits) = (world.admitted(), world.holders.by_credits);
        let direct = world.direct_admitted;
        println!("{rule}: {by_clients} by clients, {by_credits} by credits, {direct} by the server");
        assert_eq!(world.excess.0, 0, "{rule}");
        let least = rate * 60 / 40;
        assert!(by_clients >= least && by_credits >= least && direct >= least, "{rule}");
    }
}
