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
//! | [`http2`] | HTTP/2 for unary calls |
//! | [`grpc`] | the wire and the services |
//! | [`telemetry`] | logs and metrics |
//! | [`http`] | the port for those who watch |
//! | [`server`] | the wiring |
//! | [`cli`] | the commands |

pub mod algorithm;
pub mod cli;
pub mod clock;
pub mod grpc;
pub mod http;
pub mod http2;
mod key;
pub mod limit;
pub mod limiter;
#[doc(hidden)]
pub mod proof;
pub mod rules;
pub mod server;
pub mod snapshot;
pub mod store;
mod sync;
pub mod telemetry;
