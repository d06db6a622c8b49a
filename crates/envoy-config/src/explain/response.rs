//! The responses that a filter makes.

use crate::{
    configuration::{FailureMode, RateLimitFilter, Runtime, Share},
    node::Problems,
    schema::RATE_LIMIT_FILTER,
};

/// The responses of a filter, by its settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Responses {
    /// The status of a denied request.
    pub denied: u32,
    /// The treatment of requests that could not be decided.
    pub failure: FailureMode,
    /// The status of those that are refused.
    pub failed: u32,
    /// The share of denials that is enforced; other requests are admitted above a limit.
    pub enforced: Share,
    /// Whether responses have `x-ratelimit-limit`, `-remaining` and `-reset`.
    pub x_ratelimit: bool,
    /// Whether denials have `retry-after`.
    pub retry_after: bool,
}

impl Responses {
    /// The responses of a filter. A status that is no error counts as not configured, as in Envoy.
    pub fn of(filter: &RateLimitFilter<'_>, runtime: &Runtime<'_>) -> Self {
        let node = filter.settings.node(&RATE_LIMIT_FILTER, &Problems::default()).unwrap_or_default();
        let code = |name: &str| node.node(name).map_or(0, |node| node.number_of("code"));
        let status = |name: &str, default: u32, least: u32| {
            Some(code(name)).filter(|code| *code >= least).unwrap_or(default)
        };
        Self {
            denied: status("rate_limited_status", 429, 400),
            failure: FailureMode::of(filter.settings),
            enforced: filter.enforced(runtime),
            failed: status("status_on_error", 500, 1),
            x_ratelimit: node.number_of("enable_x_ratelimit_headers") == 1,
            retry_after: node.bool("enable_retry_after_header"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{files::Files, part::Part};
    use tidegate_core::rules::Source;

    /// As in Envoy, where it also replaces the flag.
    #[test]
    fn the_percentage_of_refusals_overrides_the_flag() {
        let of = |text: &str| {
            let files = Files::read(vec![Source::file("f", text)]).unwrap();
            let (source, root) = files.documents().next().unwrap();
            let settings = Part::new(&source.id, root);
            let filter = RateLimitFilter { settings, entries: Vec::new(), is_module: false };
            Responses::of(&filter, &Runtime::default()).failure.to_string()
        };
        let percent = |numerator: u32| {
            format!(
                "failure_mode_deny_percent: {{default_value: {{numerator: {numerator}}}, runtime_key: a.b}}"
            )
        };
        let admitted = "the request is admitted without a limit";
        assert_eq!(of("domain: d"), admitted);
        assert_eq!(of("failure_mode_deny: true"), "the request is refused (failure_mode_deny)");
        assert_eq!(
            of(&format!("{{failure_mode_deny: true, {}}}", percent(0))),
            format!("{admitted} (failure_mode_deny_percent)")
        );
        assert_eq!(of(&percent(100)), "the request is refused (failure_mode_deny_percent)");
        let some = "30 of 100 requests are refused, and the others admitted without a limit (failure_mode_deny_percent)";
        assert_eq!(of(&percent(30)), some);
    }
}
