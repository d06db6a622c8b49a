//! Rate limits that a Tidegate server decides.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tidegate_client::Tidegate;
//!
//! let client = Tidegate::builder("127.0.0.1:8081").domain("demo").build()?;
//! let decision = client.limit([("api_key", "alice")]).await?;
//! println!("{} {:?} {:?}", decision.allowed, decision.remaining, decision.retry_after);
//! # Ok(())
//! # }
//! ```
//!
//! A denial is a value, not an error. Without a response the policy decides ([`OnFailure`]), and [`Decision::reason`] names
//! it. [`RateLimitLayer`] limits services of tower, axum and tonic by the entries that each [`Key`] reads.

mod breaker;
mod builder;
mod client;
mod decision;
mod denials;
mod dial;
mod failures;
mod fake;
mod keys;
mod layer;
mod local;
mod lru;
mod proto {
    include!("generated/tidegate.client.v1.rs");
}
mod request;
mod response;
mod slot;
mod status;
#[cfg(any(feature = "metrics", feature = "opentelemetry"))]
mod telemetry;
mod transport;

pub use builder::{BuildError, Builder};
pub use client::{Error, OnFailure, Tidegate};
pub use decision::{Decision, Header, Limit, Mode, Reason, Status};
pub use fake::Call;
pub use keys::{Key, Missing, RequestInfo, client_address, forwarded_address};
pub use layer::{HeldBody, RateLimit, RateLimitLayer, RequestSlot, ResponseFuture};
pub use local::LocalLimit;
pub use request::{Descriptor, Request, Unit};
pub use slot::Slot;
