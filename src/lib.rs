//! Tidegate, a rate-limit decision server.
//!
//! The modules, from the ground up; imports point down only (`tests/it/tidy.rs` holds it):
//!
//! - [`limit`]: the vocabulary of requests, limits and decisions
//! - [`algorithm`]: the arithmetic of counting
//! - [`rules`]: rule files, the rule tree and matching
//! - [`store`]: the sharded counters
//! - [`clock`]: where time comes from

pub mod algorithm;
pub mod clock;
pub mod limit;
pub mod rules;
pub mod store;
