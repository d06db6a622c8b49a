//! Waits that the store states while servers hold credits: a caller that waits, alone, is admitted, whatever the servers do with their
//! credits.

use super::{
    RedisServer,
    lease_script::{LENGTH, Outcome, Store, counter, limiter, request, take},
    leases::{FIRST_REQUEST, SETTINGS},
    random_rules::{ALGORITHMS, KINDS, Random},
};
use crate::tests_with;
use tidegate_core::{
    limit::{Code, Reset},
    limiter::OwnedPinned,
    store::Key,
};
use tidegate_shared::{
    lease::{LeaseRequest, NodeId, Terms},
    script::Batch,
};

tests_with! {
    REDIS:
    a_caller_that_waits_is_admitted_whatever_servers_do_with_their_credits,
}

/// Denials of each kind of limit.
const DENIALS: u64 = 30;
const DAY: u64 = 86_400_000_000;

/// Use of the servers' credits while the caller waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Meanwhile {
    /// They neither spend nor return credits: a microsecond before its end the wait is too short.
    Silent,
    /// They report some credits as spent, and return the others.
    Report,
}

async fn a_caller_that_waits_is_admitted_whatever_servers_do_with_their_credits() {
    let server = RedisServer::start();
    for (kind, (name, _)) in KINDS.iter().enumerate().take(ALGORITHMS) {
        let (mut silent, mut reported, mut round) = (0, 0, 0);
        while silent + reported < DENIALS {
            round += 1;
            assert!(round < 50 * DENIALS, "{name} is hardly ever denied beside credits");
            let meanwhile = if round % 2 == 0 { Meanwhile::Silent } else { Meanwhile::Report };
            let world = (kind as u64) << 24 | round;
            let is_denied = play(&server, kind, world, meanwhile);
            match meanwhile {
                Meanwhile::Silent => silent += u64::from(is_denied),
                Meanwhile::Report => reported += u64::from(is_denied),
            }
        }
        println!("{name}: {silent} waits beside silent servers, {reported} beside reports");
    }
}

struct World<'h> {
    random: Random,
    store: Store,
    owned: &'h OwnedPinned<'h>,
    terms: Terms<'h>,
    key: Key,
    now: u64,
    /// The last request for credits of each server, its credits, and its time.
    servers: [(LeaseRequest, u64, u64); 3],
}

/// Whether a request was denied while credits were out.
fn play(server: &RedisServer, kind: usize, seed: u64, meanwhile: Meanwhile) -> bool {
    let mut random = Random(seed);
    let (hits, window) = (200 + random.below(2_000), *random.choose(&["1s", "7s", "90s"]));
    let limit = match KINDS[kind] {
        ("fixed_window calendar", _) => {
            format!("algorithm: fixed_window, calendar: true, unit: day, requests_per_unit: {hits}")
        }
        ("sliding_window precision", _) => format!("precision: 7, per: {window}, requests_per_unit: {hits}"),
        (_, keys) => format!("{keys}per: {window}, requests_per_unit: {hits}"),
    };
    let limiter = limiter(&limit);
    let owned = limiter.pin_owned();
    let (key, algorithm) = counter(&owned);
    let terms = Terms::of(&algorithm, SETTINGS).expect("it is leased");
    let now = 1_700_000_000_000_000 + random.below(DAY);
    let mut store = Store::new(server, format!("waits{seed:x}:"));
    store.call(&Batch::default(), now - 2 * LENGTH);
    let first = |node| LeaseRequest { node: NodeId(node), sequence: 0, demand: 0, ..FIRST_REQUEST };
    let servers = [1, 2, 3].map(|node| (first(node), 0, 0));
    let mut world = World { random, store, owned: &owned, terms, key, now, servers };
    for _ in 0..80 {
        world.now += world.random.below(LENGTH / 4);
        if world.random.one_in(2) {
            let demand = 1 + world.random.below(600);
            world.report(demand);
            continue;
        }
        let hits = 1 + world.random.below(hits / 8);
        let denied = world.decide(hits, world.now);
        if denied.code == Code::OverLimit && denied.has_credits {
            world.wait(&limit, hits, &denied, meanwhile);
            return true;
        }
    }
    false
}

impl World<'_> {
    fn decide(&mut self, hits: u64, now: u64) -> Outcome {
        self.store.decide(self.owned, &request(&[take(hits)]), now).expect("the store decides")
    }

    /// One of the servers reports the credits that it has spent, and takes credits for this demand.
    fn report(&mut self, demand: u64) {
        let Self { random, store, terms, key, now, servers, .. } = self;
        let (last, credits, since) = &mut servers[random.below(3) as usize];
        let spent = random.below(*credits + 1);
        last.sequence += 1;
        last.spent += spent;
        (last.spent_ago, last.demand) = (1_000 * random.below(*now - *since + 1), demand);
        let granted = store.lease(*key, *terms, last, *now).expect("a newer request");
        (*credits, *since) = (granted.spend_to - last.spent, *now);
        last.acknowledged = last.spent;
    }

    fn wait(&mut self, limit: &str, hits: u64, denied: &Outcome, meanwhile: Meanwhile) {
        let Some(Reset::After(wait)) = denied.reset else { panic!("{limit}: {denied:?}") };
        let micros = u64::try_from(wait.as_nanos().div_ceil(1_000)).expect("a short wait");
        let then = self.now + micros;
        if meanwhile == Meanwhile::Report {
            for _ in 0..3 {
                self.now += self.random.below(LENGTH / 4).min(then - self.now);
                self.report(0);
            }
        } else {
            let early = self.decide(hits, then - 1);
            assert_eq!(early.code, Code::OverLimit, "{limit}, {hits} hits, before {wait:?}: {early:?}");
        }
        let late = self.decide(hits, then);
        assert_eq!(late.code, Code::Ok, "{limit}, {hits} hits, after {wait:?}: {late:?}");
    }
}
