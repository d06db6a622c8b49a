//! Tidegate, a rate-limit decision server.
//!
//! The modules, from the ground up; imports point down only (`tests/it/tidy.rs` holds it):
//!
//! - [`limit`]: the vocabulary of requests, limits and decisions
//! - [`algorithm`]: the arithmetic of counting
//! - [`rules`]: rule files, the rule tree and matching
//! - [`store`]: the sharded counters
//! - [`limiter`]: the decision
//! - [`grpc`]: the wire and the services
//! - [`server`]: the wiring
//! - [`snapshot`]: keeping the counters across processes
//! - [`telemetry`]: logs
//! - [`cli`]: the commands
//! - [`clock`]: where time comes from

pub mod algorithm;
pub mod cli;
pub mod clock;
pub mod grpc;
pub mod limit;
pub mod limiter;
pub mod rules;
pub mod server;
pub mod snapshot;
pub mod store;
pub mod telemetry;
