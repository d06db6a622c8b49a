//! Tidegate, a rate limit server for Envoy's RLS API, and the library it is built from.
//!
//! Without the default feature `server`, the library decides requests in the caller's process and keeps the counters on
//! disk; it builds without gRPC, HTTP and an async runtime:
//!
//! ```
//! use tidegate::{
//!     clock::{Clock, SystemClock},
//!     limit::{Code, Descriptor, Entry, Hits, Request},
//!     limiter::Limiter,
//!     rules::{LoadOptions, RuleSet, Source},
//!     store::{OnFull, Seed, StoreSettings},
//! };
//!
//! let text = "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 2}}]";
//! let rules = RuleSet::parse(&[Source::file("shop.yaml", text)], &LoadOptions::default())?;
//! let store = StoreSettings { seed: Seed::random()?, counters_max: 100_000, on_full: OnFull::Deny };
//! let (limiter, clock) = (Limiter::new(rules, store, false), SystemClock::new());
//!
//! let mut request = Request::new("shop");
//! let entries = [Entry { key: "user", value: "ann" }].into_iter().collect();
//! request.push(Descriptor { entries, limit: None, hits: Hits::ONE });
//! let codes = [(); 3].map(|()| limiter.pin().decide(&request, clock.now()).code);
//! assert_eq!(codes, [Code::Ok, Code::Ok, Code::OverLimit]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The modules, lowest first; imports point down only (enforced by `tests/it/tidy.rs`):
//!
//! | module | content |
//! |---|---|
//! | [`limit`] | requests, limits and decisions |
//! | [`clock`] | the source of time |
//! | `sync` | locks and atomics, real or modelled |
//! | `prefetch` | hints to the processor |
//! | `varint` | variable-length integers |
//! | [`algorithm`] | the arithmetic of counting |
//! | `key` | keys of counters |
//! | [`rules`] | rule files, the rule tree and matching |
//! | [`store`] | the sharded counters |
//! | [`limiter`] | the decision |
//! | [`snapshot`] | counters on disk |
//! | [`replay`] | logged requests, decided again under other rules |
//!
//! With the feature `server`:
//!
//! | module | content |
//! |---|---|
//! | `shared` | counters in a store that several servers share: exact decisions there, and leases |
//! | `service` | the application that every protocol calls: readiness, clock, limiter, response options, counts |
//! | `config` | the feeds of rules, and the one owner of the rules in force |
//! | `control` | operations on a running server: what it decides now, overrides and blocks, audit |
//! | `http2` | HTTP/2 for unary calls |
//! | `transport` | TCP and Unix sockets, TLS |
//! | `telemetry` | logs and metrics |
//! | `api` | the RLS API over gRPC, and HTTP for operators |
//! | `server` | listeners, workers, background work, drain |
//! | `cli` | the commands |

pub mod algorithm;
#[cfg(feature = "server")]
pub mod api;
#[cfg(feature = "server")]
pub mod cli;
pub mod clock;
#[cfg(feature = "server")]
pub mod config;
#[cfg(feature = "server")]
pub mod console;
#[cfg(feature = "server")]
pub mod control;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz_bridge;
#[cfg(feature = "server")]
pub mod http2;
mod key;
pub mod limit;
pub mod limiter;
mod prefetch;
#[cfg(feature = "server")]
mod priority;
pub mod replay;
pub mod rules;
#[cfg(feature = "server")]
pub mod server;
#[cfg(feature = "server")]
pub mod service;
#[cfg(feature = "server")]
pub mod shared;
pub mod snapshot;
pub mod store;
mod sync;
#[cfg(feature = "server")]
pub mod telemetry;
#[cfg(feature = "server")]
mod transport;
mod varint;
