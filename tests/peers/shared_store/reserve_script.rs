//! Compares reservations in a real store with those of a limiter: the same starts and ends at the same times have the same results, with
//! every algorithm, with lost, late and repeated ends, rules that change, and requests that are taken back.

use super::{
    RedisServer,
    arithmetic::{Store, limiter},
    lease_script, leases,
    random_rules::{ALGORITHMS, KINDS, Random, is_meter, later, limit},
    slot_script::{at, hits, named, renewal, request},
};
use crate::tests_with;
use std::time::Duration;
use tidegate_core::{
    limit::{Code, Decision, Hits, Request, Timestamp},
    limiter::{HeldKind, Limiter, ListedLimits, OwnedPinned, SlotRelease},
    rules::{LoadOptions, Source},
};
use tidegate_shared::{
    lease::{LeaseRequest, Terms},
    script::{Command, EncodedRequest, Undo, conclude, undo_of},
};

tests_with! {
    REDIS:
    estimates_are_charged_and_corrected_as_by_a_limiter,
    a_request_that_is_taken_back_leaves_no_reservation_behind,
    many_reservations_have_the_same_verdicts_and_short_replies,
    a_start_beyond_the_bound_is_charged_and_has_no_end,
    reservations_of_a_clock_far_ahead_count_for_a_window_at_most,
    ends_of_counters_with_leases_leave_the_credits_out,
}

/// Worlds of each algorithm; `TIDEGATE_RESERVE_WORLDS` raises the number.
const WORLDS: u64 = 30;
const STEPS: u64 = 60;

/// In microseconds.
const HOUR: u64 = 3_600_000_000;

fn less(hits: u64) -> Hits {
    Hits::new(Some(hits), 0, true)
}

fn end_of(ticket: &str, cost: Hits) -> Command {
    let release = SlotRelease::of_ticket(ticket).expect("a ticket of reservations in the store");
    assert!(release.held.iter().all(|(held, _)| held.kind == HeldKind::Reservation));
    Command::end(release.id, cost, release.held.iter().map(|(held, _)| held.key).collect())
}

/// The same rules, over a store and in a limiter.
struct World {
    shared: Limiter,
    model: Limiter,
    store: Store,
    /// Tickets in the store and in the limiter.
    tickets: Vec<[Box<str>; 2]>,
    /// The descriptors of their requests, as renewals name them.
    named: Vec<Vec<(String, String, Hits)>>,
    /// The rules, and everything that happened so far.
    history: Vec<String>,
}

impl World {
    fn new(server: &RedisServer, rules: &str, prefix: String) -> Option<Self> {
        let source = [Source::file("reserve.yaml", rules.to_owned())];
        let new = || limiter(&source, &LoadOptions::default());
        let (shared, model, store) = (new()?.with_groups(), new()?, Store::new(server, prefix));
        let (tickets, named, history) = (Vec::new(), Vec::new(), vec![rules.to_owned()]);
        Some(Self { shared, model, store, tickets, named, history })
    }

    fn put_rules(&mut self, rules: &str) {
        let options = LoadOptions { shared_counters: true, ..LoadOptions::default() };
        for limiter in [&self.shared, &self.model] {
            let source = [Source::file("reserve.yaml", rules.to_owned())];
            // Rules that one side refuses are refused by both.
            if let Ok(next) = limiter.update_rules().build(&source, &options) {
                drop(next.put_in_force());
            }
        }
        self.history.push(rules.to_owned());
    }

    /// Decides a request in both; returns whether it was admitted.
    fn decide(&mut self, wanted: &Request<'_>, now: Timestamp) -> bool {
        self.history.push(format!("{}: {wanted:?}", now.as_nanos() / 1_000));
        let (owned, pinned) = (self.shared.pin_owned(), self.model.pin());
        let mut shared = self.store.decide(&owned, std::slice::from_ref(wanted), now).remove(0);
        let mut model = pinned.decide(wanted, now);
        let slots = (shared.slot.take(), model.slot.take());
        assert_eq!(shared, model, "{}", self.history.join("\n"));
        match slots {
            (Some(shared), Some(model)) => {
                assert_eq!(shared.cost, model.cost);
                self.tickets.push([shared.ticket, model.ticket]);
            }
            slots => assert_eq!(slots, (None, None), "{}", self.history.join("\n")),
        }
        model.code == Code::Ok
    }

    /// Renews a ticket in both; returns whether it is held.
    fn renew(&mut self, index: usize, is_peek: bool, now: Timestamp) -> bool {
        self.history.push(format!("{}: renewal of {index}, a peek: {is_peek}", now.as_nanos() / 1_000));
        let ([stored, local], named) = (&self.tickets[index], &self.named[index]);
        let expected = self.model.pin().decide(&renewal(named, local, is_peek), now).code == Code::Ok;
        let owned = self.shared.pin_owned();
        let held = self.store.renew(&owned, &renewal(named, stored, is_peek), now);
        assert_eq!(held, expected, "{}", self.history.join("\n"));
        held
    }

    /// Ends the reservations of a ticket in both; returns how many were open.
    fn end(&mut self, index: usize, cost: Hits, now: Timestamp) -> u64 {
        self.history.push(format!("{}: end of {index} with {cost:?}", now.as_nanos() / 1_000));
        let [stored, local] = &self.tickets[index];
        let before = self.model.ticket_counts(HeldKind::Reservation).released;
        self.model.pin().decide(&request(&[("slot", local, cost)]), now);
        let ended = self.model.ticket_counts(HeldKind::Reservation).released - before;
        let in_store = self.store.end(&end_of(stored, cost), now);
        assert_eq!(in_store, ended, "{}", self.history.join("\n"));
        ended
    }
}

/// Rules that include a rule of this kind, with an estimate if `reserves`.
fn random_rules(random: &mut Random, kind: usize, reserves: bool) -> (String, u64) {
    let (keys, window) = limit(random, kind);
    let lost_end = if random.one_in(2) { "keep" } else { "return" };
    let hold = ["1ms", "40ms", "700ms", "30s", "8m", "24h"][random.below(6) as usize];
    let reserve = match reserves {
        true => format!(", reserve: hits, max_hold: {hold}, on_lost_end: {lost_end}"),
        false if random.one_in(2) => ", charge: always".to_owned(),
        false => String::new(),
    };
    let text = format!(
        "domain: d\ndescriptors:\n- {{key: user, rate_limit: {{{keys}{reserve}}}}}\n\
         - {{key: other, rate_limit: {{unit: minute, requests_per_unit: 9, reserve: 3, max_hold: 1s, on_lost_end: {lost_end}}}}}\n\
         - {{key: shadow, shadow_mode: true, rate_limit: {{unit: minute, requests_per_unit: 4, reserve: 2}}}}\n\
         - {{key: window, rate_limit: {{per: 10ms, requests_per_unit: 4}}}}\n"
    );
    (text, window)
}

#[derive(Default, Debug)]
struct Counts {
    admitted: u64,
    denied: u64,
    ended: u64,
    unknown: u64,
    renewed: [u64; 2],
    lost: u64,
}

async fn estimates_are_charged_and_corrected_as_by_a_limiter() {
    let server = RedisServer::start();
    let worlds = std::env::var("TIDEGATE_RESERVE_WORLDS").ok().and_then(|text| text.parse().ok());
    for (kind, (name, _)) in KINDS.iter().enumerate().take(ALGORITHMS) {
        let mut counts = Counts::default();
        for number in 0..worlds.unwrap_or(WORLDS) {
            play(&server, kind, number, &mut counts);
        }
        println!("{name}: {counts:?}, 0 deviations");
        let Counts { admitted, denied, ended, unknown, renewed, lost } = counts;
        assert!(
            admitted > 100
                && denied > 50
                && ended > 50
                && unknown > 20
                && lost > 5
                && renewed.iter().all(|&all| all > 20),
            "{name} is one-sided: {counts:?}"
        );
    }
}

fn play(server: &RedisServer, kind: usize, number: u64, counts: &mut Counts) {
    let mut random = Random((kind as u64) << 32 | number);
    let (rules, mut window) = random_rules(&mut random, kind, true);
    let Some(mut world) = World::new(server, &rules, format!("{kind}:{number}:")) else { return };
    let mut now = 1_700_006_400_000_000 + random.below(1 << 40);
    for _ in 0..STEPS {
        // The time never goes back: before the end of a window, a limiter has hits that the store has dropped.
        now = later(&mut random, now, window, 1);
        if random.one_in(30) {
            // The last kind is any of the others, except meters that drain for years.
            let kind = KINDS.len() - 1;
            let reserves = !random.one_in(4);
            let (rules, of_rules) = random_rules(&mut random, kind, reserves);
            world.put_rules(&rules);
            window = of_rules;
        }
        if !world.tickets.is_empty() && random.one_in(6) {
            let back = random.below(world.tickets.len().min(4) as u64) as usize;
            let is_held = world.renew(world.tickets.len() - 1 - back, random.one_in(5), at(now));
            counts.renewed[usize::from(is_held)] += 1;
            continue;
        }
        if !world.tickets.is_empty() && random.one_in(3) {
            let back = random.below(world.tickets.len().min(8) as u64) as usize;
            let cost = match random.below(8) {
                0 => less(1 + random.below(3)),
                1 => hits(0),
                // A meter of the store holds 126 years of draining at most.
                2 if !is_meter(kind) || window <= HOUR => hits(20 + random.below(40)),
                _ => hits(1 + random.below(8)),
            };
            let ended = world.end(world.tickets.len() - 1 - back, cost, at(now));
            counts.ended += ended;
            counts.unknown += u64::from(ended == 0);
            continue;
        }
        let keys = ["user", "other", "shadow", "window", "user"];
        let count = if random.one_in(2) { 1 } else { 1 + random.below(3) as usize };
        let first = if random.one_in(2) { 0 } else { random.below(keys.len() as u64) as usize };
        let descriptors = (0..count).map(|index| {
            let value = if random.one_in(3) { "a" } else { "b" };
            let of_descriptor = match random.below(10) {
                0 => less(1 + random.below(3)),
                _ => hits(random.below(6)),
            };
            (keys[(first + index) % keys.len()], value, of_descriptor)
        });
        let descriptors: Vec<_> = descriptors.collect();
        match world.decide(&request(&descriptors), at(now)) {
            true => counts.admitted += 1,
            false => counts.denied += 1,
        }
        if world.named.len() < world.tickets.len() {
            world.named.push(named(&descriptors));
        }
    }
    counts.lost += world.store.lost;
}

/// The hits that have to be taken back from a request over several groups that `never` denies, or whose caller has gone.
fn leave(
    store: &mut Store,
    owned: &OwnedPinned<'_>,
    wanted: &Request<'_>,
    is_denied: bool,
    now: Timestamp,
) -> Vec<Undo> {
    let remote = owned.remote(wanted, now).expect("the domain is shared");
    let encoded = EncodedRequest::new(&remote, now).expect("a small request");
    assert!(encoded.takes_tickets());
    let parts = encoded.parts();
    let verdicts: Vec<_> =
        parts.iter().map(|part| store.verdicts(std::slice::from_ref(&part.request), now).remove(0)).collect();
    match is_denied {
        true => {
            let conclusion = conclude(&remote, &encoded, &parts, &verdicts).expect("a conclusion");
            conclusion.undo.into_iter().map(|(_, undo)| undo).collect()
        }
        false => {
            let of_parts = parts.iter().zip(&verdicts);
            of_parts.filter_map(|(part, verdict)| undo_of(&part.request, verdict)).collect()
        }
    }
}

/// Other requests and ends come in between; afterwards the counter is as if the request had never been sent.
async fn a_request_that_is_taken_back_leaves_no_reservation_behind() {
    let server = RedisServer::start();
    for (kind, (name, _)) in KINDS.iter().enumerate().take(ALGORITHMS) {
        // The window stays as the request has opened it.
        if *name == "fixed_window first_hit" {
            continue;
        }
        let mut undone = 0;
        for number in 0..WORLDS {
            let mut random = Random((kind as u64) << 32 | 1 << 31 | number);
            let (keys, window) = limit(&mut random, kind);
            // Hits are taken back within a minute, long before the deadline.
            let part = (window / 6).min(HOUR);
            let rules = format!(
                "domain: d\ndescriptors:\n- {{key: user, rate_limit: {{{keys}, reserve: hits, max_hold: 24h}}}}\n\
                 - {{key: never, rate_limit: {{unit: second, requests_per_unit: 0}}}}\n"
            );
            let prefix = format!("back:{kind}:{number}:");
            let Some(mut world) = World::new(&server, &rules, prefix) else { continue };
            let mut now = 1_700_006_400_000_000 + random.below(1 << 40);
            for step in 0..12_u64 {
                now += random.below(1 + part);
                let is_denied = random.one_in(2);
                let mut wanted = vec![("user", "a", hits(1 + random.below(5)))];
                wanted.extend(is_denied.then(|| ("never", "b", hits(1))));
                let undo = {
                    let owned = world.shared.pin_owned();
                    leave(&mut world.store, &owned, &request(&wanted), is_denied, at(now))
                };
                if random.one_in(2) && !world.tickets.is_empty() {
                    now += random.below(1 + part);
                    let index = random.below(world.tickets.len() as u64) as usize;
                    world.end(index, hits(random.below(6)), at(now));
                }
                now += random.below(1 + part);
                for (token, undo) in undo.iter().enumerate() {
                    undone += 1;
                    for _ in 0..2 {
                        world.store.take_back(undo, step << 8 | token as u64, at(now));
                    }
                }
                world.decide(&request(&[("user", "a", hits(1 + random.below(3)))]), at(now));
            }
        }
        println!("{name}: {undone} taken back, 0 deviations");
        assert!(undone > 50, "{undone} taken back");
    }
}

/// Five hundred reservations: 18 KB in the store.
async fn many_reservations_have_the_same_verdicts_and_short_replies() {
    let server = RedisServer::start();
    for algorithm in ["sliding_window", "sliding_log", "token_bucket", "leaky_bucket"] {
        let rules = format!(
            "domain: d\ndescriptors: [{{key: k, rate_limit: {{unit: hour, requests_per_unit: 3000, algorithm: {algorithm}, \
             reserve: hits, max_hold: 1h}}}}]"
        );
        let mut world = World::new(&server, &rules, format!("many {algorithm}:")).expect("rules");
        let (mut random, mut now) = (Random(3), 1_700_006_400_000_000);
        let mut denied = 0;
        for _ in 0..900 {
            now += random.below(9_000);
            denied += u64::from(!world.decide(&request(&[("k", "v", hits(1 + random.below(9)))]), at(now)));
            if random.one_in(3) && !world.tickets.is_empty() {
                let index = random.below(world.tickets.len() as u64) as usize;
                world.end(index, hits(random.below(9)), at(now));
            }
        }
        let owned = world.shared.pin_owned();
        let remote = owned.remote(&request(&[("k", "v", hits(2_999))]), at(now)).expect("it is shared");
        let encoded = EncodedRequest::new(&remote, at(now)).expect("a small request");
        let verdict = world.store.verdicts(&[encoded], at(now)).remove(0);
        let bytes = verdict.states[0].len();
        println!("{algorithm}: {denied} denials; a reply of {bytes} bytes");
        assert!(denied > 50 && verdict.code == Code::OverLimit && bytes <= 200, "{denied}, {bytes} bytes");
        let decision =
            |mut remote| verdict.decide(&mut remote, ListedLimits::None, at(now)).map(|it| it.code);
        assert_eq!(decision(remote), Ok(Code::OverLimit));
    }
}

async fn a_start_beyond_the_bound_is_charged_and_has_no_end() {
    let server = RedisServer::start();
    let rules = "domain: d\ndescriptors: [{key: k, rate_limit: {unit: hour, requests_per_unit: 9000, reserve: 2, max_hold: 1h}}]";
    let mut world = World::new(&server, rules, "bound:".into()).expect("rules");
    let now = 1_700_006_400_000_000;
    let owned = world.shared.pin_owned();
    let mut ticket = None;
    for _ in 0..1_025 {
        let decision: Decision<'_> =
            world.store.decide(&owned, &[request(&[("k", "v", hits(1))])], at(now)).remove(0);
        ticket = decision.slot.map(|slot| slot.ticket);
    }
    let remaining = |store: &mut Store| {
        store.decide(&owned, &[request(&[("k", "v", Hits::Peek)])], at(now)).remove(0).statuses[0].remaining
    };
    assert_eq!(remaining(&mut world.store), 9_000 - 2 * 1_025);
    let ticket = ticket.expect("admitted");
    assert_eq!(world.store.end(&end_of(&ticket, hits(0)), at(now)), 0);
    assert_eq!(remaining(&mut world.store), 9_000 - 2 * 1_025);
}

/// A failover to a node whose clock is an hour behind.
async fn reservations_of_a_clock_far_ahead_count_for_a_window_at_most() {
    let server = RedisServer::start();
    let rules = "domain: d\ndescriptors: [{key: k, rate_limit: {per: 10s, requests_per_unit: 9, reserve: 3, max_hold: 1h}}]";
    let mut world = World::new(&server, rules, "ahead:".into()).expect("rules");
    let owned = world.shared.pin_owned();
    let start = 1_700_006_400_000_000;
    let take = |store: &mut Store, now| {
        store.decide(&owned, &[request(&[("k", "v", hits(1))])], at(now)).remove(0).slot.map(|it| it.ticket)
    };
    let tickets = [0, 1, 2].map(|step| take(&mut world.store, start + step).expect("admitted"));
    let behind = start - 7_200_000_000;
    assert_eq!(take(&mut world.store, behind), None);
    assert_eq!(world.store.end(&end_of(&tickets[1], hits(1)), at(behind + 1)), 1);
    assert_eq!(take(&mut world.store, behind + 2), None, "2 of 9 are free");
    assert_eq!(world.store.end(&end_of(&tickets[0], hits(0)), at(behind + 3)), 1);
    assert!(take(&mut world.store, behind + 4).is_some());
    let later = behind + 2 * Duration::from_secs(10).as_micros() as u64;
    assert!(take(&mut world.store, later).is_some() && take(&mut world.store, later + 1).is_some());
}

/// Rules that reserve are not leased, but credits are still out if a rule has just begun to reserve. The counter equals a counter without
/// leases, except for the credits.
async fn ends_of_counters_with_leases_leave_the_credits_out() {
    const KEYS: [&str; 9] = [
        "",
        "precision: 7, ",
        "algorithm: sliding_log, ",
        "algorithm: fixed_window, ",
        "algorithm: fixed_window, aligned: first_hit, ",
        "algorithm: fixed_window, calendar: true, ",
        "algorithm: token_bucket, ",
        "algorithm: token_bucket, refill: intervals, ",
        "algorithm: leaky_bucket, ",
    ];
    let server = RedisServer::start();
    for (index, keys) in KEYS.iter().enumerate() {
        let limit = format!("{keys}unit: day, requests_per_unit: 1000");
        // No refill is due within the test.
        let (now, prefixes) =
            (1_700_000_400_000_000, ["leased", "alone"].map(|name| format!("{name}:{index}:")));
        let free = prefixes.map(|prefix| of_reserving_counter(&server, &limit, &prefix, now));
        let [leased, alone] = free;
        assert_eq!(alone.len(), 5);
        println!("{limit}: {leased:?} free with leases, {alone:?} without");
        let credits: Vec<u32> = leased.iter().zip(&alone).map(|(leased, alone)| alone - leased).collect();
        assert!(credits[0] > 0 && credits.iter().all(|out| *out == credits[0]), "{limit}: {credits:?}");
    }
}

/// Free hits after each step; the prefix marks steps with outstanding credits.
fn of_reserving_counter(server: &RedisServer, limit: &str, prefix: &str, now: u64) -> Vec<u32> {
    let (mut store, is_leased) = (Store::new(server, prefix.to_owned()), prefix.starts_with("leased"));
    let options = LoadOptions { shared_counters: true, ..LoadOptions::default() };
    let shared = limiter(&lease_script::rules(limit), &options).expect("a good rule");
    let hit = |store: &mut Store, taken| {
        store.decide(&shared.pin_owned(), &[request(&[("k", "v", taken)])], at(now)).remove(0).code
    };
    assert_eq!(hit(&mut store, hits(5)), Code::Ok);
    if is_leased {
        let owned = shared.pin_owned();
        let (key, algorithm) = lease_script::counter(&owned);
        let terms = Terms::of(&algorithm, leases::SETTINGS).expect("a rule that is leased");
        let mut of_leases = lease_script::Store::new(server, prefix.to_owned());
        let first = leases::FIRST_REQUEST;
        // In its first lease length, a store grants nothing.
        let before = now - 2 * lease_script::LENGTH;
        for (sequence, at) in [(1, before), (2, now)] {
            let granted = of_leases.lease(key, terms, &LeaseRequest { sequence, ..first }, at);
            assert_eq!(granted.expect("a response").spend_to > 0, at == now);
        }
    }
    let reserving = lease_script::rules(&format!("{limit}, reserve: 40, max_hold: 1h"));
    let next = shared.update_rules().build(&reserving, &options);
    drop(next.expect("a good rule").put_in_force());
    let owned = shared.pin_owned();
    let mut start = || {
        let decision = store.decide(&owned, &[request(&[("k", "v", hits(1))])], at(now)).remove(0);
        decision.slot.expect("an estimate").ticket
    };
    let tickets: Vec<_> = (0..4).map(|_| start()).collect();
    let has_leases = || {
        let keys = redis::cmd("KEYS").arg(format!("{prefix}*")).query(&mut server.connection());
        let values = keys.map(|keys: Vec<String>| {
            let get = |key: &String| redis::cmd("GET").arg(key).query(&mut server.connection());
            keys.iter().map(|key| get(key).unwrap_or_default()).collect::<Vec<Vec<u8>>>()
        });
        values.expect("keys").iter().any(|value| value.first() == Some(&0))
    };
    let mut free = Vec::new();
    for (step, cost) in
        [None, Some(hits(7)), Some(less(10)), Some(hits(70)), Some(hits(0))].into_iter().enumerate()
    {
        if let Some(cost) = cost {
            let end = end_of(&tickets[step - 1], cost);
            assert_eq!([store.end(&end, at(now)), store.end(&end, at(now))], [1, 0], "an end counts once");
        }
        assert_eq!(has_leases(), is_leased, "{limit}: step {step}");
        let peek = store.decide(&owned, &[request(&[("k", "v", hits(0))])], at(now)).remove(0);
        free.push(peek.statuses[0].remaining);
    }
    free
}
