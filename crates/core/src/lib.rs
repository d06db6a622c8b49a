//! Exact rate limits in the caller's process: rule files, algorithms, sharded counters and all-or-nothing decisions.
//!
//! Nothing here does IO except `rules/files.rs`, which reads rule files, and nothing but [`clock`] reads the time.
//!
//! ```
//! use tidegate_core::{
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
//! The path of a decision: a [`limit::Request`] is classified and planned by [`limiter`], which matches its descriptors against
//! the tree of [`rules`], finds the counters in [`store`] by fingerprints (`key`), and evaluates them by [`algorithm`].
//!
//! The modules, lowest first; imports point down only (enforced by the server's `tests/it/tidy.rs`):
//!
//! | module | content |
//! |---|---|
//! | [`limit`] | requests, limits and decisions |
//! | [`clock`] | the source of time |
//! | [`sync`] | locks and atomics, real or modelled |
//! | [`prefetch`] | hints to the processor |
//! | [`varint`] | variable-length integers |
//! | [`algorithm`] | the arithmetic of counting |
//! | [`key`] | keys of counters |
//! | [`rules`] | rule files, the rule tree and matching |
//! | [`store`] | the sharded counters |
//! | [`limiter`] | the decision |

pub mod algorithm;
pub mod clock;
pub mod key;
pub mod limit;
pub mod limiter;
pub mod prefetch;
pub mod rules;
pub mod store;
pub mod sync;
pub mod varint;
