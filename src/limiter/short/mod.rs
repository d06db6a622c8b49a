//! The short ways, of most requests: hits for descriptors that each reach one plain limit, whose counter is there.
//!
//! [`lone`] takes one descriptor, [`several`] a handful. They decide as the long way would, or not at all. A test sends random requests both ways and compares answers
//! and counters.

mod lone;
mod several;
#[cfg(test)]
mod tests;

pub(super) use lone::decide as lone;
pub(super) use several::decide as several;

use crate::{
    limit::{Code, Reset, Status},
    rules::{Rule, RuleLimit},
};

#[inline]
fn status<'r>(code: Code, rule: &'r Rule, limit: &'r RuleLimit, remaining: u64, reset: Reset) -> Status<'r> {
    // A limit is at most u32::MAX, and so is what remains of it.
    let remaining = u32::try_from(remaining).unwrap_or(u32::MAX);
    Status { code, limit: Some(limit.current()), remaining, reset: Some(reset), rule: Some(&rule.info) }
}
