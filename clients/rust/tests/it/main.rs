//! The client against a real server, beyond the cases of `clients/conformance`.

#![expect(clippy::disallowed_methods, reason = "tests measure real time")]

mod addresses;
mod client;
mod fake;
mod generated;
mod layer;
mod local;
mod package;
#[path = "../support/servers.rs"]
mod servers;
#[cfg(all(feature = "metrics", feature = "opentelemetry"))]
mod telemetry;
#[cfg(feature = "tls")]
mod tls;
mod unanswered;
