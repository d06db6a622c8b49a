//! Compares the script's leases in a real store with the functions that the simulation verifies: the same messages at the same times have
//! the same results.

use super::{
    RedisServer,
    lease_script::{LENGTH, Store, at, counter, give, limiter, request, rules, take},
    random_rules::{ALGORITHMS, KINDS, Random},
};
use crate::tests_with;
use shared_counter::{ExactDecision, SharedCounter};
use std::{env, time::Duration};
use tidegate_core::{
    algorithm::Algorithm,
    limit::{Code, Hits, Reset},
    limiter::OwnedPinned,
    rules::LoadOptions,
    store::Key,
};
use tidegate_shared::{
    lease::{Epoch, LeaseRequest, LeaseResponse, NodeId, Settings, Supply, Terms, lease},
    script::{Batch, EncodedRequest, Undecided},
};

#[path = "../../sim/shared_counter.rs"]
#[allow(dead_code, reason = "the simulation uses the rest")]
mod shared_counter;

tests_with! {
    REDIS:
    leases_of_the_script_are_those_of_the_simulation,
    a_changed_rule_leaves_credits_out,
    a_request_of_a_server_whose_clock_is_hours_ahead_leaves_the_others_decided,
    a_batch_on_a_leased_bucket_admits_no_more_than_is_free,
}

pub(super) const SETTINGS: Settings = Settings {
    length: Duration::from_millis(200),
    grant_min: 4,
    limit_min: 0,
    hold_min: Duration::from_millis(2),
};
const DAY: u64 = 86_400_000_000;
/// The script has the ends of a calendar's windows from an hour ago on.
const CALENDAR_STEP: u64 = 1_200_000_000;

/// A node's first request for credits.
pub(super) const FIRST_REQUEST: LeaseRequest = LeaseRequest {
    node: NodeId(1),
    holder: 1,
    sequence: 1,
    spent: 0,
    acknowledged: 0,
    spent_ago: 0,
    kept: 0,
    demand: 100,
};

fn is_fixed(algorithm: &Algorithm) -> bool {
    matches!(algorithm, Algorithm::FixedWindow(_))
}

/// A rule of a kind, and its window in microseconds.
fn rule(random: &mut Random, kind: usize) -> (String, u64) {
    let limit = match random.below(3) {
        0 => 1 + random.below(30),
        1 => 100 + random.below(3_000),
        _ => 10_000,
    };
    let (window, micros) = *random.choose(&[
        ("250ms", 250_000),
        ("1s", 1_000_000),
        ("7s", 7_000_000),
        ("90s", 90_000_000),
        ("3h", 10_800_000_000),
    ]);
    if KINDS[kind].1 == "calendar" {
        let limit = format!(
            "algorithm: fixed_window, calendar: {}, time_zone: Europe/Berlin, unit: day, requests_per_unit: {limit}",
            random.choose(&["true", "{day: 06:00}"])
        );
        return (limit, CALENDAR_STEP);
    }
    let (name, keys) = KINDS[kind];
    let precision = if name == "sliding_window precision" { "7, " } else { "" };
    (format!("{keys}{precision}per: {window}, requests_per_unit: {limit}"), micros)
}

/// Messages of each kind; `TIDEGATE_SHARED_CASES` raises the number, `TIDEGATE_SHARED_SEED` chooses other messages.
async fn leases_of_the_script_are_those_of_the_simulation() {
    let variable =
        |name: &str, default| env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (cases, seed) =
        (variable("TIDEGATE_SHARED_CASES", 1_500_u64), variable("TIDEGATE_SHARED_SEED", 1_u64));
    let server = RedisServer::start();
    // The last two kinds are not leased, or are mixtures of the others.
    for (kind, (name, _)) in KINDS.iter().enumerate().take(ALGORITHMS) {
        let (mut seen, mut round) = (Seen::default(), 0);
        while seen.messages < cases {
            round += 1;
            play(&server, kind, seed << 32 | (kind as u64) << 24 | round, &mut seen);
        }
        println!("{name}: {seen:?}, 0 deviations");
        let few = seen.messages / 100;
        assert!(
            [seen.granted, seen.denied, seen.ignored, seen.scarce, seen.learning, seen.reset]
                .iter()
                .all(|&count| count > few / 4),
            "{name}: the messages are one-sided"
        );
    }
}

#[derive(Default, Debug)]
struct Seen {
    messages: u64,
    granted: u64,
    scarce: u64,
    denied: u64,
    ignored: u64,
    learning: u64,
    reset: u64,
}

/// The messages of one node for the counter.
#[derive(Clone, Copy)]
struct Node {
    sequence: u64,
    spent: u64,
    spend_to: u64,
    acknowledged: u64,
}

/// A counter in the store, the same counter here, and the history of their states.
struct World {
    random: Random,
    store: Store,
    model: SharedCounter,
    epoch: Epoch,
    nodes: [Node; 4],
    now: u64,
    history: Vec<String>,
}

fn play(server: &RedisServer, kind: usize, world: u64, seen: &mut Seen) {
    let mut random = Random(world);
    let (limit, window) = rule(&mut random, kind);
    let limiter = limiter(&limit);
    let owned = limiter.pin_owned();
    let (key, algorithm) = counter(&owned);
    let Some(terms) = Terms::of(&algorithm, SETTINGS) else { return };
    let mut now = 1_700_000_000_000_000 + random.below(1_000_000_000_000);
    if KINDS[kind].1 == "calendar" {
        // Around midnight in Berlin.
        now = now / DAY * DAY + 23 * DAY / 24 - random.below(DAY / 12);
    }
    let began = now - if random.one_in(4) { random.below(LENGTH) } else { 10 * LENGTH };
    let mut store = Store::new(server, format!("leases{world:x}:"));
    store.call(&Batch::default(), began);
    let node = Node { sequence: 0, spent: 0, spend_to: 0, acknowledged: 0 };
    let mut world = World {
        random,
        store,
        model: SharedCounter::default(),
        epoch: Epoch { id: began, began: at(began) },
        nodes: [node; 4],
        now,
        history: vec![limit],
    };
    for _ in 0..60 {
        world.pass_time(window);
        match world.random.below(24) {
            0 => world.reset(key, terms, seen),
            1..=6 => world.exact_decision(&owned, terms, seen),
            7..=9 => world.exchange(&owned, terms),
            _ => world.lease(key, terms, seen),
        }
        seen.messages += 1;
    }
}

impl World {
    /// Advances the time, sometimes sets it back a little, and sometimes gives the store another run.
    fn pass_time(&mut self, window: u64) {
        let random = &mut self.random;
        self.now += match random.below(20) {
            0..=5 => random.below(5_000),
            6..=13 => random.below(LENGTH / 2),
            14..=16 => random.below(2 * LENGTH),
            17 => random.below(2 * window),
            18 => window - self.now % window - random.below(2),
            _ => 0,
        };
        if random.one_in(30) {
            self.now -= random.below(LENGTH);
        }
        if random.one_in(60) {
            self.store.run = format!("run {}", random.below(1_000_000));
            self.epoch = Epoch { id: self.now, began: at(self.now) };
        }
        if at(self.now) < self.epoch.began {
            self.epoch = Epoch { id: self.now, began: at(self.now) };
        }
    }

    fn note(&mut self, text: String) {
        self.history.push(format!("{}: {text}", self.now));
    }

    fn history(&self) -> String {
        self.history.join("\n")
    }

    fn exact_decision(&mut self, owned: &OwnedPinned<'_>, terms: Terms<'_>, seen: &mut Seen) {
        let hits =
            if self.random.one_in(5) { 1 + self.random.below(2_000) } else { 1 + self.random.below(9) };
        self.note(format!("decide {hits}"));
        let shared = self.store.decide(owned, &request(&[take(hits)]), self.now);
        let has_credits = |model: &SharedCounter| model.leases().iter().any(|lease| lease.outstanding > 0);
        match (self.model.decide(terms, self.epoch, hits, at(self.now)), shared) {
            (ExactDecision::Learning, None) => seen.learning += 1,
            (ExactDecision::Admitted { free, until_full }, Some(shared)) => {
                assert_eq!(
                    (shared.code, u64::from(shared.remaining)),
                    (Code::Ok, free),
                    "{}",
                    self.history()
                );
                if !has_credits(&self.model) {
                    assert_eq!(shared.reset, Some(Reset::After(until_full)), "{}", self.history());
                }
            }
            (ExactDecision::Denied { free, reset, denied_for }, Some(shared)) => {
                seen.denied += 1;
                let expected = (Code::OverLimit, free, Some(reset), has_credits(&self.model));
                let found = (shared.code, u64::from(shared.remaining), shared.reset, shared.has_credits);
                assert_eq!(found, expected, "{}", self.history());
                if !shared.has_credits && reset != Reset::Never {
                    assert_eq!(reset, Reset::After(denied_for), "a denial that may be kept");
                }
            }
            (model, shared) => panic!("{model:?}, but {shared:?}\n{}", self.history()),
        }
    }

    /// Frees all hits; the next results show whether both agree on the remaining hits.
    fn reset(&mut self, key: Key, terms: Terms<'_>, seen: &mut Seen) {
        self.note("reset".into());
        // Only the other script sees which epoch it is.
        self.store.call(&Batch::default(), self.now);
        seen.reset += self.store.reset(key, self.now);
        self.model.reset(terms, at(self.now));
    }

    /// Gives hits back, and perhaps takes others in the same request.
    fn exchange(&mut self, owned: &OwnedPinned<'_>, terms: Terms<'_>) {
        let (given, taken) = (1 + self.random.below(300), self.random.below(40));
        self.note(format!("give {given} back, take {taken}"));
        let hits = if taken == 0 { vec![give(given)] } else { vec![give(given), take(taken)] };
        let shared = self.store.decide(owned, &request(&hits), self.now);
        if self.epoch.is_learning(LENGTH * 1_000, at(self.now)) {
            assert!(shared.is_none(), "{}", self.history());
            return;
        }
        let mut changed = self.model.clone();
        changed.give_back(terms, 0, at(self.now));
        if changed.leases().is_empty() && !is_fixed(terms.algorithm) {
            // Without leases the script gives hits back as the algorithm does, also hits that no longer count in full.
            let state = terms.algorithm.give_back(changed.state().clone(), given, at(self.now));
            changed = SharedCounter::new(state);
        } else {
            changed.give_back(terms, given, at(self.now));
        }
        let admitted = taken == 0
            || matches!(
                changed.decide(terms, self.epoch, taken, at(self.now)),
                ExactDecision::Admitted { .. }
            );
        let code = shared.expect("the store decides").code;
        assert_eq!(code == Code::Ok, admitted, "{}", self.history());
        if admitted {
            self.model = changed;
        }
    }

    /// A request of a node that behaves, is late, or sends what no node would send.
    fn lease(&mut self, key: Key, terms: Terms<'_>, seen: &mut Seen) {
        let number = self.random.below(4) as usize;
        let random = &mut self.random;
        let node = &mut self.nodes[number];
        let credits = node.spend_to.saturating_sub(node.spent);
        node.spent += match random.below(6) {
            0 => 0,
            1 => random.below(50),
            _ => random.below(credits + 1),
        };
        let is_old = random.one_in(12);
        node.sequence += u64::from(!is_old) * (1 + random.below(3));
        let credits = node.spend_to.saturating_sub(node.spent);
        let request = LeaseRequest {
            node: NodeId(number as u64),
            holder: 1 + random.below(8) / 7,
            sequence: node.sequence.saturating_sub(u64::from(is_old)),
            spent: node.spent,
            acknowledged: node.acknowledged.min(node.spent),
            spent_ago: random.below(400_000_000),
            kept: if random.one_in(9) { random.below(90) } else { random.below(credits / 4 + 1) },
            demand: match random.below(8) {
                0 => 0,
                1 => random.below(200_000),
                2 | 3 => random.below(30),
                _ => random.below(2_000),
            },
        };
        self.note(format!("{request:?}"));
        let shared = self.store.lease(key, terms, &request, self.now);
        let model = self.model.lease(terms, self.epoch, &request, at(self.now));
        assert_eq!(shared, model, "{}", self.history());
        let Some(response) = model else {
            seen.ignored += 1;
            return;
        };
        seen.granted += u64::from(response.spend_to > request.spent);
        seen.scarce += u64::from(response.supply == Supply::Scarce);
        seen.learning += u64::from(response.supply == Supply::Learning);
        let node = &mut self.nodes[number];
        (node.spend_to, node.acknowledged) = (response.spend_to, request.spent);
    }
}

/// Credits of a former rule stay outstanding until their end, and expired credits count from the conversion on.
async fn a_changed_rule_leaves_credits_out() {
    let server = RedisServer::start();
    let limits =
        ["per: 90s, requests_per_unit: 1000", "algorithm: token_bucket, per: 90s, requests_per_unit: 1000"];
    let limiter = limiter(limits[0]);
    let start = 1_700_000_000_000_000;
    let mut store = Store::new(&server, "rules:".into());
    store.call(&Batch::default(), start - 2 * LENGTH);
    let credits = {
        let owned = limiter.pin_owned();
        let (key, algorithm) = counter(&owned);
        let terms = Terms::of(&algorithm, SETTINGS).expect("it is leased");
        store.lease(key, terms, &FIRST_REQUEST, start).expect("a response").spend_to as u32
    };
    assert!(credits > 100);
    let options = LoadOptions { shared_counters: true, ..LoadOptions::default() };
    drop(limiter.update_rules().build(&rules(limits[1]), &options).expect("good rules").put_in_force());
    let owned = limiter.pin_owned();
    let remaining = |store: &mut Store, now| {
        store.decide(&owned, &request(&[Hits::Peek]), now).expect("a decision").remaining
    };
    assert_eq!(remaining(&mut store, start + 1), 1_000 - credits);
    assert_eq!(remaining(&mut store, start + LENGTH), 1_000 - credits);
    let drained = start + LENGTH + u64::from(credits) * 90_000;
    assert_eq!(remaining(&mut store, drained - 1), 999);
    assert_eq!(remaining(&mut store, drained), 1_000);
}

/// Requests of one batch share what the script has computed for their limit. The script once kept the hits that a limit admits, where the
/// functions of buckets keep the weight of the fullest bucket: after the first hit of a batch, every other hit was admitted.
/// The whole call used to fail, with up to 64 decisions of a worker.
async fn a_request_of_a_server_whose_clock_is_hours_ahead_leaves_the_others_decided() {
    let (server, hour) = (RedisServer::start(), 3_600_000_000);
    let limiter = limiter("algorithm: fixed_window, calendar: true, unit: day, requests_per_unit: 1000");
    let (owned, start) = (limiter.pin_owned(), 1_700_000_000_000_000);
    let mut store = Store::new(&server, "clocks:".into());
    store.call(&Batch::default(), start - 2 * LENGTH);
    let (key, algorithm) = counter(&owned);
    let terms = Terms::of(&algorithm, SETTINGS).expect("it is leased");
    let one = request(&[take(1)]);
    let remote = owned.remote(&one, at(0)).expect("the domain is shared");
    let (mut batch, mut encoded) = (Batch::default(), Vec::new());
    for of_server in [start, start + 2 * hour, start] {
        encoded.push(EncodedRequest::new(&remote, at(of_server)).expect("a small request"));
    }
    encoded.iter().for_each(|request| batch.push(request));
    batch.push_lease(key, terms, &FIRST_REQUEST, at(start + 2 * hour));
    batch.push_lease(key, terms, &FIRST_REQUEST, at(start));
    let reply = store.call(&batch, start);
    let codes: Vec<_> = reply.verdicts.into_iter().map(|it| it.map(|it| it.code)).collect();
    assert_eq!(codes, [Ok(Code::Ok), Err(Undecided::Clocks), Ok(Code::Ok)]);
    assert_eq!(reply.grants.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true]);
    // The two that were decided were charged.
    let outcome = store.decide(&owned, &request(&[take(1)]), start).expect("a decision");
    assert_eq!(outcome.code, Code::Ok);
}

async fn a_batch_on_a_leased_bucket_admits_no_more_than_is_free() {
    let server = RedisServer::start();
    for kind in ["token_bucket", "leaky_bucket"] {
        let limiter = limiter(&format!("algorithm: {kind}, per: 90s, requests_per_unit: 1000"));
        let (owned, start) = (limiter.pin_owned(), 1_700_000_000_000_000);
        let mut store = Store::new(&server, format!("{kind}:"));
        store.call(&Batch::default(), start - 2 * LENGTH);
        let (key, algorithm) = counter(&owned);
        let terms = Terms::of(&algorithm, SETTINGS).expect("it is leased");
        let credits = store.lease(key, terms, &FIRST_REQUEST, start).expect("a response").spend_to;
        // All free hits but two.
        let rest = request(&[take(1_000 - credits - 2)]);
        assert_eq!(store.decide(&owned, &rest, start).expect("a decision").code, Code::Ok);
        let one = request(&[take(1)]);
        let remote = owned.remote(&one, at(0)).expect("the domain is shared");
        let mut batch = Batch::default();
        (0..5).for_each(|_| batch.push(&EncodedRequest::new(&remote, at(start)).expect("a small request")));
        let codes =
            store.call(&batch, start).verdicts.into_iter().map(|verdict| verdict.expect("decided").code);
        let codes: Vec<Code> = codes.collect();
        assert_eq!(codes, [Code::Ok, Code::Ok, Code::OverLimit, Code::OverLimit, Code::OverLimit], "{kind}");
    }
}
