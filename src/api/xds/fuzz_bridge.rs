//! Fuzz bridge: a resource of a control plane.

use super::resource;
use prost_types::Any;
use tidegate_core::rules::Source;

/// The document of a resource with this value; none if it is refused.
pub fn xds_source(value: &[u8]) -> Option<Source> {
    resource::source(&Any { type_url: resource::TYPE_URL.to_owned(), value: value.to_vec() }).ok()
}
