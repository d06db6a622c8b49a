//! Random requests, ends and cancellations beside a list of those that wait: slots go to the first request in the list.

use super::{Outcome, World, world};
use proptest::prelude::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// A request of this many hits for a user, and perhaps one for a route.
    Arrive {
        user: u64,
        hits: u64,
        with_route: bool,
    },
    /// The end of one of the requests admitted last.
    Release {
        back: usize,
    },
    Cancel {
        index: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..2u64, 1..3u64, prop::bool::weighted(0.3))
            .prop_map(|(user, hits, with_route)| Step::Arrive { user, hits, with_route }),
        4 => (0..5usize).prop_map(|back| Step::Release { back }),
        1 => (0..5usize).prop_map(|index| Step::Cancel { index }),
    ]
}

/// A request of the oracle.
#[derive(Clone, Debug)]
struct Naive {
    name: usize,
    user: u64,
    hits: u64,
    with_route: bool,
    arrived: u64,
    deadline: u64,
    ticket: String,
}

/// Requests that hold slots, and those that wait, in the order of arrival.
#[derive(Default)]
struct Oracle {
    holding: Vec<Naive>,
    waiting: Vec<Naive>,
}

impl Oracle {
    /// Moves the decided requests, and checks them and those that still wait.
    fn check(&mut self, world: &mut World, now: u64) -> Result<(), TestCaseError> {
        let Self { holding, waiting } = self;
        holding.retain(|one| one.deadline > now);
        for (name, outcome) in world.decided.drain(..) {
            let Some(index) = waiting.iter().position(|one| one.name == name) else { continue };
            let one = waiting.remove(index);
            if let Outcome::Admitted(ticket) = outcome {
                let same = |other: &&Naive| other.user == one.user && other.with_route == one.with_route;
                let earlier = waiting.iter().filter(same).find(|other| other.name < one.name);
                prop_assert!(earlier.is_none(), "{:?} before {:?}", one, earlier);
                holding.push(Naive { deadline: now + 10_000, ticket, ..one });
            } else {
                let of_user = waiting.iter().filter(|other| other.user == one.user);
                let in_line: u64 = of_user.map(|other| other.hits).sum();
                let routes = waiting.iter().filter(|other| other.with_route).count() as u64;
                let is_full = in_line + one.hits > 4 || routes + 1 > 4;
                prop_assert!(now - one.arrived >= 1_000 || is_full, "{:?} is denied early", one);
            }
        }
        let used = |user: u64| holding.iter().filter(|one| one.user == user).map(|one| one.hits).sum::<u64>();
        let routes = holding.iter().filter(|one| one.with_route).count();
        prop_assert!(used(0) <= 2 && used(1) <= 2 && routes <= 1, "too many in flight: {:?}", holding);
        for (index, one) in waiting.iter().enumerate() {
            prop_assert!(now - one.arrived < 1_000, "{:?} waits for too long", one);
            let has_no_room = used(one.user) + one.hits > 2 || one.with_route && routes == 1;
            let mut before = waiting[..index].iter();
            let is_behind = before.any(|other| other.user == one.user || one.with_route && other.with_route);
            prop_assert!(has_no_room || is_behind, "{:?} waits while there is room: {:?}", one, holding);
        }
        Ok(())
    }
}

proptest! {
    /// Against lists of requests that hold slots and that wait: none is admitted beyond a limit or before an earlier request for the same
    /// counters. A request waits only until it is due, and only if a limit has no room for it or an earlier request of the limit waits.
    #[test]
    fn slots_go_to_the_first_that_waits_and_none_stays_free_for_no_reason(
        steps in prop::collection::vec((prop_oneof![3 => 0..50u64, 1 => 0..3_000u64], step()), 1..80),
    ) {
        let (mut world, mut oracle, mut now) = (world(), Oracle::default(), 0);
        for (name, (after, step)) in steps.into_iter().enumerate() {
            let next = now + after;
            // Each timer at its time.
            while let Some(due) = world.next_due().filter(|due| *due < next) {
                world.settle(due);
                oracle.check(&mut world, due)?;
            }
            now = next;
            world.settle(now);
            oracle.check(&mut world, now)?;
            match step {
                Step::Arrive { user, hits, with_route } => {
                    let text = format!("user={user} +{hits}{}", if with_route { "; route=r" } else { "" });
                    let arrival = Naive {
                        name, user, hits, with_route, arrived: now, deadline: 0, ticket: String::new(),
                    };
                    oracle.waiting.push(arrival);
                    world.arrive(name, &text, now);
                    world.settle(now);
                }
                Step::Release { back } => {
                    if let Some(index) = oracle.holding.len().checked_sub(back + 1) {
                        let ended = oracle.holding.remove(index);
                        world.release(&ended.ticket, now);
                    }
                }
                Step::Cancel { index } => {
                    if index < oracle.waiting.len() {
                        let name = oracle.waiting.remove(index).name;
                        world.cancel(name, now);
                    }
                }
            }
            oracle.check(&mut world, now)?;
        }
        world.settle(now + 20_000);
        prop_assert_eq!(world.limiter.queued(), 0);
    }
}
