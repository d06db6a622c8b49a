//! Tidegate in Envoy's own process: an HTTP filter that takes the configuration of Envoy's `ratelimit` filter and decides by rules and
//! counters in this process, or by credits that a server grants.
//!
//! The path of a request: hooks call `filter`; the crate `tidegate-envoy-config` makes descriptors of the `stream` by `settings`; `limits`
//! decides them by a limiter that all workers and listeners share, or `leased` by credits of a server's counters; `response` turns the
//! decision into headers or a response.
//!
//! Invariants:
//!
//! - A configuration that loads is decided as Envoy's filter with a Tidegate server would decide it: whatever a module cannot do is
//!   refused.
//! - No hook waits: a decision has no IO. Envoy holds a request that a server has to decide, and resumes it on its worker.
//! - Figures are counted in atomics and published by a thread of the module, at most once a second.

#[cfg(test)]
mod fake;
mod filter;
mod leased;
mod limits;
mod logged;
mod metrics;
mod protobuf;
mod renewals;
mod response;
#[cfg(test)]
#[path = "../../../tests/sim/rng.rs"]
#[allow(dead_code, reason = "the simulation of the server uses the rest")]
mod rng;
mod settings;
mod status;
#[cfg(test)]
mod tests;

use tidegate_envoy_abi::export_module;

export_module!(filter::RateLimit);
