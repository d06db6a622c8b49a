//! Protobuf types, generated from `proto/`.
#![allow(dead_code, missing_docs, unused_qualifications, clippy::all, reason = "generated")]

tonic::include_proto!("includes");
pub(crate) use envoy::service::ratelimit::v3::*;
