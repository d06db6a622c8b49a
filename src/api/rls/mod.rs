//! `envoy.service.ratelimit.v3`: protobuf messages to requests, decisions to protobuf messages.
//!
//! A malformed message is refused here with INVALID_ARGUMENT and a sentence; the resulting
//! [`Request`](tidegate_core::limit::Request) is not checked again.

mod call;
pub(super) mod decode;
mod encode;
pub(super) mod fast_path;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzz_bridge;
mod kuadrant;
mod response;
mod tonic_service;

pub(super) use call::{CallError, CallResponse, Purpose, call, precision_of, routed_call};
pub use call::{DETAILED, PRECISION_HEADER, WINDOWS_HEADER};
pub use encode::Precision;
pub(super) use kuadrant::KuadrantService;
pub(super) use response::response;
pub(super) use tonic_service::{TonicService, status as status_of};
