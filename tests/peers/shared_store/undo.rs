//! Hits that are taken back after another slot has denied the request: afterwards a counter admits no more than if the request had never
//! been sent, and exactly as much if nothing else was charged in between.

use super::{
    RedisServer,
    arithmetic::{Store, limiter},
    random_rules::{ALGORITHMS, KINDS, Random, limit},
};
use crate::tests_with;
use tidegate_core::{
    limit::{Code, Decision, Descriptor, Entry, Hits, Request, RequestLimits, Timestamp},
    limiter::{Limiter, ListedLimits, OwnedPinned},
    rules::{LoadOptions, Source},
};
use tidegate_shared::script::{EncodedRequest, Undo, conclude};

tests_with! {
    REDIS:
    denied_requests_over_several_slots_leave_nothing_behind,
    hits_are_taken_back_once,
    hits_given_back_in_between_are_not_taken_back_again,
}

/// Worlds of each kind of limit; `TIDEGATE_UNDO_WORLDS` raises the number.
const WORLDS: u64 = 60;

fn request(keys: &[(&'static str, Hits)]) -> Request<'static> {
    let mut request = Request::new("d");
    for &(key, hits) in keys {
        // Another value is in another group.
        let entry = Entry { key, value: key };
        request.push(Descriptor { entries: [entry].into_iter().collect(), limit: None, hits });
    }
    request.checked(&RequestLimits::default()).expect("a good request")
}

fn hit(hits: u64) -> Hits {
    Hits::new(Some(hits), 0, false)
}

/// A limit under test at `a`, and a limit that admits nothing at `b`.
struct World {
    limiter: Limiter,
    /// The same counter without the denied requests.
    model: Limiter,
    window: u64,
    text: String,
}

impl World {
    fn new(random: &mut Random, kind: usize) -> Option<Self> {
        let (keys, window) = limit(random, kind);
        let text = format!(
            "domain: d\ndescriptors:\n- {{key: a, rate_limit: {{{keys}}}}}\n\
             - {{key: b, rate_limit: {{unit: second, requests_per_unit: 0}}}}\n"
        );
        let new = || limiter(&[Source::file("undo.yaml", text.clone())], &LoadOptions::default());
        Some(Self { limiter: new()?.with_groups(), model: new()?, window, text })
    }
}

/// Charges `a` for a request that `b` denies; returns what is to be taken back, if anything was charged.
fn deny(store: &mut Store, owned: &OwnedPinned<'_>, hits: u64, now: Timestamp) -> Option<Undo> {
    let request = request(&[("a", hit(hits)), ("b", hit(1))]);
    let mut remote = owned.remote(&request, now).expect("the domain is shared");
    let encoded = EncodedRequest::new(&remote, now).expect("a small request");
    assert_eq!(encoded.group(), None, "the counters are of two groups");
    let parts = encoded.parts();
    let verdicts: Vec<_> =
        parts.iter().map(|part| store.verdicts(std::slice::from_ref(&part.request), now).remove(0)).collect();
    let conclusion = conclude(&remote, &encoded, &parts, &verdicts).expect("a conclusion");
    assert_eq!(conclusion.verdict.code, Code::OverLimit);
    let decision =
        conclusion.verdict.decide(&mut remote, ListedLimits::None, Timestamp::EPOCH).expect("a decision");
    assert_eq!(decision.code, Code::OverLimit);
    assert!(conclusion.undo.len() <= 1 && conclusion.give_back.is_empty());
    conclusion.undo.into_iter().next().map(|(_, undo)| undo)
}

fn shared<'h>(store: &mut Store, owned: &'h OwnedPinned<'h>, hits: Hits, now: Timestamp) -> Decision<'h> {
    store.decide(owned, &[request(&[("a", hits)])], now).remove(0)
}

fn micros(time: u64) -> Timestamp {
    Timestamp::from_nanos(time * 1_000)
}

async fn denied_requests_over_several_slots_leave_nothing_behind() {
    let server = RedisServer::start();
    let worlds =
        std::env::var("TIDEGATE_UNDO_WORLDS").ok().and_then(|text| text.parse().ok()).unwrap_or(WORLDS);
    let (mut undone, mut alone, mut peeks, mut given_back) = (0_u64, 0_u64, 0_u64, 0_u64);
    // The last two kinds are the reference semantics, and changes of rules.
    for (kind, (name, _)) in KINDS.iter().enumerate().take(ALGORITHMS) {
        for number in 0..worlds {
            let mut random = Random((kind as u64) << 32 | number);
            let Some(world) = World::new(&mut random, kind) else { continue };
            let mut store = Store::new(&server, format!("{kind}:{number}:"));
            let (owned, mut now) = (world.limiter.pin_owned(), 1_700_006_400_000_000 + random.below(1 << 40));
            for step in 0..8 {
                let at = micros(now);
                let undo = deny(&mut store, &owned, 1 + random.below(5), at);
                // Requests between the charge and its end: the model has the admitted requests. A window that begins with the first hit
                // stays as the denied request has opened it: see docs/shared.md.
                let is_alone = random.one_in(2) || *name == "fixed_window first_hit";
                let between = if is_alone { 0 } else { 1 + random.below(3) };
                for _ in 0..between {
                    now += random.below(1 + world.window / 6);
                    if random.one_in(4) {
                        let given = Hits::new(Some(1 + random.below(6)), 0, true);
                        shared(&mut store, &owned, given, micros(now));
                        world.model.pin().decide(&request(&[("a", given)]), micros(now));
                        given_back += 1;
                    }
                    let hits = hit(1 + random.below(3));
                    if shared(&mut store, &owned, hits, micros(now)).code == Code::Ok {
                        let decision = world.model.pin().decide(&request(&[("a", hits)]), micros(now)).code;
                        assert_eq!(decision, Code::Ok, "admitted beyond the limit: {}", world.text);
                    }
                }
                now += random.below(1 + world.window / 6);
                if let Some(undo) = &undo {
                    store.take_back(undo, step, micros(now));
                    undone += 1;
                    alone += u64::from(between == 0);
                }
                for later in [0, random.below(1 + world.window / 2), random.below(1 + 2 * world.window)] {
                    let time = micros(now + later);
                    let left = |decision: Decision<'_>| decision.statuses[0].remaining;
                    let here = left(shared(&mut store, &owned, Hits::Peek, time));
                    let model = left(world.model.pin().decide(&request(&[("a", Hits::Peek)]), time));
                    peeks += 1;
                    assert!(
                        here <= model,
                        "{here} of {model} at {later} in step {step} of {kind}:{number}: {}",
                        world.text
                    );
                    if between == 0 && step == 0 {
                        assert_eq!(here, model, "at {later} in {kind}:{number}: {}", world.text);
                    }
                }
                now += random.below(1 + world.window);
            }
        }
    }
    println!(
        "denied over several slots: {undone} charges taken back ({alone} with nothing in between), {given_back} give-backs in between, {peeks} peeks, 0 beyond the model"
    );
    assert!(undone > 500 && alone > 200 && given_back > 200, "{undone} {alone} {given_back}");
}

async fn hits_are_taken_back_once() {
    let server = RedisServer::start();
    let rules = "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, requests_per_unit: 10}}\n\
                 - {key: b, rate_limit: {unit: day, requests_per_unit: 0}}\n";
    let limiter = limiter(&[Source::file("undo.yaml", rules)], &LoadOptions::default()).expect("good rules");
    let limiter = limiter.with_groups();
    let (owned, mut store) = (limiter.pin_owned(), Store::new(&server, "once:".to_owned()));
    let at = |millis: u64| Timestamp::from_millis(1_700_000_000_000 + millis);
    assert_eq!(shared(&mut store, &owned, hit(3), at(0)).statuses[0].remaining, 7);
    let undo = deny(&mut store, &owned, 2, at(1)).expect("two hits were charged");
    assert_eq!(shared(&mut store, &owned, Hits::Peek, at(1)).statuses[0].remaining, 5);
    for _ in 0..3 {
        store.take_back(&undo, 1, at(2));
        assert_eq!(shared(&mut store, &owned, Hits::Peek, at(2)).statuses[0].remaining, 7);
    }
}

/// Two hits are used and three charged for a request that is denied elsewhere; other requests give back four and take four. Had the three
/// hits never been charged, four would be used.
async fn hits_given_back_in_between_are_not_taken_back_again() {
    let server = RedisServer::start();
    for (kind, keys) in [
        ("window", "unit: day, requests_per_unit: 10"),
        ("sub-windows", "unit: day, requests_per_unit: 10, precision: 4"),
        ("log", "unit: day, requests_per_unit: 10, algorithm: sliding_log"),
        ("fixed", "unit: day, requests_per_unit: 10, algorithm: fixed_window"),
        ("first hit", "unit: day, requests_per_unit: 10, algorithm: fixed_window, aligned: first_hit"),
        ("tokens", "unit: day, requests_per_unit: 10, algorithm: token_bucket"),
        ("intervals", "unit: day, requests_per_unit: 10, algorithm: token_bucket, refill: intervals"),
        ("leaky", "unit: day, requests_per_unit: 10, algorithm: leaky_bucket, burst: 10"),
    ] {
        let rules = format!(
            "domain: d\ndescriptors:\n- {{key: a, rate_limit: {{{keys}}}}}\n\
             - {{key: b, rate_limit: {{unit: day, requests_per_unit: 0}}}}\n"
        );
        let limiter =
            limiter(&[Source::file("undo.yaml", rules)], &LoadOptions::default()).expect("good rules");
        let limiter = limiter.with_groups();
        let (owned, mut store) = (limiter.pin_owned(), Store::new(&server, format!("{kind}:")));
        let at = |millis: u64| Timestamp::from_millis(1_700_000_000_000 + millis);
        let left = |decision: Decision<'_>| decision.statuses[0].remaining;
        assert_eq!(left(shared(&mut store, &owned, hit(2), at(0))), 8, "{kind}");
        let undo = deny(&mut store, &owned, 3, at(1)).expect("three hits were charged");
        let give_back = Hits::new(Some(4), 0, true);
        assert_eq!(left(shared(&mut store, &owned, give_back, at(2))), 9, "{kind}");
        assert_eq!(left(shared(&mut store, &owned, hit(4), at(3))), 5, "{kind}");
        store.take_back(&undo, 1, at(4));
        assert_eq!(left(shared(&mut store, &owned, Hits::Peek, at(4))), 5, "{kind}");
        // A charge after the give-back is taken back as always.
        let undo = deny(&mut store, &owned, 3, at(5)).expect("three hits were charged");
        store.take_back(&undo, 2, at(6));
        assert_eq!(left(shared(&mut store, &owned, Hits::Peek, at(6))), 5, "{kind}");
    }
}
