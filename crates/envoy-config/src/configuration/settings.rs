//! Settings of a `ratelimit` filter, with Envoy's defaults.

use super::manager::RateLimitFilter;
use crate::actions::METADATA_NAMESPACE;

impl<'d> RateLimitFilter<'d> {
    /// The namespace of the dynamic metadata that the server adds.
    pub fn metadata_namespace(&self) -> &'d str {
        match self.settings.text("metadata_namespace") {
            "" => METADATA_NAMESPACE,
            own => own,
        }
    }
}
