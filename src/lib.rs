//! Tidegate, a rate-limit decision server.
//!
//! The modules, from the ground up; imports point down only (`tests/it/tidy.rs` holds it):
//!
//! | module | what it is |
//! |---|---|
//! | [`limit`] | the vocabulary of requests, limits and decisions |
//! | [`clock`] | where time comes from |
//! | `sync` | locks and atomics, real or modelled |
//! | [`algorithm`] | the arithmetic of counting |
//! | `key` | what a counter is found by |
//! | [`rules`] | rule files, the rule tree and matching |
//! | [`store`] | the sharded counters |
//! | [`limiter`] | the decision |
//! | [`snapshot`] | counters on disk, so that they outlive the process |
//! | `transport` | byte streams: TCP and Unix sockets |
//! | [`http2`] | HTTP/2 for unary calls |
//! | [`telemetry`] | logs and metrics |
//! | [`service`] | the application that every protocol calls: readiness, clock, limiter, response options, counts |
//! | [`api`] | the RLS API over gRPC, and HTTP for operators |
//! | [`server`] | the wiring |
//! | [`cli`] | the commands |

pub mod algorithm;
pub mod api;
pub mod cli;
pub mod clock;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz_bridge;
pub mod http2;
mod key;
pub mod limit;
pub mod limiter;
pub mod rules;
pub mod server;
pub mod service;
pub mod snapshot;
pub mod store;
mod sync;
pub mod telemetry;
mod transport;
