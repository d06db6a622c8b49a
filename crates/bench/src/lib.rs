//! The load generator of `tidegate bench`: sends requests in a closed or an open loop to a server of Envoy's RLS API, and measures the
//! responses.
//!
//! It has one thread and no async runtime, so that one core saturates a server on another. Only a response with gRPC status OK and a
//! verdict counts as decided.
//!
//! [`run`] executes a [`Plan`]: [`Keys`] draws the key of each request, [`Template`] encodes it, and [`tidegate_http2::client`] has the
//! connections. A [`Report`] formats what was [`Measured`] as text or JSON, and [`latency_svg`] draws the latencies.

mod call_headers;
mod connect;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzz_bridge;
mod hold;
mod keys;
mod link;
mod load;
mod load_error;
mod message;
mod outcome;
mod pace;
mod plot;
mod report;
mod server_cpu;
pub mod svg;
mod tally;
mod template;
mod ticket;
mod tls;

pub use connect::{ConnectError, Target};
pub use hold::{HoldFigures, HoldPlan, HoldTimes};
pub use keys::{Keys, Zipf};
pub use load::{Measured, Plan, run};
pub use load_error::LoadError;
pub use outcome::{Failure, Outcome};
pub use pace::Length;
pub use plot::latency_svg;
pub use report::{Report, duration, grouped};
pub use server_cpu::{CpuError, ServerProcess};
pub use tally::Tally;
pub use template::{Descriptor, Template};
pub use ticket::ReceivedTicket;
pub use tls::ClientTls;
