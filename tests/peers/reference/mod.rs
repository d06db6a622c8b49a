//! Compares decisions, refusals and metrics with those of the reference server, envoyproxy/ratelimit, on a real store.
//!
//! Both servers have the same rules and the same environment variables, and get the same requests, one after another. Rules and requests
//! are random, by seed. The test fails at a difference that `docs/rules-reference.md` does not name.

mod comparison;
mod metrics;
mod process;
mod requests;
mod rules;
mod semantics;

pub use process::is_here;
pub use semantics::tests;
