//! Slots of requests in flight: taken over several counters, renewed and released by ticket, some twice, beside each other; and requests
//! that wait for them, some of which give up.

use crate::{under_many_schedules, world::in_threads};
use shuttle::thread::{self, Thread};
use std::{
    array,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    task::{Wake, Waker},
    time::Duration,
};
use tidegate_core::{
    limit::{Code, Descriptor, Entry, Hits, Request, Timestamp},
    limiter::{Limiter, QueueDecision, SlotWait},
    rules::{LoadOptions, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};

const LIMIT: u32 = 2;

const RULES: &str = "
domain: d
descriptors: [{key: k, rate_limit: {algorithm: concurrency, requests_in_flight: 2, max_wait: 1h}}]
";

/// 15 November 2023.
const NOW: Timestamp = Timestamp::from_nanos(1_700_006_400_000_000_000);

/// A limiter, and how many requests are in flight in each of the counters `a` and `b`.
struct World {
    limiter: Limiter,
    in_flight: [AtomicU32; 2],
}

impl World {
    fn new() -> Arc<Self> {
        let rules = RuleSet::parse(&[Source::file("model.yaml", RULES)], &LoadOptions::default());
        let seed = Seed::from_bytes([5; 16]);
        let store = StoreSettings { seed, counters_max: 10, on_full: OnFull::Deny };
        let limiter = Limiter::new(rules.expect("good rules"), store, false);
        Arc::new(Self { limiter, in_flight: array::from_fn(|_| AtomicU32::new(0)) })
    }

    fn decide(&self, entries: &[(&str, &str)], hits: Hits) -> (Code, u32, Option<String>) {
        let request = request(entries, hits);
        let pinned = self.limiter.pin();
        let decision = pinned.decide(&request, NOW);
        (decision.code, decision.statuses[0].remaining, decision.slot.map(|slot| slot.ticket.into()))
    }

    /// Whether a renewal of these counters finds all of them held.
    fn renew(&self, counters: &[usize], ticket: &str) -> bool {
        let mut request = Request::new("d");
        for (key, value) in entries(counters) {
            let entries = [Entry { key, value }, Entry { key: "renew", value: ticket }].into_iter().collect();
            request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
        }
        self.limiter.pin().decide(&request, NOW).code == Code::Ok
    }

    /// Takes a slot of each of these counters, renews it, and releases it so many times; returns whether it was admitted.
    fn is_in_flight(&self, counters: &[usize], releases: usize) -> bool {
        let (_, _, ticket) = self.decide(&entries(counters), Hits::ONE);
        let Some(ticket) = ticket else { return false };
        assert!(self.renew(counters, &ticket));
        self.run(counters);
        (0..releases).for_each(|_| _ = self.decide(&[("slot", &ticket)], Hits::ONE));
        true
    }

    /// Counts the request while it is in flight.
    fn run(&self, counters: &[usize]) {
        for &counter in counters {
            let now = self.in_flight[counter].fetch_add(1, Ordering::SeqCst) + 1;
            assert!(now <= LIMIT, "{now} in flight");
        }
        counters.iter().for_each(|&counter| _ = self.in_flight[counter].fetch_sub(1, Ordering::SeqCst));
    }

    /// Waits for a slot of each of these counters, and releases them. With `gives_up`, leaves its lines when it would sleep.
    fn wait(&self, counters: &[usize], gives_up: bool) {
        let (entries, waker) = (entries(counters), Waker::from(Arc::new(Unpark(thread::current()))));
        let request = request(&entries, Hits::ONE);
        let mut decision = self.limiter.pin().decide_or_queue(&request, Duration::MAX, NOW).ticket();
        let ticket = loop {
            let wait = match decision {
                Ok(ticket) => break ticket,
                Err(wait) => wait,
            };
            while !self.limiter.poll_slots(&wait, &waker) {
                if gives_up {
                    return self.limiter.leave(&wait);
                }
                // Deadlocks if a call is lost: time stands still, so that no timer makes up for it.
                thread::park();
            }
            decision = self.limiter.pin().decide_again(&request, wait, NOW).ticket();
        };
        self.run(counters);
        // Released as by a call that is reset, or as by an end.
        match counters {
            [_] => assert!(self.limiter.cancel_start(&ticket, NOW).is_some()),
            _ => _ = self.decide(&[("slot", &ticket)], Hits::ONE),
        }
    }

    fn free(&self) -> [u32; 2] {
        ["a", "b"].map(|name| self.decide(&[("k", name)], Hits::Peek).1)
    }
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A decision on a request that has time to wait.
trait TicketOrWait {
    fn ticket(self) -> Result<String, SlotWait>;
}

impl TicketOrWait for QueueDecision<'_> {
    fn ticket(self) -> Result<String, SlotWait> {
        match self {
            QueueDecision::Decided(decision) => {
                Ok(decision.slot.expect("a request with time to wait is admitted").ticket.into())
            }
            QueueDecision::Waits(wait) => Err(wait),
            QueueDecision::Queued(_) => unreachable!("no rule is of a bucket"),
        }
    }
}

fn entries(counters: &[usize]) -> Vec<(&'static str, &'static str)> {
    counters.iter().map(|&counter| ("k", ["a", "b"][counter])).collect()
}

fn request<'n>(entries: &[(&'n str, &'n str)], hits: Hits) -> Request<'n> {
    let mut request = Request::new("d");
    for &(key, value) in entries {
        let entries = [Entry { key, value }].into_iter().collect();
        request.push(Descriptor { entries, limit: None, hits });
    }
    request
}

#[test]
fn no_more_are_in_flight_than_the_limit_and_all_slots_are_free_in_the_end() {
    under_many_schedules(|| {
        let world = World::new();
        let requests: [(&[usize], usize); 5] =
            [(&[0, 1], 1), (&[1, 0], 2), (&[0], 1), (&[1], 3), (&[0, 1], 1)];
        in_threads(requests.map(|(counters, releases)| {
            let world = Arc::clone(&world);
            move || (0..2).for_each(|_| _ = world.is_in_flight(counters, releases))
        }));
        assert_eq!(world.free(), [LIMIT; 2]);
    });
}

/// A renewal beside the release of the same ticket: whichever is first, nothing is held in the end.
#[test]
fn nothing_is_held_by_a_renewal_beside_a_release() {
    under_many_schedules(|| {
        let world = World::new();
        let (_, _, ticket) = world.decide(&entries(&[0, 1]), Hits::ONE);
        let ticket = ticket.expect("there is room");
        let (renewing, releasing) = (Arc::clone(&world), Arc::clone(&world));
        let (renewed, released) = (ticket.clone(), ticket.clone());
        let renewal = thread::spawn(move || _ = renewing.renew(&[1, 0], &renewed));
        let release = thread::spawn(move || _ = releasing.decide(&[("slot", &released)], Hits::ONE));
        renewal.join().expect("it ends");
        release.join().expect("it ends");
        assert!(!world.renew(&[0, 1], &ticket));
        assert_eq!(world.free(), [LIMIT; 2]);
    });
}

#[test]
fn whoever_waits_has_a_slot_in_the_end_beside_those_who_give_up() {
    under_many_schedules(|| {
        let world = World::new();
        let requests: [(&[usize], bool); 6] =
            [(&[0, 1], false), (&[1, 0], false), (&[0], false), (&[1], true), (&[0, 1], true), (&[1], false)];
        in_threads(requests.map(|(counters, gives_up)| {
            let world = Arc::clone(&world);
            move || (0..2).for_each(|_| world.wait(counters, gives_up))
        }));
        assert_eq!(world.free(), [LIMIT; 2]);
        // No request is left in a queue.
        assert!(world.is_in_flight(&[0, 1], 1));
    });
}
