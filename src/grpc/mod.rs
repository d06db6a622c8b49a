//! The wire: protobuf messages to requests, decisions to protobuf messages, and the gRPC services.
//!
//! Generated types stay in here, but for the command line's client side. What is malformed is refused here, with a
//! sentence; what passes is a [`Request`](crate::limit::Request) that nothing checks again.

mod deadline;
mod decode;
mod encode;
mod extras;
mod held;
mod lean;
pub(crate) mod proof;
mod rate_limit;
mod routes;

pub use encode::Precision;
pub use extras::{Extras, PlainHeaders, ResponseHeaders};
pub use lean::Front;
pub(crate) use lean::PREFIX_BYTES;
pub use rate_limit::{PRECISION_HEADER, RateLimit};
pub use routes::{Health, RouteSettings, routes};

/// The generated messages and services, in the modules of their protobuf packages.
#[expect(missing_docs, unused_qualifications, clippy::all, reason = "generated; the protos are documented")]
pub mod pb {
    tonic::include_proto!("includes");
    pub use envoy::{
        config::core::v3 as core, extensions::common::ratelimit::v3 as common,
        service::ratelimit::v3 as service, r#type::v3 as types,
    };
    /// What reflection answers from.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
}
