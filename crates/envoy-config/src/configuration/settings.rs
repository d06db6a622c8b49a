//! Settings of a `ratelimit` filter, with Envoy's defaults.

use super::{manager::RateLimitFilter, runtime::Runtime, share::Share};
use crate::{actions::METADATA_NAMESPACE, part::Part};
use std::fmt;

impl<'d> RateLimitFilter<'d> {
    /// The namespace of the dynamic metadata that the server adds.
    pub fn metadata_namespace(&self) -> &'d str {
        match self.settings.text("metadata_namespace") {
            "" => METADATA_NAMESPACE,
            own => own,
        }
    }

    /// The share of requests that it limits.
    pub(crate) fn enabled(&self, runtime: &Runtime<'_>) -> Share {
        self.share(runtime, "filter_enabled", "ratelimit.http_filter_enabled")
    }

    /// The share of denials that it enforces.
    pub(crate) fn enforced(&self, runtime: &Runtime<'_>) -> Share {
        self.share(runtime, "filter_enforced", "ratelimit.http_filter_enforcing")
    }

    /// A setting that runtime may replace, under the key of the setting or the default key.
    fn share(&self, runtime: &Runtime<'_>, setting: &str, default_key: &str) -> Share {
        let percent = self.settings.get(setting);
        let key = percent.map_or(default_key, |percent| percent.text("runtime_key"));
        let of_runtime = runtime.share(key).map(|(_, share)| share);
        of_runtime.unwrap_or_else(|| percent.map_or(Share::ALL, Share::of_default))
    }
}

/// The treatment of requests that could not be decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailureMode {
    /// The share that is refused; the others are admitted.
    pub refused: Share,
    /// Whether `failure_mode_deny_percent` determines it, which overrides `failure_mode_deny`.
    pub has_percent: bool,
}

/// `the request is refused (failure_mode_deny)`.
impl fmt::Display for FailureMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { refused, has_percent } = self;
        match (refused.is_all(), refused.is_none()) {
            (true, _) => f.write_str("the request is refused")?,
            (_, true) => f.write_str("the request is admitted without a limit")?,
            _ => write!(f, "{refused} requests are refused, and the others admitted without a limit")?,
        }
        match has_percent {
            true => f.write_str(" (failure_mode_deny_percent)"),
            false if refused.is_all() => f.write_str(" (failure_mode_deny)"),
            false => Ok(()),
        }
    }
}

impl FailureMode {
    /// The treatment by the settings of a filter.
    pub(crate) fn of(settings: Part<'_>) -> Self {
        let percent = settings.get("failure_mode_deny_percent").map(Share::of_default);
        let flag = if settings.flag("failure_mode_deny") { Share::ALL } else { Share::NONE };
        Self { refused: percent.unwrap_or(flag), has_percent: percent.is_some() }
    }
}
