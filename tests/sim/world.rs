//! A world, and the shortest trace of it that shows what is wrong.

use crate::{
    judge::play,
    rng::Rng,
    rules::Rules,
    traffic::{self, Step, What},
};
use std::fmt::Write;

/// The rules that it begins with, and all that happens in it.
#[derive(Clone, Debug)]
pub struct World {
    pub rules: Rules,
    pub trace: Vec<Step>,
}

impl World {
    pub fn random(rng: &mut Rng) -> Self {
        let rules = Rules::random(rng);
        let trace = traffic::random(rng, &rules);
        Self { rules, trace }
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
            while let What::Ask(asked) = &self.trace[step].what
                && descriptor < asked.len()
                && asked.len() > 1
            {
                let mut without = self.clone();
                let mut fewer = asked.clone();
                fewer.remove(descriptor);
                without.trace[step].what = What::Ask(fewer);
                if without.differs() { self = without } else { descriptor += 1 }
            }
        }
        self
    }

    fn told(&self) -> String {
        let mut text = self.rules.yaml();
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
