//! The client against a real server, beyond the cases of `clients/conformance`.

#![expect(clippy::disallowed_methods, reason = "tests measure real time")]

mod addresses;
mod client;
mod fake;
mod generated;
mod layer;
mod package;
#[path = "../support/servers.rs"]
#[expect(dead_code, reason = "tests/conformance uses the rest")]
mod servers;
#[cfg(all(feature = "metrics", feature = "opentelemetry"))]
mod telemetry;
#[cfg(feature = "tls")]
mod tls;
mod unanswered;
