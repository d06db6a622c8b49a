//! Rules: YAML in, a tree of compiled rules out, and the way a descriptor takes through it.
//!
//! The way of a file: [`read`] fetches it (the only IO here), `yaml` makes a tree of located nodes of it, `grammar`
//! makes declared rules of those, and `tree` compiles the declared rules of each domain into what matching walks.
//!
//! Invariant: a [`RuleSet`] exists only if every file it came from was good; matching cannot fail, only find nothing.

mod error;
mod explain;
mod files;
mod grammar;
mod limits;
mod pattern;
mod rule;
mod set;
mod text_map;
mod tree;
#[cfg(test)]
mod tree_tests;
mod yaml;

pub use error::{Location, Position, RuleError, RuleErrors};
pub use explain::{Explanation, Matched, Outcome, Step};
pub use files::{Source, read};
pub use limits::{LimitIdentity, LimitInfo, LimitTable};
pub use pattern::Pattern;
pub use rule::{Charge, KeyPrefix, Rule, RuleLimit, Semantics};
pub use set::{LoadOptions, RuleSet};
pub use tree::{DomainRules, Found, RuleEntry, RuleValue};

/// The rules that are served when no file is named: domain `demo`, key `api_key`, 5 per 10 s.
pub const DEMO: &str = include_str!("../../examples/demo.yaml");
