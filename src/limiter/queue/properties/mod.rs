//! What is promised to those who wait, tried on random queues and random comings and goings, beside an oracle that keeps a
//! list of who came and works every turn out from its beginning.

use super::*;
use crate::limit::{Code, Descriptor, Entry, Hits, Request, RequestLimits, Reset};
use crate::limiter::{
    Limiter,
    tests::{limiter, shown},
};
use oracle::{Ask, Line, Naive};
use proptest::prelude::*;
use std::num::NonZeroU64;

mod oracle;

/// 2023-11-15T00:00:00Z: everything happens on this day.
const START: u64 = 1_700_006_400_000_000_000;

/// Hits that the day's counter, which has no queue, admits.
const DAY: u64 = 40;

const KEYS: [&str; 3] = ["first", "second", "day"];

/// Something that happens, after a pause.
#[derive(Clone, Debug)]
enum Event {
    /// A request with so many hits of each key; none asks for nothing.
    Come { hits: [u64; 3], patience: Duration },
    /// One of those who wait gives up.
    GiveUp(prop::sample::Index),
    /// All whose turn has come are answered.
    Answer,
}

/// The limiter and the oracle, and those who wait in both.
struct World {
    limiter: Limiter,
    naive: Naive,
    tickets: Vec<(usize, Ticket)>,
    now: u64,
    /// When something happened last.
    before: u64,
    /// When each request was answered, and with how many hits of the first queue.
    answers: Vec<(u64, u64)>,
}

fn moment(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn ask(hits: [u64; 3]) -> Request<'static> {
    let mut asked = Request::new("d");
    for (key, hits) in KEYS.iter().zip(hits) {
        if let Some(hits) = NonZeroU64::new(hits) {
            let entries = [Entry { key, value: "x" }].into_iter().collect();
            asked.push(Descriptor { entries, limit: None, hits: Hits::Take(hits) });
        }
    }
    asked.checked(&RequestLimits::default()).expect("a good request")
}

impl World {
    fn new(lines: [Line; 2]) -> Self {
        let rules = format!(
            "domain: d\ndescriptors:\n- {{key: first, rate_limit: {}}}\n- {{key: second, rate_limit: {}}}\n\
             - {{key: day, rate_limit: {{unit: day, requests_per_unit: {DAY}, algorithm: fixed_window}}}}",
            lines[0].yaml(),
            lines[1].yaml(),
        );
        let naive = Naive::new(lines, DAY);
        Self {
            limiter: limiter(&rules),
            naive,
            tickets: Vec::new(),
            now: START,
            before: START,
            answers: Vec::new(),
        }
    }

    /// Comes to both; what the limiter says, which is what the oracle says.
    fn come(&mut self, hits: [u64; 3], patience: Duration) -> Result<Ask, TestCaseError> {
        let expected = self.naive.come(hits, patience, self.now);
        let pinned = self.limiter.pin();
        let said = match pinned.decide_or_queue(&ask(hits), patience, moment(self.now)) {
            Verdict::Decided(decision) if decision.code == Code::Ok => Ask::Now,
            Verdict::Decided(_) => Ask::No,
            Verdict::Queued(ticket) => {
                let Due::At(turn) = self.limiter.due(&ticket) else { panic!("no end is set") };
                self.tickets.push((self.naive.newest(), ticket));
                Ask::Later(turn.as_nanos())
            }
        };
        prop_assert_eq!(said, expected);
        if said == Ask::Now {
            self.answers.push((self.now, hits[0]));
        }
        Ok(said)
    }

    fn turn(&self, ticket: &Ticket) -> u64 {
        match self.limiter.due(ticket) {
            Due::At(turn) => turn.as_nanos(),
            Due::TooLate => panic!("no end is set"),
        }
    }

    fn turns(&self) -> Vec<(usize, u64)> {
        self.tickets.iter().map(|(number, ticket)| (*number, self.turn(ticket))).collect()
    }

    fn give_up(&mut self, index: usize) {
        let (number, ticket) = self.tickets.remove(index);
        self.limiter.cancel(ticket, moment(self.now));
        self.naive.give_up(number, self.now);
    }

    /// Answers each at its turn, or when it was moved up so far that its turn is over.
    fn answer(&mut self) {
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.tickets)
            .into_iter()
            .partition(|(_, ticket)| self.turn(ticket) <= self.now);
        self.tickets = later;
        for (number, ticket) in due {
            let at = self.turn(&ticket).max(self.before);
            self.answers.push((at, self.naive.hits_in_first(number)));
            self.limiter.release(ticket);
        }
    }

    fn apply(&mut self, (pause, event): (u64, Event)) -> Result<(), TestCaseError> {
        self.now += pause;
        match event {
            Event::Come { hits, patience } => _ = self.come(hits, patience)?,
            Event::GiveUp(index) if !self.tickets.is_empty() => self.give_up(index.index(self.tickets.len())),
            Event::GiveUp(_) => {}
            Event::Answer => self.answer(),
        }
        let expected: Vec<_> =
            self.tickets.iter().map(|(number, _)| (*number, self.naive.turn(*number))).collect();
        prop_assert_eq!(self.turns(), expected);
        Ok(())
    }

    fn after(lines: [Line; 2], events: Vec<(u64, Event)>) -> Result<Self, TestCaseError> {
        let mut world = Self::new(lines);
        events.into_iter().try_for_each(|event| world.apply(event))?;
        Ok(world)
    }

    /// What a look at every counter says, and every turn.
    fn seen(&self) -> (Vec<String>, Vec<(usize, u64)>) {
        let mut looked = ask([1; 3]);
        looked = looked.descriptors().iter().fold(Request::new("d"), |mut peek, descriptor| {
            peek.push(Descriptor { hits: Hits::Peek, ..descriptor.clone() });
            peek
        });
        (shown(&self.limiter.pin().decide(&looked, moment(self.now))), self.turns())
    }
}

fn line() -> impl Strategy<Value = Line> {
    let wait = prop_oneof![Just(1), Just(800), Just(3_000), Just(60_000)];
    (0..5u32, 1..4u32, prop_oneof![Just(1_000), Just(7)], wait, prop_oneof![1..6u32, Just(50)]).prop_map(
        |(burst, requests, per_millis, wait_millis, hits_max)| Line {
            burst,
            requests,
            per_millis,
            wait_millis,
            hits_max,
            entries: Vec::new(),
        },
    )
}

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let pause = prop_oneof![
        4 => Just(0u64), 2 => Just(1), 2 => 0..10_000_000u64, 4 => 0..1_000_000_000u64, 1 => 0..9_000_000_000u64
    ];
    let hits = prop_oneof![
        6 => (1..4u64).prop_map(|hits| [hits, 0, 0]),
        2 => (1..3u64, 1..3u64).prop_map(|(first, second)| [first, second, 0]),
        2 => (0..2u64, 1..3u64).prop_map(|(first, second)| [first, second, 1]),
    ];
    let patience = prop_oneof![6 => Just(60_000u64), 2 => 0..3_000u64].prop_map(Duration::from_millis);
    let event = prop_oneof![
        8 => (hits, patience).prop_map(|(hits, patience)| Event::Come { hits, patience }),
        3 => any::<prop::sample::Index>().prop_map(Event::GiveUp),
        2 => Just(Event::Answer),
    ];
    prop::collection::vec((pause, event), 1..40)
}

/// Comings to the first queue alone, and goings.
fn events_of_one_queue() -> impl Strategy<Value = Vec<(u64, Event)>> {
    events().prop_map(|mut events| {
        for (_, event) in &mut events {
            if let Event::Come { hits, .. } = event {
                *hits = [hits[0].max(1), 0, 0];
            }
        }
        events
    })
}

proptest! {
    /// Who is let through, who waits for which turn, who is denied, and how turns move.
    #[test]
    fn every_turn_is_the_oracles(lines in [line(), line()], events in events()) {
        World::after(lines, events)?;
    }

    /// In any stretch of time, no more hits are answered than fit at once and have leaked meanwhile.
    #[test]
    fn nobody_is_answered_before_its_turn(line in line(), events in events_of_one_queue()) {
        let mut world = World::new([line.clone(), line.clone()]);
        for (pause, event) in events {
            world.now += pause;
            world.answer();
            world.apply((0, event))?;
            world.before = world.now;
            world.answer();
        }
        world.now += 600_000_000_000;
        world.answer();
        prop_assert!(world.tickets.is_empty());
        world.answers.sort_unstable();
        for (index, &(from, _)) in world.answers.iter().enumerate() {
            let mut hits = 0;
            for &(to, more) in &world.answers[index..] {
                hits += more;
                // A turn that is no whole nanosecond comes up to one later.
                prop_assert!(line.lets_through(hits, to - from + 1), "{} hits from {} to {}", hits, from, to);
            }
        }
    }

    #[test]
    fn who_comes_first_is_served_first(lines in [line(), line()], events in events_of_one_queue()) {
        let world = World::after(lines, events)?;
        prop_assert!(world.turns().is_sorted_by(|(one, turn), (next, next_turn)| one < next && turn < next_turn));
    }

    #[test]
    fn no_more_wait_than_may_and_nobody_longer(lines in [line(), line()], events in events_of_one_queue()) {
        let mut world = World::new(lines.clone());
        for (pause, event) in events {
            let patience = if let Event::Come { patience, .. } = event { patience } else { Duration::MAX };
            let waited = world.tickets.len();
            world.apply((pause, event))?;
            if let Some((_, ticket)) = world.tickets.get(waited) {
                let wait = Duration::from_nanos(world.turn(ticket) - world.now);
                prop_assert!(wait <= patience.min(Duration::from_millis(lines[0].wait_millis)));
            }
            let waiting = world.turns().into_iter().filter(|(_, turn)| *turn > world.now);
            prop_assert!(waiting.count() <= lines[0].hits_max as usize);
        }
    }

    #[test]
    fn a_denied_request_changes_nothing(
        lines in [line(), line()], events in events(), hits in [1..6u64, 0..6u64, 0..2u64],
    ) {
        let mut world = World::after(lines, events)?;
        let before = world.seen();
        if world.come(hits, Duration::from_secs(60))? == Ask::No {
            prop_assert_eq!(world.seen(), before);
        }
    }

    /// Whichever of its counters it had to wait for: all of them are as if it had never come.
    #[test]
    fn who_gives_up_at_once_was_never_there(
        lines in [line(), line()], events in events(), hits in [1..5u64, 0..5u64, 0..2u64],
    ) {
        let mut world = World::after(lines, events)?;
        let before = world.seen();
        if let Ask::Later(_) = world.come(hits, Duration::from_secs(60))? {
            world.give_up(world.tickets.len() - 1);
            prop_assert_eq!(world.seen(), before);
        }
    }

    #[test]
    fn giving_up_moves_those_behind_earlier_and_nobody_else(
        lines in [line(), line()], events in events(), who: prop::sample::Index,
    ) {
        let mut world = World::after(lines, events)?;
        if world.tickets.is_empty() {
            return Ok(());
        }
        let who = who.index(world.tickets.len());
        let mut before = world.turns();
        before.remove(who);
        world.give_up(who);
        for (index, (earlier, later)) in world.turns().into_iter().zip(before).enumerate() {
            prop_assert!(earlier <= later && (index >= who || earlier == later));
        }
    }

    /// If nothing else comes and nobody gives up.
    #[test]
    fn who_comes_again_after_the_told_reset_is_not_denied_and_a_nanosecond_earlier_is(
        lines in [line(), line()], events in events_of_one_queue(), hits in 1..5u64, patience in 0..5_000u64,
    ) {
        let world = World::after(lines, events)?;
        let patience = Duration::from_millis(patience);
        let (pinned, asked) = (world.limiter.pin(), ask([hits, 0, 0]));
        let is_denied = |now| match pinned.decide_or_queue(&asked, patience, moment(now)) {
            Verdict::Decided(decision) => decision.code == Code::OverLimit,
            Verdict::Queued(_) => false,
        };
        let Verdict::Decided(decision) = pinned.decide_or_queue(&asked, patience, moment(world.now)) else {
            return Ok(());
        };
        prop_assume!(decision.code == Code::OverLimit);
        match decision.statuses[0].reset {
            Some(Reset::After(wait)) => {
                let then = world.now + u64::try_from(wait.as_nanos()).unwrap();
                prop_assert!(is_denied(then - 1));
                prop_assert!(!is_denied(then));
            }
            Some(Reset::Never) => prop_assert!(is_denied(START + 80_000_000_000_000)),
            None => prop_assert!(false, "a limit has a reset"),
        }
    }
}
