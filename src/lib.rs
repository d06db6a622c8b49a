//! Tidegate, a rate limit server for Envoy's RLS API.
//!
//! Deciding is the crate [`tidegate_core`], which other programs can embed; `tidegate_http2` is the engine of the gRPC port,
//! `tidegate_snapshot` keeps counters on disk, `tidegate_shared` shares them among servers, and `tidegate_replay` decides logged
//! requests again. [`tidegate_service`] is the application that every protocol calls, [`tidegate_operations`] its rules, telemetry and
//! control, and [`tidegate_transport`] accepts connections. This crate is the server around them: its protocols, wiring and command line.
//!
//! The modules, lowest first; imports point down only (enforced by `tests/it/tidy/`):
//!
//! | module | content |
//! |---|---|
//! | [`api`] | the RLS API over gRPC, the control API, and HTTP for operators |
//! | [`console`] | the pages of the console |
//! | [`server`] | listeners, workers, background work, drain |
//! | [`cli`] | the commands |

pub mod api;
pub mod cli;
pub mod console;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz_bridge;
pub mod server;
