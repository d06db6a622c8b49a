//! The integration tests, one binary: the real `tidegate` process, real sockets, real peers.
//!
//! Tests that need more than Rust (Envoy, h2spec, the right to mount) carry `#[ignore = "needs …"]`; run them with
//! `cargo test -- --include-ignored`. See `tests/README.md`.

mod admin;
mod bad_input;
mod bench;
mod clock_changes;
mod commands;
mod deploy;
mod envoy;
mod fast_path;
mod flood;
mod h2spec;
mod health;
mod queue;
mod reflection;
mod response_options;
mod restoring;
mod rules;
mod serve;
mod sliding_log;
mod snapshot_commands;
mod snapshot_faults;
mod snapshot_kill;
mod support;
mod threads;
mod tidy;
mod vectors;
