//! `envoy.service.ratelimit.v3`: protobuf messages to requests, decisions to protobuf messages.
//!
//! A malformed message is refused here with INVALID_ARGUMENT and a sentence; the resulting
//! [`Request`](crate::limit::Request) is not checked again.

mod decode;
mod encode;
pub(super) mod fast_path;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz_bridge;
mod response;
mod tonic_service;

pub use encode::Precision;
pub(super) use response::response;
pub use tonic_service::{PRECISION_HEADER, WINDOWS_HEADER};
pub(super) use tonic_service::{TonicService, precision_of};
