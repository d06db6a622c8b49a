//! A world, and the shortest trace of it that shows what is wrong.

use crate::{
    judge::play,
    rng::Rng,
    rules::Rules,
    traffic::{self, Step, What},
};
use std::fmt::Write;

/// How the limiter is set.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Whether what rules leave open is as in the reference server.
    pub is_reference: bool,
    /// Whether most limits are buckets that hold answers.
    pub is_about_queues: bool,
    /// The most counters.
    pub counters_max: usize,
    /// Whether who needs one more is denied; else it is admitted uncounted.
    pub denies_when_full: bool,
    /// The most requests that wait at once.
    pub waiting_max: usize,
}

impl Settings {
    fn random(rng: &mut Rng) -> Self {
        Self {
            is_reference: rng.once_in(5),
            is_about_queues: rng.once_in(2),
            counters_max: if rng.once_in(3) { rng.between(1, 6) as usize } else { ROOMY },
            denies_when_full: rng.once_in(2),
            waiting_max: if rng.once_in(4) { rng.between(0, 3) as usize } else { ROOMY },
        }
    }

    /// Whether there may be no room for a counter.
    pub fn may_fill_up(&self) -> bool {
        self.counters_max < ROOMY
    }
}

/// More counters, and more who wait, than any trace makes.
const ROOMY: usize = 10_000;

/// How it is set, the rules that it begins with, and all that happens in it.
#[derive(Clone, Debug)]
pub struct World {
    pub settings: Settings,
    pub rules: Rules,
    pub trace: Vec<Step>,
}

impl World {
    pub fn random(rng: &mut Rng) -> Self {
        let settings = Settings::random(rng);
        let rules = Rules::random(rng, settings);
        let trace = traffic::random(rng, settings, &rules);
        Self { settings, rules, trace }
    }

    /// Plays it; tells of the first difference, if there is one, by a trace as short as was found.
    pub fn played(self) -> Result<(), String> {
        match play(&self) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.shortest().told()),
        }
    }

    fn differs(&self) -> bool {
        play(self).is_err()
    }

    /// Leaves out whatever is not needed for a difference: halves of the trace first, then ever smaller parts, then
    /// single descriptors.
    fn shortest(mut self) -> Self {
        let mut part = self.trace.len();
        while part > 0 {
            let mut start = 0;
            while start < self.trace.len() {
                let mut without = self.clone();
                without.trace.drain(start..self.trace.len().min(start + part));
                if without.differs() { self = without } else { start += part }
            }
            part /= 2;
        }
        for step in 0..self.trace.len() {
            let mut descriptor = 0;
            while let What::Ask { asked, patience } = &self.trace[step].what
                && descriptor < asked.len()
                && asked.len() > 1
            {
                let mut without = self.clone();
                let (mut fewer, patience) = (asked.clone(), *patience);
                fewer.remove(descriptor);
                without.trace[step].what = What::Ask { asked: fewer, patience };
                if without.differs() { self = without } else { descriptor += 1 }
            }
        }
        self
    }

    fn told(&self) -> String {
        let mut text = format!("{:?}\n{}", self.settings, self.rules.yaml());
        for Step { now, what } in &self.trace {
            let _ = match what {
                What::ChangeRules(rules) => writeln!(text, "{now}: new rules\n{}", rules.yaml()),
                what => writeln!(text, "{now}: {what:?}"),
            };
        }
        match play(self) {
            Err(difference) => text + &format!("at step {}: {difference}", difference.step),
            Ok(()) => text,
        }
    }
}
