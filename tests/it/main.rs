//! Integration tests of the real `tidegate` process over real sockets, one binary. They need Rust alone; tests against
//! Envoy, h2spec and other programs are in `tests/peers`.

mod admin;
mod bad_input;
mod bench;
mod clock_changes;
mod commands;
mod connection_metrics;
mod connections;
mod control;
mod decision_log;
mod deploy;
mod end_reasons;
mod explain;
mod fast_path;
mod flood;
mod health;
mod http_bounds;
mod http_tokens;
mod json;
mod kuadrant;
mod metrics;
mod queue;
mod reference_env;
mod reflection;
mod reload;
mod replay;
mod response_options;
mod restoring;
mod rules;
mod serve;
mod service_manager;
mod sliding_log;
mod snapshot_commands;
mod snapshot_faults;
mod snapshot_kill;
mod statsd;
mod streaming_calls;
#[allow(dead_code, unused_imports, reason = "tests/peers uses the rest")]
mod support;
mod test_modes;
mod threads;
mod tidy;
mod tls;
mod vectors;
mod what_if;
mod xds;
