//! The protocols the server speaks: the RLS API over gRPC, health and reflection beside it, and HTTP.
//!
//! Each protocol decodes bytes to a checked request of [`limit`](tidegate_core::limit), calls the service, and encodes the decision. None
//! decides anything itself.

mod bearer_token;
mod build;
pub(crate) mod channel;
mod client;
pub(crate) mod control;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz_bridge;
pub(crate) mod grpc;
mod health;
pub mod http;
mod leases;
mod port;
pub(crate) mod protobuf_struct;
mod refusals;
mod rlqs;
pub mod rls;
mod routes;
mod test_clock;
pub(crate) mod time;
mod tokens;
mod xds;

pub use build::BUILD;
pub use control::ControlApi;
pub use grpc::LongLivedBounds;
pub use health::Health;
pub use leases::LeasesApi;
pub use port::GrpcPort;
pub use rls::{DETAILED, PRECISION_HEADER, Precision, WINDOWS_HEADER};
pub use routes::{RouteSettings, routes};
pub use test_clock::TestClock;
pub use tokens::{NewToken, TokenName, Tokens, TokensError};
pub use xds::{XdsFeed, XdsSettings};

/// The generated messages and services, in the modules of their protobuf packages.
#[expect(missing_docs, unused_qualifications, clippy::all, reason = "generated; the protos are documented")]
pub mod pb {
    tonic::include_proto!("includes");
    pub use self::kuadrant::service::ratelimit::v1 as kuadrant_v1;
    pub use self::tidegate::{test::v1 as test, v1 as control, v1 as leases};
    pub use envoy::{
        config::core::v3 as core, extensions::common::ratelimit::v3 as common,
        service::discovery::v3 as discovery, service::rate_limit_quota::v3 as quota,
        service::ratelimit::v3 as service, r#type::v3 as types,
    };
    pub use google::rpc;
    pub use grpc::health::v1 as health;
    pub use ratelimit::config::ratelimit::v3 as rules;
    /// The descriptor set that reflection serves.
    pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
    /// Descriptors of leases.
    pub const LEASES_DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/leases_descriptors.bin"));
    /// Descriptors of the control API.
    pub const CONTROL_DESCRIPTORS: &[u8] =
        include_bytes!(concat!(env!("OUT_DIR"), "/control_descriptors.bin"));
}
