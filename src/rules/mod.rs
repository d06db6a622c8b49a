//! Rules: YAML in, a tree of compiled rules out, and the way a descriptor takes through it.
//!
//! Invariant: a [`RuleSet`] exists only if every file it came from was good; matching cannot fail, only find nothing.

mod rule;

pub use rule::{Charge, Rule, RuleLimit, Semantics};
