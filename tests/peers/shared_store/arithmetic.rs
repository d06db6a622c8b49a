//! Compares the script in a real store with the algorithms here: the same requests at the same times have the same decisions.

use super::{
    RedisServer,
    random_rules::{
        COUNTING_STOPS, KINDS, Random, is_meter, later, one_charge_per_counter, request, rules, sketch,
    },
};
use crate::{
    support::vectors::{START_UNIX_MS, Scenario, scenarios},
    tests_with,
};
use smallvec::SmallVec;
use std::{collections::BTreeMap, env};
use tidegate_core::{
    limit::{Code, Decision, Descriptor, Entry, Hits, Request, Reset, Timestamp},
    limiter::{Compat, HeldKind, Limiter, ListedLimits, OwnedPinned, StoredRenewal},
    rules::{LoadOptions, RuleSet, Source},
    store::{Key, OnFull, Seed, StoreSettings},
};
use tidegate_shared::script::{
    Batch, Command, EncodedRequest, Reply, Script, Undecided, Undo, Verdict, counter_name, mark,
};

tests_with! {
    REDIS:
    vectors_have_the_same_responses,
    random_requests_have_the_same_decisions,
    a_long_log_has_the_same_decisions_and_short_replies,
    a_state_far_ahead_denies_for_a_window_at_most,
    a_bucket_keeps_hits_that_were_charged_beyond_its_size,
    a_bucket_whose_limit_was_changed_has_no_debt_beyond_the_bound,
    a_damaged_counter_leaves_the_others_decided,
}

const LAYOUT: &str = "layout of a test";

/// The most microseconds by which the store's clock is set back in random worlds.
const BACK_MAX: u64 = 900;

/// The lines of a script that read the clock.
const READS_CLOCK: &str = "local time = redis.call('TIME')\nlocal now = time[1] * 1000000 + time[2]\n";

/// The lines of a script that set how long keys outlive their counters.
const SETS_SLACK: &str = "local SLACK_MS = 1000\n";

/// The text of a script that reads the time in microseconds from its last argument, and whose keys outlive their counters by an hour of the
/// store's clock, which is a different clock.
pub(super) fn with_argument_clock(script: Script) -> String {
    let text = script.text();
    let has_lines = text.contains(READS_CLOCK) && (script == Script::Reset || text.contains(SETS_SLACK));
    assert!(has_lines, "the lines are those of the script");
    let with_clock = text.replace(READS_CLOCK, "local now = ARGV[#ARGV] + 0\n");
    with_clock.replace(SETS_SLACK, "local SLACK_MS = 3600000\n")
}

/// The script in a store, at times that the test chooses.
pub(super) struct Store {
    connection: redis::Connection,
    digests: [String; Script::ALL.len()],
    prefix: String,
    /// Reservations that had passed their deadlines.
    pub(super) lost: u64,
}

impl Store {
    pub(super) fn new(server: &RedisServer, prefix: String) -> Self {
        let mut connection = server.connection();
        let digests = Script::ALL.map(|script| {
            let load =
                redis::cmd("SCRIPT").arg("LOAD").arg(with_argument_clock(script)).query(&mut connection);
            load.expect("the script compiles")
        });
        Self { connection, digests, prefix, lost: 0 }
    }

    /// The decisions of the store on requests at one moment.
    pub(super) fn decide<'h>(
        &mut self,
        owned: &'h OwnedPinned<'h>,
        requests: &[Request<'_>],
        now: Timestamp,
    ) -> Vec<Decision<'h>> {
        let remote = requests.iter().map(|request| owned.remote(request, now).expect("the domain is shared"));
        let remote: Vec<_> = remote.collect();
        let encoded =
            remote.iter().map(|request| EncodedRequest::new(request, now).expect("a small request"));
        let verdicts = self.verdicts(&encoded.collect::<Vec<_>>(), now);
        let verdicts = remote.into_iter().zip(&verdicts);
        verdicts
            .map(|(mut request, verdict)| {
                verdict.decide(&mut request, ListedLimits::None, Timestamp::EPOCH).expect("a verdict")
            })
            .collect()
    }

    /// The verdicts of one call.
    pub(super) fn verdicts(&mut self, requests: &[EncodedRequest], now: Timestamp) -> Vec<Verdict> {
        let decided = |verdict: Result<Verdict, Undecided>| verdict.expect("the store does not learn");
        self.replies(requests, now).into_iter().map(decided).collect()
    }

    /// The same, with the reasons why requests were not decided.
    fn replies(&mut self, requests: &[EncodedRequest], now: Timestamp) -> Vec<Result<Verdict, Undecided>> {
        let mut batch = Batch::default();
        requests.iter().for_each(|request| batch.push(request));
        let mut call = redis::cmd("EVALSHA");
        let keys = 1 + batch.keys.len() + batch.given.len();
        call.arg(&self.digests[Script::Decide as usize]).arg(keys).arg(format!("{}layout", self.prefix));
        batch.keys.iter().for_each(|key| _ = call.arg(self.name(*key)));
        batch.given.iter().for_each(|key| _ = call.arg(mark(&self.name(*key))));
        call.arg(LAYOUT).arg(&batch.requests).arg("").arg(&batch.lease_requests);
        batch.limits.iter().for_each(|limit| _ = call.arg(&limit[..]));
        call.arg(now.as_nanos() / 1_000);
        let items: Vec<Vec<u8>> = call.query(&mut self.connection).expect("the script runs");
        let reply = Reply::new(items, &batch).expect("a reply of the script");
        assert_eq!(reply.now, now);
        self.lost += reply.lost;
        reply.verdicts
    }

    /// Ends reservations; returns how many were open.
    pub(super) fn end(&mut self, end: &Command, now: Timestamp) -> u64 {
        let (ended, lost): (u64, u64) = self.run(end, now);
        self.lost += lost;
        ended
    }

    /// Runs a command.
    fn run<T: redis::FromRedisValue>(&mut self, command: &Command, now: Timestamp) -> T {
        let mut call = redis::cmd("EVALSHA");
        let keys = command.keys(&self.prefix);
        call.arg(&self.digests[command.script as usize]).arg(keys.len()).arg(keys).arg(&command.arguments);
        call.arg(now.as_nanos() / 1_000).query(&mut self.connection).expect("the script runs")
    }

    /// Renews the slots and reservations that the tickets of a request name; returns whether all of them are held.
    pub(super) fn renew(&mut self, owned: &OwnedPinned<'_>, wanted: &Request<'_>, now: Timestamp) -> bool {
        let mut named = owned.change_named(wanted, now);
        let renew = |renewal: &StoredRenewal| {
            let of_kind = |kind| renewal.held().iter().filter(move |(held, ..)| held.kind == kind);
            let keys = |kind| of_kind(kind).map(|(held, _, hold)| (held.key, *hold)).collect();
            let [slots, reserved]: [Vec<_>; 2] = [HeldKind::Slot, HeldKind::Reservation].map(keys);
            let command = Command::renew(renewal.id(), &slots, &reserved, renewal.is_peek());
            let (held, lost): (u64, u64) = self.run(&command, now);
            self.lost += lost;
            held > 0
        };
        let are_held: Vec<bool> = named.renewals().iter().map(renew).collect();
        owned.renewed_in_store(wanted, &mut named, &are_held, now);
        let mut remote = owned.remote(wanted, now).expect("the domain is shared");
        remote.conclude(&named);
        assert!(remote.needs_no_store());
        remote.decide(SmallVec::new(), now, &[], ListedLimits::None, now).code == Code::Ok
    }

    /// Releases slots; returns how many were owned.
    pub(super) fn release(&mut self, release: &Command, now: Timestamp) -> u64 {
        self.run(release, now)
    }

    /// Takes hits back, under a token of this number.
    pub(super) fn take_back(&mut self, undo: &Undo, token: u64, now: Timestamp) {
        let _: String = self.run(&undo.command(token.into()), now);
    }

    /// The name of a counter's key.
    fn name(&self, key: Key) -> String {
        counter_name(&self.prefix, key)
    }
}

pub(super) fn limiter(sources: &[Source], options: &LoadOptions) -> Option<Limiter> {
    let options = LoadOptions { shared_counters: true, ..*options };
    let rules = RuleSet::parse(sources, &options).ok()?;
    let settings =
        StoreSettings { seed: Seed::from_bytes([5; 16]), counters_max: 100_000, on_full: OnFull::Deny };
    Some(Limiter::new(rules, settings, false))
}

fn replace_rules(limiter: &Limiter, sources: &[Source], options: &LoadOptions) -> bool {
    let options = LoadOptions { shared_counters: true, ..*options };
    limiter.update_rules().build(sources, &options).map(|next| drop(next.put_in_force())).is_ok()
}

fn one(key: &'static str, hits: u64) -> Request<'static> {
    let mut request = Request::new("d");
    let entries = [Entry { key, value: "v" }].into_iter().collect();
    request.push(Descriptor { entries, limit: None, hits: Hits::new(Some(hits), 0, false) });
    request
}

/// Two thousand runs of hits: 24 KB in the store.
async fn a_long_log_has_the_same_decisions_and_short_replies() {
    let server = RedisServer::start();
    for always in ["", ", charge: always"] {
        let rules = format!(
            "domain: d\ndescriptors:\n- {{key: log, rate_limit: {{per: 1h, requests_per_unit: 2000, algorithm: sliding_log{always}}}}}"
        );
        let limiter = limiter(&[Source::file("log.yaml", rules)], &LoadOptions::default()).expect("a rule");
        let mut store = Store::new(&server, format!("log{}:", always.len()));
        let (owned, pinned) = (limiter.pin_owned(), limiter.pin());
        let mut random = Random(7);
        let mut now = 1_700_006_400_000_000_u64;
        for step in 0..2_400_u64 {
            now += 1 + random.below(1_000);
            // Then the log is full, and drains in part.
            if step == 2_200 {
                now += 3_599_000_000;
            }
            let hits = if step % 50 == 49 { 1 + random.below(300) } else { 1 };
            let at = Timestamp::from_nanos(now * 1_000);
            let shared = store.decide(&owned, &[one("log", hits)], at).remove(0);
            assert_eq!(shared, pinned.decide(&one("log", hits), at), "step {step}, {hits} hits{always}");
        }
        now += 3_600_000_001;
        let at = |micros: u64| Timestamp::from_nanos(micros * 1_000);
        for micros in 0..2_000 {
            store.decide(&owned, &[one("log", 1)], at(now + micros));
        }
        let remote = owned.remote(&one("log", 5), at(now)).expect("the domain is shared");
        let encoded = EncodedRequest::new(&remote, at(now)).expect("a small request");
        let verdict = store.verdicts(&[encoded], at(now + 2_000)).remove(0);
        assert_eq!(verdict.code, Code::OverLimit);
        let bytes = verdict.states[0].len();
        println!("sliding_log of 2,000 runs{always}: a reply of {bytes} bytes");
        assert!(bytes <= 200, "{bytes} bytes");
    }
}

/// A failover to a node whose clock is an hour behind. A bucket then has as much debt as its bound allows: two windows by default.
async fn a_state_far_ahead_denies_for_a_window_at_most() {
    let server = RedisServer::start();
    let mut rules = "domain: d\ndescriptors:\n".to_owned();
    let kinds = [
        ("window", "per: 10s, requests_per_unit: 10"),
        ("parts", "per: 10s, requests_per_unit: 10, precision: 5"),
        ("log", "per: 10s, requests_per_unit: 10, algorithm: sliding_log"),
        ("clock", "per: 10s, requests_per_unit: 10, algorithm: fixed_window"),
        ("first", "per: 10s, requests_per_unit: 10, algorithm: fixed_window, aligned: first_hit"),
        ("calendar", "unit: day, requests_per_unit: 10, algorithm: fixed_window, calendar: true"),
        ("intervals", "per: 10s, requests_per_unit: 10, algorithm: token_bucket, refill: intervals"),
        ("tokens", "per: 10s, requests_per_unit: 10, algorithm: token_bucket"),
        ("leaky", "per: 10s, requests_per_unit: 10, algorithm: leaky_bucket, burst: 10"),
        ("slots", "algorithm: concurrency, requests_in_flight: 10, max_hold: 10s"),
    ];
    for (key, keys) in kinds {
        rules += &format!("- {{key: {key}, rate_limit: {{{keys}}}}}\n");
    }
    let limiter = limiter(&[Source::file("r.yaml", rules)], &LoadOptions::default()).expect("rules");
    let owned = limiter.pin_owned();
    let mut store = Store::new(&server, "ahead:".into());
    let start = Timestamp::from_millis(1_700_006_400_000);
    for (key, keys) in kinds {
        let mut decide = |hits, at| store.decide(&owned, &[one(key, hits)], at).remove(0);
        let is_day = keys.contains("day");
        let (back, window) = if is_day { (5 * 86_400, 86_400) } else { (3_600, 10) };
        let behind = |seconds: u64| {
            Timestamp::from_nanos(start.as_nanos() - back * 1_000_000_000 + seconds * 1_000_000_000)
        };
        assert_eq!(decide(10, start).code, Code::Ok, "{key}");
        let denied = decide(10, behind(0));
        assert_eq!(denied.code, Code::OverLimit, "{key}: what was used is not forgotten");
        let Some(Reset::After(wait)) = denied.statuses[0].reset else { panic!("{key}: {denied:?}") };
        let windows = if keys.contains("_bucket") { 3 } else { 2 };
        assert!(wait.as_secs() <= windows * window, "{key}: reset after {wait:?}");
        assert_eq!(decide(10, behind(windows * window)).code, Code::Ok, "{key}");
    }
}

/// Hits that are charged although they do not fit may exceed the size of a bucket too, and are not mistaken for hits of another clock.
async fn a_bucket_keeps_hits_that_were_charged_beyond_its_size() {
    let server = RedisServer::start();
    let rules = "domain: d\ndescriptors:\n- {key: k, rate_limit: {per: 10s, requests_per_unit: 10, \
                 algorithm: token_bucket, charge: always, debt_max: 1000}}\n";
    let limiter =
        limiter(&[Source::file("r.yaml", rules.to_owned())], &LoadOptions::default()).expect("rules");
    let (owned, mut store) = (limiter.pin_owned(), Store::new(&server, "beyond:".into()));
    let now = Timestamp::from_millis(1_700_006_400_000);
    let mut decide = |hits| store.decide(&owned, &[one("k", hits)], now).remove(0);
    for _ in 0..11 {
        decide(10);
    }
    let denied = decide(1);
    let Some(Reset::After(reset)) = denied.statuses[0].reset else { panic!("{denied:?}") };
    assert_eq!(reset.as_secs(), 102, "111 hits, of which 102 have to drain");
}

/// A bucket that was larger, or was no bucket. The limiter converts its counters to the same debt.
async fn a_bucket_whose_limit_was_changed_has_no_debt_beyond_the_bound() {
    let server = RedisServer::start();
    let always = "algorithm: token_bucket, size: 10, charge: always";
    for (name, from, to, seconds) in [
        ("size", "algorithm: token_bucket, size: 1000", "algorithm: token_bucket, size: 10", 21),
        ("log", "algorithm: sliding_log, charge: always", "algorithm: leaky_bucket, burst: 10", 21),
        ("always", "algorithm: fixed_window, charge: always", always, 21),
        (
            "intervals",
            "algorithm: token_bucket, refill: intervals, size: 1000",
            "algorithm: token_bucket, refill: intervals, size: 10",
            30,
        ),
    ] {
        let rules = |keys: &str| {
            let limit = format!("per: 10s, requests_per_unit: 100, {keys}");
            [Source::file(
                "r.yaml",
                format!("domain: d\ndescriptors:\n- {{key: k, rate_limit: {{{limit}}}}}\n"),
            )]
        };
        let limiter = limiter(&rules(from), &LoadOptions::default()).expect("rules");
        let mut store = Store::new(&server, format!("{name}:"));
        let now = Timestamp::from_millis(1_700_006_400_000);
        let (used, denied) = (one("k", 1_000), one("k", 10));
        {
            let (owned, pinned) = (limiter.pin_owned(), limiter.pin());
            let shared = store.decide(&owned, std::slice::from_ref(&used), now).remove(0);
            assert_eq!(shared, pinned.decide(&used, now), "{name}");
        }
        assert!(replace_rules(&limiter, &rules(to), &LoadOptions::default()));
        let (owned, pinned) = (limiter.pin_owned(), limiter.pin());
        let shared = store.decide(&owned, std::slice::from_ref(&denied), now).remove(0);
        let Some(Reset::After(wait)) = shared.statuses[0].reset else { panic!("{name}: {shared:?}") };
        assert_eq!((shared.code, wait.as_secs()), (Code::OverLimit, seconds), "{name}");
        assert_eq!(shared, pinned.decide(&denied, now), "{name}");
    }
}

/// Values that are no counters, under the keys of counters.
async fn a_damaged_counter_leaves_the_others_decided() {
    let server = RedisServer::start();
    let rules = "domain: d\ndescriptors:\n- {key: a, rate_limit: {per: 10s, requests_per_unit: 10}}\n\
                 - {key: b, rate_limit: {per: 10s, requests_per_unit: 10}}\n";
    let limiter =
        limiter(&[Source::file("r.yaml", rules.to_owned())], &LoadOptions::default()).expect("rules");
    let (owned, mut store) = (limiter.pin_owned(), Store::new(&server, "damaged:".into()));
    let now = Timestamp::from_millis(1_700_006_400_000);
    let remotes =
        [one("a", 1), one("b", 1)].map(|request| owned.remote(&request, now).expect("it is shared"));
    let encoded = remotes.each_ref().map(|remote| EncodedRequest::new(remote, now).expect("a small request"));
    let (high, low) = encoded[0].keys().next().expect("one counter").halves();
    for value in [&b"\0"[..], b"\0\x01\0", b"\x09W", b"\xffKq"] {
        let key = format!("damaged:{high:016x}{low:016x}");
        let () = redis::cmd("SET").arg(key).arg(value).query(&mut server.connection()).expect("written");
        let codes: Vec<_> = store.replies(&encoded, now).into_iter().map(|it| it.map(|it| it.code)).collect();
        // A value without the signature of any limit counts as an empty counter.
        assert_eq!(codes[1], Ok(Code::Ok), "{value:?}: {codes:?}");
        assert!(value[0] != 0 || codes[0] == Err(Undecided::Damaged), "{value:?}: {codes:?}");
    }
}

#[derive(Default, Debug)]
struct VectorCounts {
    scenarios: u32,
    requests: u32,
    on_the_grid: u32,
    refused: u32,
}

async fn vectors_have_the_same_responses() {
    let server = RedisServer::start();
    let mut counts = VectorCounts::default();
    for scenario in &scenarios() {
        play(&server, scenario, &mut counts);
    }
    println!(
        "vectors: {} scenarios, {} requests ({} at whole microseconds), 0 deviations; {} scenarios have queues, which are not shared",
        counts.scenarios, counts.requests, counts.on_the_grid, counts.refused
    );
    assert!(counts.scenarios >= 50, "{counts:?}");
}

/// Plays a scenario. At whole microseconds the responses are the expected responses; at other times, those of the algorithms at the
/// microsecond before.
fn play(server: &RedisServer, scenario: &Scenario, counts: &mut VectorCounts) {
    let (sources, options) = scenario.rule_sources(&scenario.rules);
    let Some(limiter) = limiter(&sources, &options) else {
        assert!(scenario.rules.contains("max_wait"), "{} is refused", scenario.name);
        counts.refused += 1;
        return;
    };
    counts.scenarios += 1;
    let mut store = Store::new(server, format!("{}:", scenario.name));
    let start = Timestamp::from_millis(scenario.start_unix_ms.unwrap_or(START_UNIX_MS));
    for (number, step) in scenario.steps.iter().enumerate() {
        if let Some(rules) = &step.rules {
            let (sources, options) = scenario.rule_sources(rules);
            assert!(replace_rules(&limiter, &sources, &options));
        }
        let Some(request) = &step.request else { continue };
        for time in 0..step.times.unwrap_or(1) {
            let millis = step.at_ms + time * step.every_ms;
            let now = start.saturating_add_nanos(millis * 1_000_000 + step.at_ns / 1_000 * 1_000);
            let (owned, pinned) = (limiter.pin_owned(), limiter.pin());
            let shared = store.decide(&owned, &[request.as_request()], now).remove(0);
            let local = pinned.decide(&request.as_request(), now);
            assert_eq!(shared, local, "{}, step {number} at {millis} ms", scenario.name);
            let is_exact = |status: &tidegate_core::limit::Status<'_>| match status.reset {
                Some(Reset::After(wait)) => wait.subsec_nanos() % 1_000 == 0,
                _ => true,
            };
            counts.requests += 1;
            let expected = step.response.as_ref().expect("a request that is not queued");
            let has_parts = expected.statuses.iter().any(|status| status.reset_ns % 1_000 != 0);
            if step.at_ns % 1_000 == 0 && !has_parts && shared.statuses.iter().all(is_exact) {
                counts.on_the_grid += 1;
                expected.is(&shared).unwrap_or_else(|difference| {
                    panic!("{}, step {number} at {millis} ms: {difference}", scenario.name)
                });
            }
        }
    }
}

/// Requests of each kind; `TIDEGATE_SHARED_CASES` raises the number, `TIDEGATE_SHARED_SEED` chooses other requests.
async fn random_requests_have_the_same_decisions() {
    let variable =
        |name: &str, default| env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (cases, seed) =
        (variable("TIDEGATE_SHARED_CASES", 1_500_u64), variable("TIDEGATE_SHARED_SEED", 1_u64));
    let server = RedisServer::start();
    let mut outcomes: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (kind, (name, _)) in KINDS.iter().enumerate() {
        let (mut done, mut round) = (0, 0);
        while done < cases {
            round += 1;
            let world = seed << 32 | (kind as u64) << 24 | round;
            let (decided, denied) = play_world(&server, kind, world);
            done += decided;
            let outcome = outcomes.entry(name).or_default();
            *outcome = (outcome.0 + decided, outcome.1 + denied);
        }
    }
    for (name, (decided, denied)) in &outcomes {
        println!("{name}: {decided} decisions, {denied} denials, 0 deviations");
        assert!(
            *denied > decided / 50 && *denied < decided - decided / 50,
            "{name}: the requests are one-sided"
        );
    }
}

/// Plays requests under random rules; returns how many were decided and how many of them denied.
fn play_world(server: &RedisServer, kind: usize, world: u64) -> (u64, u64) {
    let mut random = Random(world);
    let semantics = match KINDS[kind].1 {
        "reference" => tidegate_core::rules::Semantics::Reference,
        _ => tidegate_core::rules::Semantics::Exact,
    };
    let options = LoadOptions { semantics, ..LoadOptions::default() };
    let (mut text, mut window, mut shortest) = rules(&mut random, kind);
    let Some(limiter) = limiter(&[Source::file("random.yaml", text.clone())], &options) else {
        // The bucket does not drain in time.
        return (0, 0);
    };
    let stop_counting = KINDS[kind].0 == COUNTING_STOPS;
    let limiter = limiter.with_compat(Compat { quota_mode: false, stop_counting });
    let mut store = Store::new(server, format!("{world:x}:"));
    let mut now = 1_700_006_400_000_000 + random.below(1 << 45);
    let mut latest = now;
    let (mut decided, mut denied) = (0, 0);
    let mut history = Vec::new();
    for _ in 0..60 {
        if KINDS[kind].1 == "all" && random.one_in(12) {
            let (next, of_rules, of_shortest) = rules(&mut random, kind);
            if replace_rules(&limiter, &[Source::file("random.yaml", next.clone())], &options) {
                history.push(next.clone());
                (text, window, shortest) = (next, of_rules, of_shortest);
            }
        }
        // The clock goes back by less than the shortest window: if a state is further ahead, the store alone dates it at the present.
        let back_max = BACK_MAX.min(shortest);
        now = later(&mut random, now, window, back_max).max(latest - back_max);
        latest = latest.max(now);
        let has_few_hits = KINDS[kind].1 == "all" || (is_meter(kind) && text.contains("always"));
        let batch = if random.one_in(3) { 1 + random.below(8) } else { 1 };
        let mut sketches: Vec<_> = (0..batch).map(|_| sketch(&mut random, has_few_hits)).collect();
        if semantics == tidegate_core::rules::Semantics::Reference {
            // With these semantics the limiter charges one after another, and the script the sum; docs/rules-reference.md states that.
            sketches.iter_mut().for_each(one_charge_per_counter);
        }
        let requests: Vec<_> = sketches.iter().map(request).collect();
        let at = Timestamp::from_nanos(now * 1_000);
        let (owned, pinned) = (limiter.pin_owned(), limiter.pin());
        let shared = store.decide(&owned, &requests, at);
        for (request, shared) in requests.iter().zip(shared) {
            let local = pinned.decide(request, at);
            history.push(format!("{now}: {request:?}"));
            assert_eq!(shared, local, "world {world:#x} under\n{text}{}", history.join("\n"));
            decided += 1;
            denied += u64::from(local.code == Code::OverLimit);
        }
    }
    (decided, denied)
}
