//! The responses that a filter makes.

use crate::{configuration::RateLimitFilter, node::Problems, schema::RATE_LIMIT_FILTER};

/// The responses of a filter, by its settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Responses {
    /// The status of a denied request.
    pub denied: u32,
    /// The status of a request that could not be decided; none if it is admitted.
    pub failed: Option<u32>,
    /// Whether responses have `x-ratelimit-limit`, `-remaining` and `-reset`.
    pub x_ratelimit: bool,
    /// Whether denials have `retry-after`.
    pub retry_after: bool,
}

impl Responses {
    /// The responses of a filter. A status that is no error counts as not configured, as in Envoy.
    pub fn of(filter: &RateLimitFilter<'_>) -> Self {
        let node = filter.settings.node(&RATE_LIMIT_FILTER, &Problems::default()).unwrap_or_default();
        let code = |name: &str| node.node(name).map_or(0, |node| node.number_of("code"));
        let status = |name: &str, default: u32, least: u32| {
            Some(code(name)).filter(|code| *code >= least).unwrap_or(default)
        };
        Self {
            denied: status("rate_limited_status", 429, 400),
            failed: node.bool("failure_mode_deny").then(|| status("status_on_error", 500, 1)),
            x_ratelimit: node.number_of("enable_x_ratelimit_headers") == 1,
            retry_after: node.bool("enable_retry_after_header"),
        }
    }
}
