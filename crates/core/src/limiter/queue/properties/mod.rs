//! Properties of queues, on random queues and events, beside an oracle that keeps a list of arrivals and computes every release
//! time from its beginning.

use super::*;
use crate::limit::{Code, Descriptor, Entry, Hits, Request, RequestLimits, Reset};
use crate::limiter::{
    Limiter,
    tests::{limiter, shown},
};
use oracle::{Naive, OracleLine, OracleVerdict};
use proptest::prelude::*;
use std::num::NonZeroU64;

mod oracle;

/// 2023-11-15T00:00:00Z: everything happens on this day.
const START: u64 = 1_700_006_400_000_000_000;

/// Hits that the day's counter, which has no queue, admits.
const DAY: u64 = 40;

const KEYS: [&str; 3] = ["first", "second", "day"];

/// An event, after a pause.
#[derive(Clone, Debug)]
enum Event {
    /// A request with these hits for each key; 0 leaves the key out.
    Arrive { hits: [u64; 3], wait_max: Duration },
    /// A queued request is cancelled.
    Cancel(prop::sample::Index),
    /// All requests that are due are released.
    Release,
}

/// The limiter and the oracle, and the requests queued in both.
struct World {
    limiter: Limiter,
    naive: Naive,
    positions: Vec<(usize, QueuePosition)>,
    now: u64,
    /// Time of the event before.
    before: u64,
    /// The time of each response, and the hits of its request in the first queue.
    answers: Vec<(u64, u64)>,
}

fn moment(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

fn request(hits: [u64; 3]) -> Request<'static> {
    let mut request = Request::new("d");
    for (key, hits) in KEYS.iter().zip(hits) {
        if let Some(hits) = NonZeroU64::new(hits) {
            let entries = [Entry { key, value: "x" }].into_iter().collect();
            request.push(Descriptor { entries, limit: None, hits: Hits::Take(hits) });
        }
    }
    request.checked(&RequestLimits::default()).expect("a good request")
}

impl World {
    fn new(lines: [OracleLine; 2]) -> Self {
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
            positions: Vec::new(),
            now: START,
            before: START,
            answers: Vec::new(),
        }
    }

    /// Sends a request to both, and compares their verdicts.
    fn arrive(&mut self, hits: [u64; 3], wait_max: Duration) -> Result<OracleVerdict, TestCaseError> {
        let expected = self.naive.arrive(hits, wait_max, self.now);
        let pinned = self.limiter.pin();
        let verdict = match pinned.decide_or_queue(&request(hits), wait_max, moment(self.now)) {
            QueueDecision::Decided(decision) if decision.code == Code::Ok => OracleVerdict::Now,
            QueueDecision::Waits(_) => unreachable!("no rule has slots"),
            QueueDecision::Decided(_) => OracleVerdict::No,
            QueueDecision::Queued(position) => {
                let Due::At(release) = self.limiter.due(&position) else { panic!("no end is set") };
                self.positions.push((self.naive.newest(), position));
                OracleVerdict::Later(release.as_nanos())
            }
        };
        prop_assert_eq!(verdict, expected);
        if verdict == OracleVerdict::Now {
            self.answers.push((self.now, hits[0]));
        }
        Ok(verdict)
    }

    fn release_time(&self, position: &QueuePosition) -> u64 {
        match self.limiter.due(position) {
            Due::At(release) => release.as_nanos(),
            Due::TooLate => panic!("no end is set"),
        }
    }

    fn release_times(&self) -> Vec<(usize, u64)> {
        self.positions.iter().map(|(number, position)| (*number, self.release_time(position))).collect()
    }

    fn cancel(&mut self, index: usize) {
        let (number, position) = self.positions.remove(index);
        self.limiter.cancel(position, moment(self.now));
        self.naive.cancel(number, self.now);
    }

    /// Releases each at its release time, or now if that has moved to the past.
    fn release_due(&mut self) {
        let (due, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.positions)
            .into_iter()
            .partition(|(_, position)| self.release_time(position) <= self.now);
        self.positions = later;
        for (number, position) in due {
            let at = self.release_time(&position).max(self.before);
            self.answers.push((at, self.naive.hits_in_first(number)));
            self.limiter.release(position);
        }
    }

    fn apply(&mut self, (pause, event): (u64, Event)) -> Result<(), TestCaseError> {
        self.now += pause;
        match event {
            Event::Arrive { hits, wait_max } => _ = self.arrive(hits, wait_max)?,
            Event::Cancel(index) if !self.positions.is_empty() => {
                self.cancel(index.index(self.positions.len()))
            }
            Event::Cancel(_) => {}
            Event::Release => self.release_due(),
        }
        let expected: Vec<_> =
            self.positions.iter().map(|(number, _)| (*number, self.naive.release_time(*number))).collect();
        prop_assert_eq!(self.release_times(), expected);
        Ok(())
    }

    fn after(lines: [OracleLine; 2], events: Vec<(u64, Event)>) -> Result<Self, TestCaseError> {
        let mut world = Self::new(lines);
        events.into_iter().try_for_each(|event| world.apply(event))?;
        Ok(world)
    }

    /// The status of every counter, and every release time.
    fn seen(&self) -> (Vec<String>, Vec<(usize, u64)>) {
        let mut looked = request([1; 3]);
        looked = looked.descriptors().iter().fold(Request::new("d"), |mut peek, descriptor| {
            peek.push(Descriptor { hits: Hits::Peek, ..descriptor.clone() });
            peek
        });
        (shown(&self.limiter.pin().decide(&looked, moment(self.now))), self.release_times())
    }
}

fn line() -> impl Strategy<Value = OracleLine> {
    let wait = prop_oneof![Just(1), Just(800), Just(3_000), Just(60_000)];
    (0..5u32, 1..4u32, prop_oneof![Just(1_000), Just(7)], wait, prop_oneof![1..6u32, Just(50)]).prop_map(
        |(burst, requests, per_millis, wait_millis, hits_max)| OracleLine {
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
    let wait_max = prop_oneof![6 => Just(60_000u64), 2 => 0..3_000u64].prop_map(Duration::from_millis);
    let event = prop_oneof![
        8 => (hits, wait_max).prop_map(|(hits, wait_max)| Event::Arrive { hits, wait_max }),
        3 => any::<prop::sample::Index>().prop_map(Event::Cancel),
        2 => Just(Event::Release),
    ];
    prop::collection::vec((pause, event), 1..40)
}

/// Events of the first queue alone.
fn events_of_one_queue() -> impl Strategy<Value = Vec<(u64, Event)>> {
    events().prop_map(|mut events| {
        for (_, event) in &mut events {
            if let Event::Arrive { hits, .. } = event {
                *hits = [hits[0].max(1), 0, 0];
            }
        }
        events
    })
}

proptest! {
    /// Which requests are admitted, queued until when, or denied, and how release times move.
    #[test]
    fn every_release_time_is_that_of_the_oracle(lines in [line(), line()], events in events()) {
        World::after(lines, events)?;
    }

    /// In any stretch of time, no more hits are released than the burst and those that have leaked meanwhile.
    #[test]
    fn no_request_is_released_too_early(line in line(), events in events_of_one_queue()) {
        let mut world = World::new([line.clone(), line.clone()]);
        for (pause, event) in events {
            world.now += pause;
            world.release_due();
            world.apply((0, event))?;
            world.before = world.now;
            world.release_due();
        }
        world.now += 600_000_000_000;
        world.release_due();
        prop_assert!(world.positions.is_empty());
        world.answers.sort_unstable();
        for (index, &(from, _)) in world.answers.iter().enumerate() {
            let mut hits = 0;
            for &(to, more) in &world.answers[index..] {
                hits += more;
                // Release times are rounded up to whole nanoseconds.
                prop_assert!(line.admits_within(hits, to - from + 1), "{} hits from {} to {}", hits, from, to);
            }
        }
    }

    #[test]
    fn requests_are_released_in_the_order_of_arrival(lines in [line(), line()], events in events_of_one_queue()) {
        let world = World::after(lines, events)?;
        prop_assert!(world.release_times().is_sorted_by(|(one, release), (next, next_release)| one < next && release < next_release));
    }

    #[test]
    fn no_more_requests_are_queued_than_the_bound_and_none_longer(lines in [line(), line()], events in events_of_one_queue()) {
        let mut world = World::new(lines.clone());
        for (pause, event) in events {
            let wait_max = if let Event::Arrive { wait_max, .. } = event { wait_max } else { Duration::MAX };
            let waited = world.positions.len();
            world.apply((pause, event))?;
            if let Some((_, position)) = world.positions.get(waited) {
                let wait = Duration::from_nanos(world.release_time(position) - world.now);
                prop_assert!(wait <= wait_max.min(Duration::from_millis(lines[0].wait_millis)));
            }
            let waiting = world.release_times().into_iter().filter(|(_, release)| *release > world.now);
            prop_assert!(waiting.count() <= lines[0].hits_max as usize);
        }
    }

    #[test]
    fn a_denied_request_changes_nothing(
        lines in [line(), line()], events in events(), hits in [1..6u64, 0..6u64, 0..2u64],
    ) {
        let mut world = World::after(lines, events)?;
        let before = world.seen();
        if world.arrive(hits, Duration::from_secs(60))? == OracleVerdict::No {
            prop_assert_eq!(world.seen(), before);
        }
    }

    /// All of its counters are as before its arrival.
    #[test]
    fn a_request_cancelled_at_once_leaves_no_trace(
        lines in [line(), line()], events in events(), hits in [1..5u64, 0..5u64, 0..2u64],
    ) {
        let mut world = World::after(lines, events)?;
        let before = world.seen();
        if let OracleVerdict::Later(_) = world.arrive(hits, Duration::from_secs(60))? {
            world.cancel(world.positions.len() - 1);
            prop_assert_eq!(world.seen(), before);
        }
    }

    #[test]
    fn cancelling_advances_the_requests_behind_and_no_others(
        lines in [line(), line()], events in events(), who: prop::sample::Index,
    ) {
        let mut world = World::after(lines, events)?;
        if world.positions.is_empty() {
            return Ok(());
        }
        let who = who.index(world.positions.len());
        let mut before = world.release_times();
        before.remove(who);
        world.cancel(who);
        for (index, (earlier, later)) in world.release_times().into_iter().zip(before).enumerate() {
            prop_assert!(earlier <= later && (index >= who || earlier == later));
        }
    }

    /// If no other request arrives and none is cancelled.
    #[test]
    fn the_same_request_is_not_denied_after_the_reset_and_is_a_nanosecond_earlier(
        lines in [line(), line()], events in events_of_one_queue(), hits in 1..5u64, wait_max in 0..5_000u64,
    ) {
        let world = World::after(lines, events)?;
        let wait_max = Duration::from_millis(wait_max);
        let (pinned, wanted) = (world.limiter.pin(), request([hits, 0, 0]));
        let is_denied = |now| match pinned.decide_or_queue(&wanted, wait_max, moment(now)) {
            QueueDecision::Decided(decision) => decision.code == Code::OverLimit,
            QueueDecision::Queued(_) | QueueDecision::Waits(_) => false,
        };
        let QueueDecision::Decided(decision) = pinned.decide_or_queue(&wanted, wait_max, moment(world.now)) else {
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
