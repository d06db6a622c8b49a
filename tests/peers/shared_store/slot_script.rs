//! Compares slots of requests in flight in a real store with those of a limiter: the same requests and releases at the same times have the
//! same results.

use super::{
    RedisServer,
    arithmetic::{Store, limiter},
    random_rules::Random,
};
use crate::tests_with;
use tidegate_core::{
    limit::{Code, Decision, Descriptor, Entry, Hits, Request, RequestLimits, Timestamp},
    limiter::{HeldKind, Limiter, ListedLimits, OwnedPinned, SlotRelease},
    rules::{LoadOptions, Source},
};
use tidegate_shared::script::{Command, EncodedRequest, conclude, undo_of};

tests_with! {
    REDIS:
    slots_are_taken_and_released_as_by_a_limiter,
    a_request_over_several_slots_of_a_cluster_leaves_no_slot_behind,
    many_slots_have_the_same_decisions_and_short_replies,
    slots_of_a_clock_far_ahead_end_after_max_hold,
}

/// Worlds of random requests; `TIDEGATE_SLOT_WORLDS` raises the number.
const WORLDS: u64 = 60;
const STEPS: u64 = 120;

pub(super) fn at(micros: u64) -> Timestamp {
    Timestamp::from_nanos(micros * 1_000)
}

pub(super) fn hits(hits: u64) -> Hits {
    if hits == 0 { Hits::Peek } else { Hits::new(Some(hits), 0, false) }
}

pub(super) fn request<'t>(descriptors: &[(&'t str, &'t str, Hits)]) -> Request<'t> {
    let mut request = Request::new("d");
    for &(key, value, hits) in descriptors {
        let entries = [Entry { key, value }].into_iter().collect();
        request.push(Descriptor { entries, limit: None, hits });
    }
    request.checked(&RequestLimits::default()).expect("a good request")
}

/// The request with these descriptors and a ticket to be renewed; each descriptor may be a peek.
pub(super) fn renewal<'t>(
    named: &'t [(String, String, Hits)],
    ticket: &'t str,
    is_peek: bool,
) -> Request<'t> {
    let mut request = Request::new("d");
    for (key, value, _) in named {
        let entries = [Entry { key, value }, Entry { key: "renew", value: ticket }].into_iter().collect();
        request.push(Descriptor { entries, limit: None, hits: hits(u64::from(!is_peek)) });
    }
    request.checked(&RequestLimits::default()).expect("a good request")
}

/// Descriptors of a request that has a ticket.
pub(super) fn named(descriptors: &[(&str, &str, Hits)]) -> Vec<(String, String, Hits)> {
    descriptors.iter().map(|&(key, value, hits)| (key.to_owned(), value.to_owned(), hits)).collect()
}

fn of_ticket(ticket: &str, hits: Option<u64>) -> Command {
    let release = SlotRelease::of_ticket(ticket).expect("a ticket of slots in the store");
    Command::release(release.id, hits, release.held.iter().map(|(held, _)| held.key).collect())
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
}

impl World {
    fn new(server: &RedisServer, rules: &str, prefix: String) -> Self {
        let source = [Source::file("slots.yaml", rules.to_owned())];
        let new = || limiter(&source, &LoadOptions::default()).unwrap_or_else(|| panic!("{rules}"));
        let (store, tickets, named) = (Store::new(server, prefix), Vec::new(), Vec::new());
        Self { shared: new(), model: new(), store, tickets, named }
    }

    fn put_rules(&self, rules: &str) {
        let options = LoadOptions { shared_counters: true, ..LoadOptions::default() };
        for limiter in [&self.shared, &self.model] {
            let source = [Source::file("slots.yaml", rules.to_owned())];
            let next = limiter.update_rules().build(&source, &options);
            drop(next.unwrap_or_else(|errors| panic!("{errors}")).put_in_force());
        }
    }

    /// Decides a request in both; returns whether it was admitted.
    fn decide(&mut self, wanted: &Request<'_>, now: Timestamp, context: &dyn Fn() -> String) -> bool {
        let (owned, pinned) = (self.shared.pin_owned(), self.model.pin());
        let mut shared = self.store.decide(&owned, std::slice::from_ref(wanted), now).remove(0);
        let mut model = pinned.decide(wanted, now);
        let slots = (shared.slot.take(), model.slot.take());
        assert_eq!(shared, model, "{wanted:?}\n{}", context());
        match slots {
            (Some(shared), Some(model)) => {
                assert_eq!(shared.cost, model.cost);
                self.tickets.push([shared.ticket, model.ticket]);
            }
            slots => assert_eq!(slots, (None, None), "{wanted:?}\n{}", context()),
        }
        model.code == Code::Ok
    }

    /// Renews a ticket in both; returns whether it is held.
    fn renew(&mut self, index: usize, is_peek: bool, now: Timestamp, context: &dyn Fn() -> String) -> bool {
        let ([stored, local], named) = (&self.tickets[index], &self.named[index]);
        let expected = self.model.pin().decide(&renewal(named, local, is_peek), now).code == Code::Ok;
        let owned = self.shared.pin_owned();
        let held = self.store.renew(&owned, &renewal(named, stored, is_peek), now);
        assert_eq!(held, expected, "a renewal of {named:?}\n{}", context());
        held
    }

    /// Releases the slots of a ticket in both; returns how many were owned.
    fn release(&mut self, index: usize, part: Option<u64>, now: Timestamp) -> u64 {
        let [stored, local] = &self.tickets[index];
        let before = self.model.ticket_counts(HeldKind::Slot).released;
        let given = part.map_or(hits(1), |part| Hits::new(Some(part), 0, true));
        self.model.pin().decide(&request(&[("slot", local, given)]), now);
        let released = self.model.ticket_counts(HeldKind::Slot).released - before;
        assert_eq!(self.store.release(&of_ticket(stored, part), now), released);
        released
    }
}

fn random_rules(random: &mut Random) -> String {
    let user = match random.below(5) {
        0 => "per: 20ms, requests_per_unit: 3, algorithm: sliding_log".to_owned(),
        _ => format!(
            "algorithm: concurrency, requests_in_flight: {}, max_hold: {}ms",
            random.below(7),
            1 + random.below(40)
        ),
    };
    format!(
        "domain: d\ndescriptors:\n- {{key: user, rate_limit: {{{user}}}}}\n\
         - {{key: other, rate_limit: {{algorithm: concurrency, requests_in_flight: 4, max_hold: 15ms}}}}\n\
         - {{key: shadow, shadow_mode: true, rate_limit: {{algorithm: concurrency, requests_in_flight: 1}}}}\n\
         - {{key: window, rate_limit: {{per: 10ms, requests_per_unit: 4}}}}\n"
    )
}

async fn slots_are_taken_and_released_as_by_a_limiter() {
    let server = RedisServer::start();
    let worlds = std::env::var("TIDEGATE_SLOT_WORLDS").ok().and_then(|text| text.parse().ok());
    let (mut taken, mut denied, mut released, mut renewed) = (0_u64, 0_u64, [0_u64; 2], [0_u64; 2]);
    for number in 0..worlds.unwrap_or(WORLDS) {
        let mut random = Random(number);
        let mut rules = random_rules(&mut random);
        let mut world = World::new(&server, &rules, format!("{number}:"));
        let mut now = 1_700_006_400_000_000 + random.below(1 << 40);
        for step in 0..STEPS {
            now += random.below(4_000);
            if random.one_in(25) {
                rules = random_rules(&mut random);
                world.put_rules(&rules);
            }
            let context = || format!("world {number}, step {step}, {now}, under\n{rules}");
            if !world.tickets.is_empty() && random.one_in(5) {
                let back = random.below(world.tickets.len().min(8) as u64) as usize;
                let index = world.tickets.len() - 1 - back;
                let is_held = world.renew(index, random.one_in(5), at(now), &context);
                renewed[usize::from(is_held)] += 1;
                continue;
            }
            if !world.tickets.is_empty() && random.one_in(3) {
                let back = random.below(world.tickets.len().min(8) as u64) as usize;
                let part = random.one_in(4).then(|| 1 + random.below(3));
                let held = world.release(world.tickets.len() - 1 - back, part, at(now));
                released[usize::from(held > 0)] += 1;
                continue;
            }
            let keys = ["user", "other", "shadow", "window", "user"];
            let count = 1 + random.below(3) as usize;
            let first = random.below(keys.len() as u64) as usize;
            let descriptors = (0..count).map(|index| {
                let value = if random.one_in(2) { "a" } else { "b" };
                (keys[(first + index) % keys.len()], value, hits(random.below(4)))
            });
            let descriptors: Vec<_> = descriptors.collect();
            match world.decide(&request(&descriptors), at(now), &context) {
                true => taken += 1,
                false => denied += 1,
            }
            if world.named.len() < world.tickets.len() {
                world.named.push(named(&descriptors));
            }
        }
    }
    println!(
        "{taken} admitted, {denied} denied, {} releases of slots, {} of none, {} renewals of all slots, {} of not all: 0 deviations",
        released[1], released[0], renewed[1], renewed[0]
    );
    assert!(taken > 500 && denied > 500 && released[0] > 200 && released[1] > 200, "one-sided");
    assert!(renewed[0] > 100 && renewed[1] > 100, "one-sided");
}

/// Charges `a` for a request that `b` denies, or whose caller has gone.
fn leave(store: &mut Store, owned: &OwnedPinned<'_>, wanted: &Request<'_>, is_denied: bool, now: Timestamp) {
    let remote = owned.remote(wanted, now).expect("the domain is shared");
    let encoded = EncodedRequest::new(&remote, now).expect("a small request");
    assert!(encoded.takes_tickets());
    let parts = encoded.parts();
    let verdicts: Vec<_> =
        parts.iter().map(|part| store.verdicts(std::slice::from_ref(&part.request), now).remove(0)).collect();
    let undo: Vec<_> = match is_denied {
        true => conclude(&remote, &encoded, &parts, &verdicts).expect("a conclusion").undo,
        false => {
            let of_part = parts.iter().zip(&verdicts);
            of_part.filter_map(|(part, verdict)| Some((0, undo_of(&part.request, verdict)?))).collect()
        }
    };
    for (token, (_, undo)) in undo.iter().enumerate() {
        for _ in 0..2 {
            store.take_back(undo, now.as_nanos() + 2 * token as u64 + u64::from(is_denied), now);
        }
    }
}

async fn a_request_over_several_slots_of_a_cluster_leaves_no_slot_behind() {
    let server = RedisServer::start();
    let rules = "domain: d\ndescriptors:\n\
                 - {key: a, rate_limit: {algorithm: concurrency, requests_in_flight: 5}}\n\
                 - {key: shadow, shadow_mode: true, rate_limit: {algorithm: concurrency, requests_in_flight: 5}}\n\
                 - {key: b, rate_limit: {unit: second, requests_per_unit: 0}}\n\
                 - {key: c, rate_limit: {unit: day, requests_per_unit: 9}}\n";
    let source = [Source::file("slots.yaml", rules)];
    let limiter = limiter(&source, &LoadOptions::default()).expect("rules").with_groups();
    let (owned, mut store) = (limiter.pin_owned(), Store::new(&server, "undo:".into()));
    let now = 1_700_006_400_000_000;
    let left = |store: &mut Store, now| -> Vec<u32> {
        let peeks = ["a", "shadow", "c"].map(|key| request(&[(key, key, Hits::Peek)]));
        let decisions: Vec<Decision<'_>> = store.decide(&owned, &peeks, at(now));
        decisions.iter().map(|decision| decision.statuses[0].remaining).collect()
    };
    let taken = store.decide(&owned, &[request(&[("a", "a", hits(2))])], at(now)).remove(0);
    for step in 1..6 {
        let all = [("a", "a", hits(1)), ("shadow", "shadow", hits(1)), ("c", "c", hits(1))];
        let denied = [&all[..], &[("b", "b", hits(1))]].concat();
        leave(&mut store, &owned, &request(&denied), true, at(now + step));
        assert_eq!(left(&mut store, now + step), [3, 5, 9]);
        leave(&mut store, &owned, &request(&all), false, at(now + step));
        assert_eq!(left(&mut store, now + step), [3, 5, 9]);
    }
    let ticket = taken.slot.expect("admitted").ticket;
    let release = SlotRelease::of_ticket(&ticket).expect("in the store");
    assert_eq!(release.held.len(), 1);
    assert!(release.held[0].1 > 0, "a group of 1,024");
    assert_eq!(store.release(&of_ticket(&ticket, None), at(now + 9)), 1);
    assert_eq!(left(&mut store, now + 9), [5, 5, 9]);
}

/// A thousand slots: 24 KB in the store.
async fn many_slots_have_the_same_decisions_and_short_replies() {
    let server = RedisServer::start();
    let rules = "domain: d\ndescriptors: \
                 [{key: k, rate_limit: {algorithm: concurrency, requests_in_flight: 1000, max_hold: 10s}}]";
    let mut world = World::new(&server, rules, "many:".into());
    let (mut random, mut now) = (Random(3), 1_700_006_400_000_000);
    let mut denied = 0;
    for step in 0..2_500_u64 {
        now += random.below(9_000);
        let context = || format!("step {step}");
        let count = if step % 40 == 39 { 1 + random.below(90) } else { random.below(3) };
        denied += u64::from(!world.decide(&request(&[("k", "v", hits(count))]), at(now), &context));
        if random.one_in(3) && !world.tickets.is_empty() {
            let index = random.below(world.tickets.len() as u64) as usize;
            world.release(index, None, at(now));
        }
    }
    assert!(denied > 100, "{denied} denied");
    let owned = world.shared.pin_owned();
    let remote = owned.remote(&request(&[("k", "v", hits(1_000))]), at(now)).expect("the domain is shared");
    let encoded = EncodedRequest::new(&remote, at(now)).expect("a small request");
    let verdict = world.store.verdicts(&[encoded], at(now)).remove(0);
    let bytes = verdict.states[0].len();
    println!("{denied} denials; a reply of {bytes} bytes");
    assert!(verdict.code == Code::OverLimit && bytes <= 200, "{bytes} bytes");
    let decision = |mut remote| verdict.decide(&mut remote, ListedLimits::None, at(now)).map(|it| it.code);
    assert_eq!(decision(remote), Ok(Code::OverLimit));
}

/// A failover to a node whose clock is an hour behind: the slots end after `max_hold`, and are still released by their tickets.
async fn slots_of_a_clock_far_ahead_end_after_max_hold() {
    let server = RedisServer::start();
    let rules = "domain: d\ndescriptors: \
                 [{key: k, rate_limit: {algorithm: concurrency, requests_in_flight: 3, max_hold: 10s}}]";
    let source = [Source::file("slots.yaml", rules)];
    let limiter = limiter(&source, &LoadOptions::default()).expect("rules");
    let (owned, mut store) = (limiter.pin_owned(), Store::new(&server, "ahead:".into()));
    let start = 1_700_006_400_000_000;
    let take = |store: &mut Store, now| {
        let decision = store.decide(&owned, &[request(&[("k", "v", hits(1))])], at(now)).remove(0);
        decision.slot.map(|slot| slot.ticket)
    };
    let tickets = [0, 1, 2].map(|step| take(&mut store, start + step).expect("a slot"));
    let behind = start - 3_600_000_000;
    assert_eq!(take(&mut store, behind), None);
    assert_eq!(store.release(&of_ticket(&tickets[1], None), at(behind + 1)), 1);
    assert!(take(&mut store, behind + 2).is_some());
    assert_eq!(take(&mut store, behind + 9_999_999), None);
    assert!(take(&mut store, behind + 10_000_001).is_some());
}
