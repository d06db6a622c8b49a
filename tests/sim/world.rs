//! A world: settings, rules and a trace; and the reduction of a failing trace to a short trace.

use crate::{
    comparison::compare,
    rng::Rng,
    rules::Rules,
    traffic::{self, Event, Step},
};
use std::fmt::Write;

/// Settings of the limiter.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Whether the limiter has reference semantics.
    pub is_reference: bool,
    /// Whether most limits are leaky buckets with a queue.
    pub is_about_queues: bool,
    /// The maximum number of counters.
    pub counters_max: usize,
    /// Whether a request that needs one more counter is denied; otherwise it is admitted uncounted.
    pub denies_when_full: bool,
    /// The maximum number of queued requests.
    pub queued_max: usize,
    /// The kind of world.
    pub kind: Kind,
}

/// Features of a world beside limits and traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// No further features.
    Plain,
    /// Rules are reloaded while decisions are made and snapshots are written.
    Reloads,
    /// Limits have bans and schedules.
    Times,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::Plain, Self::Reloads, Self::Times];
}

impl Settings {
    fn random(rng: &mut Rng) -> Self {
        Self {
            is_reference: rng.once_in(5),
            is_about_queues: rng.once_in(2),
            counters_max: if rng.once_in(3) { rng.between(1, 6) as usize } else { ROOMY },
            denies_when_full: rng.once_in(2),
            queued_max: if rng.once_in(4) { rng.between(0, 3) as usize } else { ROOMY },
            kind: Kind::Plain,
        }
    }

    /// Whether counters may run out.
    pub fn may_fill_up(&self) -> bool {
        self.counters_max < ROOMY
    }
}

/// More counters, and more queued requests, than any trace makes.
const ROOMY: usize = 10_000;

/// Settings, initial rules, and all events.
#[derive(Clone, Debug)]
pub struct World {
    pub settings: Settings,
    pub rules: Rules,
    pub trace: Vec<Step>,
}

impl World {
    /// A world of this kind.
    pub fn random_of(rng: &mut Rng, kind: Kind) -> Self {
        let settings = Settings { kind, ..Settings::random(rng) };
        let rules = Rules::random(rng, settings);
        let trace = traffic::random(rng, settings, &rules);
        Self { settings, rules, trace }
    }

    /// Runs the world. An error describes the first difference, by the shortest trace that was found.
    pub fn check(self) -> Result<(), String> {
        match compare(&self) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.shortest().report()),
        }
    }

    fn differs(&self) -> bool {
        compare(self).is_err()
    }

    /// Removes everything that is not needed for a difference: halves of the trace first, then ever smaller parts, then
    /// single descriptors.
    fn shortest(mut self) -> Self {
        self.trace =
            shortest(self.trace.clone(), |trace| Self { trace: trace.to_vec(), ..self.clone() }.differs());
        for step in 0..self.trace.len() {
            let mut descriptor = 0;
            while let Event::Request { descriptors, max_wait } = &self.trace[step].event
                && descriptor < descriptors.len()
                && descriptors.len() > 1
            {
                let mut without = self.clone();
                let (mut fewer, max_wait) = (descriptors.clone(), *max_wait);
                fewer.remove(descriptor);
                without.trace[step].event = Event::Request { descriptors: fewer, max_wait };
                if without.differs() { self = without } else { descriptor += 1 }
            }
        }
        self
    }

    fn report(&self) -> String {
        let mut text = format!("{:?}\n{}", self.settings, self.rules.yaml());
        for Step { now, event } in &self.trace {
            let _ = match event {
                Event::ChangeRules(rules) => writeln!(text, "{now}: new rules\n{}", rules.yaml()),
                event => writeln!(text, "{now}: {event:?}"),
            };
        }
        match compare(self) {
            Err(difference) => text + &format!("at step {}: {difference}", difference.step),
            Ok(()) => text,
        }
    }
}

/// Removes from a trace the parts that are not needed for a difference: halves of it first, then ever smaller parts.
pub fn shortest<T: Clone>(mut trace: Vec<T>, differs: impl Fn(&[T]) -> bool) -> Vec<T> {
    let mut part = trace.len();
    while part > 0 {
        let mut start = 0;
        while start < trace.len() {
            let mut without = trace.clone();
            without.drain(start..trace.len().min(start + part));
            if differs(&without) { trace = without } else { start += part }
        }
        part /= 2;
    }
    trace
}
