//! Tidegate, a rate limit server for Envoy's RLS API.
//!
//! Deciding is the crate [`tidegate_core`], which other programs can embed; `tidegate_http2` is the engine of the gRPC port,
//! `tidegate_snapshot` keeps counters on disk, `tidegate_shared` shares them among servers, and `tidegate_replay` decides logged
//! requests again. This crate is the server around them, and its command line.
//!
//! The modules, lowest first; imports point down only (enforced by `tests/it/tidy.rs`):
//!
//! | module | content |
//! |---|---|
//! | `priority` | lower priority of background threads |
//! | [`service`] | the application that every protocol calls: readiness, clock, limiter, response options, counts |
//! | [`config`] | the feeds of rules, and the one owner of the rules in force |
//! | `transport` | TCP and Unix sockets, TLS |
//! | [`telemetry`] | logs, metrics and traces |
//! | [`control`] | operations on a running server: what it decides now, overrides and blocks, audit |
//! | [`api`] | the RLS API over gRPC, the control API, and HTTP for operators |
//! | [`console`] | the pages of the console |
//! | [`server`] | listeners, workers, background work, drain |
//! | [`cli`] | the commands |

pub mod api;
pub mod cli;
pub mod config;
pub mod console;
pub mod control;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz_bridge;
mod priority;
pub mod server;
pub mod service;
pub mod telemetry;
mod transport;
