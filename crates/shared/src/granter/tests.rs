//! Leases on counters of a limiter, compared with the leases of the model. The model's simulation shows that it never admits too much.

use super::*;
use crate::lease::{ExactDecision, Holder, HolderDecision, Monotonic, SharedCounter};
use proptest::prelude::*;
use tidegate_core::{
    limit::{Code, Descriptor, Entry, Hits, Request},
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};

/// Rules of every algorithm that is leased.
const KINDS: [&str; 7] = [
    "unit: second, requests_per_unit: 600",
    "unit: second, requests_per_unit: 600, precision: 8",
    "unit: second, requests_per_unit: 600, algorithm: sliding_log",
    "unit: second, requests_per_unit: 600, algorithm: fixed_window",
    "unit: second, requests_per_unit: 600, algorithm: fixed_window, aligned: first_hit",
    "unit: second, requests_per_unit: 600, algorithm: token_bucket",
    "unit: second, requests_per_unit: 600, algorithm: leaky_bucket",
];

const BEGAN: u64 = 1_700_000_000_000_000_000;

fn limiter(kind: &str) -> Limiter {
    let rules = format!("{{ domain: d, descriptors: [{{ key: a, rate_limit: {{ {kind} }} }}] }}");
    let rules = RuleSet::parse(&[Source::file("r.yaml", rules)], &LoadOptions::default()).unwrap();
    let seed = Seed::from_bytes([5; 16]);
    Limiter::new(rules, StoreSettings { seed, counters_max: 10, on_full: OnFull::Deny }, false)
}

fn request(hits: Hits) -> Request<'static> {
    let mut request = Request::new("d");
    let entries = [Entry { key: "a", value: "" }].into_iter().collect();
    request.push(Descriptor { entries, limit: None, hits });
    request
}

fn take(hits: u64) -> Request<'static> {
    request(Hits::new(Some(hits), 0, false))
}

fn key_and_algorithm(limiter: &Limiter) -> (Key, Algorithm) {
    let rules = limiter.pin();
    let charges = rules.grantable(&take(1)).expect("a rule that is leased");
    let charge = charges[0].as_ref().unwrap();
    (charge.key(), charge.algorithm().clone())
}

/// A step, some microseconds after the last: one of two nodes decides hits or claims, or the server acts.
#[derive(Clone, Copy, Debug)]
enum Step {
    Decide {
        node: usize,
        hits: u64,
    },
    /// The request or the response may be lost.
    Claim {
        node: usize,
        is_request_lost: bool,
        is_response_lost: bool,
    },
    /// Of a client without leases.
    Exact {
        hits: u64,
    },
    GiveBack {
        hits: u64,
    },
    Crash {
        node: usize,
    },
}

fn step() -> impl Strategy<Value = (u64, Step)> {
    let lost = || prop::bool::weighted(0.15);
    let steps = prop_oneof![
        12 => (0..2_usize, 1..40_u64).prop_map(|(node, hits)| Step::Decide { node, hits }),
        6 => (0..2_usize, lost(), lost()).prop_map(|(node, is_request_lost, is_response_lost)| Step::Claim {
            node,
            is_request_lost,
            is_response_lost
        }),
        4 => (1..60_u64).prop_map(|hits| Step::Exact { hits }),
        1 => (1..20_u64).prop_map(|hits| Step::GiveBack { hits }),
        1 => (0..2_usize).prop_map(|node| Step::Crash { node }),
    ];
    (prop_oneof![8 => 0..9_000_u64, 1 => 0..400_000_u64], steps)
}

/// A limiter with its granter, and the model. Both have to agree on everything.
struct Pair {
    limiter: Limiter,
    granter: Granter,
    model: SharedCounter,
    key: Key,
    algorithm: Algorithm,
    now: u64,
    nodes: Vec<(NodeId, Holder)>,
    made: u64,
    by_credits: u64,
}

impl Pair {
    fn new(kind: &str) -> Self {
        let limiter = limiter(kind);
        let (key, algorithm) = key_and_algorithm(&limiter);
        let granter = Granter::new(7, Timestamp::from_nanos(BEGAN));
        let mut pair = Self {
            limiter,
            granter,
            model: SharedCounter::default(),
            key,
            algorithm,
            // After the learning phase.
            now: BEGAN + 1_000_000_000,
            nodes: Vec::new(),
            made: 0,
            by_credits: 0,
        };
        (0..2).for_each(|_| {
            let node = pair.node();
            pair.nodes.push(node);
        });
        pair
    }

    fn terms<'a>(&self, algorithm: &'a Algorithm) -> Terms<'a> {
        Terms::of(algorithm, self.granter.settings()).unwrap()
    }

    fn node(&mut self) -> (NodeId, Holder) {
        self.made += 1;
        (NodeId(self.made), Holder::new(self.terms(&self.algorithm).for_holder(), self.clock()))
    }

    fn clock(&self) -> Monotonic {
        Monotonic::from_nanos(self.now - BEGAN)
    }

    fn time(&self) -> Timestamp {
        Timestamp::from_nanos(self.now)
    }

    fn exact(&mut self, hits: u64) -> Result<(), TestCaseError> {
        let (algorithm, now) = (self.algorithm.clone(), self.time());
        let modelled = self.model.decide(self.terms(&algorithm), self.granter.epoch, hits, now);
        let rules = self.limiter.pin();
        let decision = rules.decide(&take(hits), now).statuses[0];
        let (code, free, reset) = match modelled {
            // The server's time until the whole limit is free includes outstanding credits.
            ExactDecision::Admitted { free, .. } => (Code::Ok, free, decision.reset),
            // The server's wait includes the end of the credits. The store counts credits as used at the denial, so that its wait is no
            // longer.
            ExactDecision::Denied { free, reset, .. } => {
                let leased = self.model.clone().0.into_state(&algorithm, now);
                let exact = algorithm.until_admits(&leased, hits, now);
                prop_assert!(exact >= reset, "{exact:?} before {reset:?}");
                (Code::OverLimit, free, Some(exact))
            }
            ExactDecision::Learning => unreachable!("it is over"),
        };
        prop_assert_eq!((decision.code, u64::from(decision.remaining), decision.reset), (code, free, reset));
        Ok(())
    }

    fn claim(
        &mut self,
        node: usize,
        is_request_lost: bool,
        is_response_lost: bool,
    ) -> Result<(), TestCaseError> {
        let (algorithm, clock, now) = (self.algorithm.clone(), self.clock(), self.time());
        let terms = self.terms(&algorithm);
        let (id, holder) = &mut self.nodes[node];
        holder.drop_expired(clock);
        let Some(claim) = holder.poll(*id, clock) else { return Ok(()) };
        if is_request_lost {
            return Ok(());
        }
        let response = self.granter.lease(&self.limiter.pin(), self.key, &claim, true, now);
        let has_counter = self.granter.terms(&self.limiter.pin(), self.key, 1, now).is_some();
        if has_counter {
            prop_assert_eq!(response, self.model.lease(terms, self.granter.epoch, &claim, now));
        }
        if let Some(response) = response.filter(|_| !is_response_lost) {
            self.nodes[node].1.accept(&response, clock);
        }
        Ok(())
    }

    fn apply(&mut self, step: Step) -> Result<(), TestCaseError> {
        let (algorithm, clock, now) = (self.algorithm.clone(), self.clock(), self.time());
        let terms = self.terms(&algorithm);
        match step {
            Step::Decide { node, hits } => match self.nodes[node].1.decide(hits, clock) {
                HolderDecision::Covered => self.by_credits += hits,
                HolderDecision::Denied { .. } => {}
                HolderDecision::Undecided => self.exact(hits)?,
            },
            Step::Claim { node, is_request_lost, is_response_lost } => {
                self.claim(node, is_request_lost, is_response_lost)?;
            }
            Step::Exact { hits } => self.exact(hits)?,
            Step::GiveBack { hits } => {
                self.model.give_back(terms, hits, now);
                self.limiter.pin().decide(&request(Hits::new(Some(hits), 0, true)), now);
            }
            Step::Crash { node } => self.nodes[node] = self.node(),
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_server_decides_and_grants_as_the_model_does(
        kind in 0..KINDS.len(),
        steps in prop::collection::vec(step(), 1..400),
    ) {
        let mut pair = Pair::new(KINDS[kind]);
        pair.exact(1)?;
        for (wait, step) in steps {
            pair.now += wait * 1_000;
            pair.apply(step)?;
        }
    }
}

/// Two nodes under a demand beyond the limit.
fn busy(kind: &str) -> (Pair, u64) {
    let mut pair = Pair::new(kind);
    let mut admitted = 0;
    for _ in 0..2_000 {
        pair.now += 1_000_000;
        for node in 0..2 {
            let clock = pair.clock();
            match pair.nodes[node].1.decide(1, clock) {
                HolderDecision::Covered => (pair.by_credits, admitted) = (pair.by_credits + 1, admitted + 1),
                HolderDecision::Denied { .. } => {}
                HolderDecision::Undecided => {
                    let now = pair.time();
                    admitted += u64::from(pair.limiter.pin().decide(&take(1), now).code == Code::Ok);
                }
            }
            let claim = pair.nodes[node].1.poll(NodeId(node as u64), clock);
            if let Some(claim) = claim {
                let response = pair.granter.lease(&pair.limiter.pin(), pair.key, &claim, true, pair.time());
                pair.nodes[node].1.accept(&response.unwrap(), clock);
            }
        }
    }
    (pair, admitted)
}

#[test]
fn most_hits_of_a_busy_counter_are_decided_by_nodes_and_hardly_any_are_lost() {
    for kind in KINDS {
        let (pair, admitted) = busy(kind);
        let possible = if kind.contains("bucket") { 600 + 2 * 600 } else { 2 * 600 };
        println!("{kind}: {admitted} of {possible} admitted, {} by credits", pair.by_credits);
        assert!(pair.by_credits * 2 > admitted, "{kind}: {} of {admitted} by credits", pair.by_credits);
        assert!(admitted * 100 >= possible * 90, "{kind}: {admitted} of {possible}");
        // Admissions may touch one window more than the two that are counted.
        assert!(admitted <= possible + 600, "{kind}: {admitted} of {possible}");
        let counts = pair.granter.counts();
        assert!(counts.leases == 2 && counts.granted >= counts.spent && counts.claims > 10, "{counts:?}");
    }
}

fn claim(node: u64, sequence: u64, demand: u64) -> LeaseRequest {
    let node = NodeId(node);
    LeaseRequest { node, holder: 0, sequence, spent: 0, acknowledged: 0, spent_ago: 0, kept: 0, demand }
}

#[test]
fn leases_on_a_counter_are_bounded_and_those_of_silent_nodes_end() {
    let mut pair = Pair::new(KINDS[2]);
    pair.exact(1).unwrap();
    let lease = |pair: &Pair, node| {
        let rules = pair.limiter.pin();
        pair.granter.lease(&rules, pair.key, &claim(node, 1, 9), true, pair.time()).unwrap()
    };
    (0..2_000).for_each(|node| _ = lease(&pair, node));
    assert_eq!(pair.granter.counts().leases, LEASES_OF_COUNTER_MAX as u64);
    assert_eq!(lease(&pair, 5_000).supply, Supply::TooSmall);
    // Credits of the silent nodes count as spent for one second more.
    pair.now += 3_000_000_000;
    assert_eq!(lease(&pair, 5_001).supply, Supply::Ample);
    assert_eq!(pair.granter.counts().leases, 1);
    pair.now += 500_000_000;
    let other = Key::from_halves(1, 2);
    pair.granter.lease(&pair.limiter.pin(), other, &claim(1, 1, 9), true, pair.time());
    assert_eq!(pair.granter.counts().leases, 0, "ended by a call for another counter");
}

#[test]
fn leases_on_all_counters_are_bounded() {
    let mut pair = Pair::new(KINDS[2]);
    pair.exact(1).unwrap();
    pair.granter.out.lock().counts.leases = LEASES_MAX - 1;
    let rules = pair.limiter.pin();
    let lease = |node| pair.granter.lease(&rules, pair.key, &claim(node, 1, 9), true, pair.time()).unwrap();
    assert_eq!(lease(1).supply, Supply::Ample);
    assert_eq!(lease(2).supply, Supply::TooSmall);
}

#[test]
fn under_former_rules_a_node_reports_and_gets_nothing() {
    let mut pair = Pair::new(KINDS[2]);
    pair.exact(1).unwrap();
    let rules = pair.limiter.pin();
    let response = pair.granter.lease(&rules, pair.key, &claim(1, 1, 90), true, pair.time()).unwrap();
    assert!(response.spend_to > 20, "{response:?}");
    let out = NodeLeases { leases: 1, credits: response.spend_to, demand: 90 };
    assert_eq!(pair.granter.nodes(&rules, pair.time()), HashMap::from([(NodeId(1), out)]));
    let report = LeaseRequest { spent: 10, kept: 5, ..claim(1, 2, 90) };
    let response = pair.granter.lease(&rules, pair.key, &report, false, pair.time()).unwrap();
    assert_eq!((response.spend_to, response.supply), (15, Supply::TooSmall));
    assert_eq!(rules.decide(&take(1), pair.time()).statuses[0].remaining, 600 - 1 - 10 - 5 - 1);
}

#[test]
fn a_reset_keeps_outstanding_credits() {
    let mut pair = Pair::new(KINDS[0]);
    pair.exact(100).unwrap();
    let rules = pair.limiter.pin();
    let response = pair.granter.lease(&rules, pair.key, &claim(1, 1, 90), true, pair.time()).unwrap();
    let reset = rules.reset(&take(1), pair.time()).unwrap();
    assert_eq!(reset.counters, 1);
    let free = rules.decide(&request(Hits::Peek), pair.time()).statuses[0].remaining;
    assert_eq!(u64::from(free), 600 - response.spend_to);
    assert_eq!(rules.reset_rule("d", None, pair.time()).unwrap().counters, 1);
    let free = rules.decide(&request(Hits::Peek), pair.time()).statuses[0].remaining;
    assert_eq!(u64::from(free), 600 - response.spend_to);
}
