//! Compares the script's parts of quota in a real store with the functions that the simulation verifies: the same requests at the same
//! times have the same results.

use super::{
    RedisServer,
    arithmetic::with_argument_clock,
    lease_script::{LAYOUT, LENGTH, Store, at, counter, limiter, request, take},
    random_rules::Random,
};
use crate::tests_with;
use divided_counter::DividedCounter;
use std::env;
use tidegate_core::{
    algorithm::Algorithm,
    limit::{Code, Reset},
    limiter::OwnedPinned,
    store::Key,
};
use tidegate_shared::{
    lease::NodeId,
    quota::{KNOWN_BURST, OtherPart, PART_LIFE, Part, PartGrant, PartRequest},
    script::{LIFE_ARGUMENT, Script, counter_name, decode_parts, encode_part},
};

#[path = "../../sim/divided_counter.rs"]
#[allow(dead_code, reason = "the simulation uses the rest")]
mod divided_counter;

tests_with! {
    REDIS:
    parts_of_the_script_are_those_of_the_simulation,
    a_reset_leaves_parts_and_another_limit_takes_them_over,
    without_an_epoch_no_part_is_changed,
}

const START: u64 = 1_700_000_000_000_000;
const SECOND: u64 = 1_000_000;

/// The script of quotas beside the script of decisions.
struct QuotaStore {
    decisions: Store,
    connection: redis::Connection,
    sha: String,
    prefix: String,
}

impl QuotaStore {
    fn new(server: &RedisServer, prefix: &str) -> Self {
        let mut connection = server.connection();
        let mut load = redis::cmd("SCRIPT");
        load.arg("LOAD").arg(with_argument_clock(Script::Quota));
        let sha = load.query(&mut connection).expect("the script compiles");
        Self { decisions: Store::new(server, prefix.to_owned()), connection, sha, prefix: prefix.to_owned() }
    }

    fn run(&self) -> Vec<u8> {
        [&(LENGTH as f64).to_le_bytes()[..], self.decisions.run.as_bytes()].concat()
    }

    fn request(&mut self, key: Key, algorithm: &Algorithm, request: &PartRequest, now: u64) -> Vec<Vec<u8>> {
        let mut call = redis::cmd("EVALSHA");
        call.arg(&self.sha).arg(2).arg(format!("{}layout", self.prefix));
        call.arg(counter_name(&self.prefix, key));
        call.arg(LAYOUT).arg(self.run()).arg(LIFE_ARGUMENT);
        call.arg(encode_part(request, algorithm, at(now))).arg(now);
        call.query(&mut self.connection).expect("the script runs")
    }

    fn grant(
        &mut self,
        key: Key,
        algorithm: &Algorithm,
        request: &PartRequest,
        now: u64,
    ) -> Option<PartGrant> {
        let reply = self.request(key, algorithm, request, now);
        decode_parts(&reply, 1).expect("the store has an epoch").remove(0)
    }

    /// Whether a hit is admitted.
    fn decide(&mut self, owned: &OwnedPinned<'_>, now: u64) -> Option<bool> {
        let outcome = self.decisions.decide(owned, &request(&[take(1)]), now)?;
        // Bursts of parts may be given up at any time: a denial because of them is not kept.
        let is_denied = outcome.code == Code::OverLimit;
        assert!(!is_denied || outcome.reset.is_some_and(|reset| reset != Reset::Never));
        Some(!is_denied)
    }
}

#[derive(Default, Debug)]
struct Seen {
    steps: u64,
    admitted: u64,
    denied: u64,
    granted: u64,
    late: u64,
    learning: u64,
    vanished: u64,
    windows: u64,
}

/// Requests for parts and decisions; `TIDEGATE_SHARED_CASES` raises the number, `TIDEGATE_SHARED_SEED` chooses other requests.
async fn parts_of_the_script_are_those_of_the_simulation() {
    let variable =
        |name: &str, default| env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (cases, seed) =
        (variable("TIDEGATE_SHARED_CASES", 3_000_u64), variable("TIDEGATE_SHARED_SEED", 1_u64));
    let server = RedisServer::start();
    let (mut seen, mut round) = (Seen::default(), 0);
    while seen.steps < cases {
        round += 1;
        play(&server, seed << 32 | round, &mut seen);
    }
    println!("{seen:?}, 0 deviations");
    let counts =
        [seen.admitted, seen.denied, seen.granted, seen.late, seen.learning, seen.vanished, seen.windows];
    assert!(counts.iter().all(|&count| count > seen.steps / 200), "the requests are one-sided");
}

/// Kinds of limits: buckets and windows.
const KINDS: &[&str] = &[
    "algorithm: token_bucket, size: BURST, per: SECONDSs, requests_per_unit: LIMIT",
    "algorithm: leaky_bucket, burst: BURST, per: SECONDSs, requests_per_unit: LIMIT",
    "algorithm: token_bucket, refill: intervals, size: BURST, per: SECONDSs, requests_per_unit: LIMIT",
    "algorithm: sliding_window, per: SECONDSs, requests_per_unit: LIMIT",
    "algorithm: sliding_window, precision: 5, per: SECONDSs, requests_per_unit: LIMIT",
    "algorithm: sliding_log, per: SECONDSs, requests_per_unit: LIMIT",
    "algorithm: fixed_window, per: SECONDSs, requests_per_unit: LIMIT",
    "algorithm: fixed_window, aligned: first_hit, per: SECONDSs, requests_per_unit: LIMIT",
    "algorithm: fixed_window, calendar: true, unit: day, requests_per_unit: LIMIT",
];

fn play(server: &RedisServer, world: u64, seen: &mut Seen) {
    let mut random = Random(world);
    let (per_second, burst) = (1 + random.below(300), 1 + random.below(400));
    let kind = *random.choose(KINDS);
    let seconds = *random.choose(&[1, 3, 7]);
    let (limit, rate) = (per_second * seconds, 1_000 * per_second);
    let limit = kind
        .replace("BURST", &burst.to_string())
        .replace("SECONDS", &seconds.to_string())
        .replace("LIMIT", &limit.to_string());
    let evenly = kind.contains("bucket") && !kind.contains("intervals");
    let holds = !kind.contains("bucket") && !kind.contains("calendar");
    // The model does not count how many hits of a window from the first hit may be given back.
    let counts_exact = !kind.contains("first_hit");
    let limiter = limiter(&limit);
    let owned = limiter.pin_owned();
    let (key, algorithm) = counter(&owned);
    let mut store = QuotaStore::new(server, &format!("quota:{world}:"));
    let (mut model, mut now) = (DividedCounter::default(), START);
    // The first call begins the epoch.
    let began = now;
    store.decide(&owned, now);
    let mut history = Vec::new();
    let mut sequence = 0;
    let mut spent = [0; 3];
    for _ in 0..100 {
        now += match random.below(12) {
            0..6 => random.below(SECOND),
            6..11 => 0,
            _ => random.below(30 * SECOND),
        };
        seen.steps += 1;
        let is_learning = now <= began + LIFE_ARGUMENT;
        if random.one_in(2) {
            let was_empty = model.is_undivided();
            let decided = store.decide(&owned, now);
            if now <= began + LENGTH {
                assert_eq!(decided, None);
                continue;
            }
            let expected = model.decide(&algorithm, at(now));
            seen.vanished += u64::from(!was_empty && model.is_undivided());
            history.push(format!("{now}: {expected}"));
            assert_eq!(decided, Some(expected), "{limit}\n{}", history.join("\n"));
            (seen.admitted, seen.denied) =
                (seen.admitted + u64::from(expected), seen.denied + u64::from(!expected));
            continue;
        }
        // If a bucket is much more than full, the script assumes the clock of another store that was ahead.
        let mut part = |rate, burst| Part { rate: random.below(rate), burst: random.below(burst) };
        let (mut kept, wanted) = (part(rate / 4, burst / 4 + 1), part(rate, 300));
        if random.one_in(10) {
            kept.burst = KNOWN_BURST;
        }
        sequence += 1;
        let sequence = if random.one_in(8) { random.below(sequence) } else { sequence };
        let node = random.below(3);
        let spent = &mut spent[node as usize];
        *spent += if random.one_in(2) { random.below(20) } else { 0 };
        let acknowledged = if random.one_in(5) { None } else { Some(random.below(*spent + 1)) };
        let (rate_max, demand, clients) = (random.below(rate), random.below(1_000), random.below(9));
        let (server, spent) = (NodeId(1 + node), *spent);
        // For windows, the span is mostly the window's length; another span follows a change of rules.
        let span =
            if holds && !random.one_in(12) { seconds * SECOND } else { *random.choose(&[0, 2 * SECOND]) };
        let span = if evenly { 0 } else { span };
        let request = PartRequest {
            server,
            sequence,
            kept,
            spent,
            acknowledged,
            wanted,
            rate_max,
            span,
            demand,
            clients,
        };
        let was_empty = model.is_undivided();
        let mut expected = model.report(&algorithm, &request, is_learning, at(now));
        seen.vanished += u64::from(was_empty);
        let mut granted = store.grant(key, &algorithm, &request, now);
        if !counts_exact {
            expected.iter_mut().chain(&mut granted).for_each(|grant| grant.exact = 0);
        }
        history.push(format!("{now}: {request:?}: {expected:?}"));
        assert_eq!(granted, expected, "{limit}\n{}", history.join("\n"));
        seen.learning += u64::from(is_learning);
        seen.windows +=
            u64::from(span > 0 && granted.as_ref().is_some_and(|grant| grant.part.rate > kept.rate));
        let count = if granted.is_some() { &mut seen.granted } else { &mut seen.late };
        *count += 1;
    }
}

fn part_request(sequence: u64, wanted: Part) -> PartRequest {
    let kept = if sequence == 1 { Part::default() } else { wanted };
    let (server, spent, acknowledged, rate_max) = (NodeId(7), 0, Some(0), 100_000);
    let (span, demand, clients) = (0, 1, 1);
    PartRequest { server, sequence, kept, spent, acknowledged, wanted, rate_max, span, demand, clients }
}

const RULE: &str = "algorithm: token_bucket, size: 200, unit: second, requests_per_unit: 100";

/// A store whose learning phase is over, with its time.
fn with_epoch(server: &RedisServer, owned: &OwnedPinned<'_>, prefix: &str) -> (QuotaStore, u64) {
    let mut store = QuotaStore::new(server, prefix);
    assert_eq!(store.decide(owned, START), None, "a learning phase");
    (store, START + LIFE_ARGUMENT + SECOND)
}

async fn a_reset_leaves_parts_and_another_limit_takes_them_over() {
    let server = RedisServer::start();
    let limiter = limiter(RULE);
    let owned = limiter.pin_owned();
    let (key, algorithm) = counter(&owned);
    let (mut store, now) = with_epoch(&server, &owned, "reset:");
    let wanted = Part { rate: 100_000, burst: 150 };
    let granted = store.grant(key, &algorithm, &part_request(1, wanted), now).expect("a new request");
    assert_eq!((granted.part, granted.free), (wanted, 50));
    let admitted =
        |store: &mut QuotaStore, now| (0..200).filter(|_| store.decide(&owned, now) == Some(true)).count();
    assert_eq!(admitted(&mut store, now), 50);
    assert_eq!(store.decisions.reset(key, now), 1);
    assert_eq!(admitted(&mut store, now), 50, "the part is still there");
    // All of the rate is assigned.
    assert_eq!(admitted(&mut store, now + SECOND), 0);
    let other = self::limiter("algorithm: leaky_bucket, burst: 300, unit: second, requests_per_unit: 200");
    let other = other.pin_owned();
    let (same, algorithm) = counter(&other);
    assert_eq!(same, key);
    let granted =
        store.grant(key, &algorithm, &part_request(2, wanted), now + SECOND).expect("a new request");
    assert_eq!((granted.part, granted.free), (wanted, 100));
    // Half of the rate is not assigned.
    assert_eq!((0..400).filter(|_| store.decide(&other, now + 2 * SECOND) == Some(true)).count(), 150);
}

async fn without_an_epoch_no_part_is_changed() {
    let server = RedisServer::start();
    let limiter = limiter(RULE);
    let owned = limiter.pin_owned();
    let (key, algorithm) = counter(&owned);
    let mut store = QuotaStore::new(&server, "epoch:");
    let request = part_request(1, Part { rate: 1_000, burst: 1 });
    assert!(store.request(key, &algorithm, &request, START).is_empty());
    let (mut store, now) = with_epoch(&server, &owned, "epoch:");
    store.decisions.run = "run 2".into();
    assert!(store.request(key, &algorithm, &request, now).is_empty(), "another run of the store");
    store.decisions.run = "run 1".into();
    assert!(store.grant(key, &algorithm, &request, now).is_some());
    // A value that a former server has written is not read as a part.
    let (high, low) = key.halves();
    let value: &[u8] = b"\x00\x01\x00damaged";
    redis::cmd("SET")
        .arg(format!("epoch:{high:016x}{low:016x}"))
        .arg(value)
        .exec(&mut store.connection)
        .expect("set");
    assert_eq!(store.grant(key, &algorithm, &request, now), None);
}
