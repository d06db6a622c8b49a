//! Comparison of the limiter with the naive limiter: both run the same trace, and every result must be equal.

use crate::{naive::Naive, server::Server, world::World};
use std::fmt;

/// The first difference between the two.
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

/// Runs the trace on both. Returns the first difference as an error.
pub fn compare(world: &World) -> Result<(), Difference> {
    let mut naive = Naive::new(world.settings, world.rules.clone());
    let mut server = Server::start(world.settings, &world.rules);
    for (index, step) in world.trace.iter().enumerate() {
        let differs = |expected: String, found| Err(Difference { step: index, expected, found });
        let (expected, found) = (naive.play(step), server.play(step));
        let is_met = expected.iter().zip(&found).all(|(expected, found)| expected.is_met_by(found));
        if !is_met || expected.len() != found.len() {
            return differs(format!("{expected:?}"), format!("{found:?}"));
        }
        let (expected, found) = (naive.counters(), server.counters());
        if found != expected {
            return differs(format!("{expected} counters"), format!("{found}"));
        }
        let (expected, found) = (naive.remaining_waits(step.end()), server.remaining_waits(step.end()));
        if found.as_ref() != Ok(&expected) {
            return differs(format!("waits {expected:?}"), format!("{found:?}"));
        }
    }
    Ok(())
}
