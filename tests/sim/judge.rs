//! A trace played to the limiter and to the naive decision, every answer compared.

use crate::{naive::Naive, server::Server, world::World};
use std::fmt;

/// Where the two first differed.
pub struct Difference {
    /// Index of the step.
    pub step: usize,
    expected: String,
    found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}\nfound {}", self.expected, self.found)
    }
}

/// Plays the trace; the first difference, if there is one.
pub fn play(world: &World) -> Result<(), Difference> {
    let mut naive = Naive::new(world.settings, world.rules.clone());
    let mut server = Server::start(world.settings, &world.rules);
    for (index, step) in world.trace.iter().enumerate() {
        let differs = |expected: String, found| Err(Difference { step: index, expected, found });
        let (expected, answered) = (naive.play(step), server.play(step));
        if answered != expected {
            return differs(format!("{expected:?}"), format!("{answered:?}"));
        }
        let (expected, found) = (naive.counters(), server.counters());
        if found != expected {
            return differs(format!("{expected} counters"), format!("{found}"));
        }
        let (expected, found) = (naive.waits(step.now), server.waits(step.now));
        if found.as_ref() != Ok(&expected) {
            return differs(format!("waits {expected:?}"), format!("{found:?}"));
        }
    }
    Ok(())
}
