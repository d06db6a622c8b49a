//! The responses that a filter makes.

use crate::{
    configuration::RateLimitFilter,
    node::{Node, Problems, from_json},
    schema::RATE_LIMIT_FILTER,
};

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
    /// Those of a filter. A status that is no error counts as not configured, as in Envoy.
    pub fn of(filter: &RateLimitFilter<'_>) -> Self {
        let json = filter.settings.json();
        let problems = Problems::default();
        let node = json
            .as_object()
            .map_or_else(Node::default, |json| from_json(json, &RATE_LIMIT_FILTER, String::new(), &problems));
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
