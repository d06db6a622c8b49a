//! Fuzz bridge: JSON and resources of callers.

pub use super::{
    control::fuzz_bridge::{CONTROL_METHODS, control_json},
    http::fuzz_bridge::rate_limit_json,
    xds::fuzz_bridge::xds_source,
};
