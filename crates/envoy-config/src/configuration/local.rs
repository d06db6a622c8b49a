//! Filters for local limits, which apply `rate_limits` of routes and virtual hosts without a server.

use super::{
    entry::RateLimitEntry,
    manager::{FilterKind, HttpFilter, Manager},
    typed::Typed,
};
use crate::part::Part;

const LOCAL_RATE_LIMIT: &str = "http.local_ratelimit.v3.LocalRateLimit";

impl<'d> Manager<'d> {
    /// Whether a filter for local limits applies an entry of a route or virtual host. The parts may configure filters for the requests: the
    /// most specific first.
    pub(crate) fn limits_locally(&self, entry: &RateLimitEntry<'_>, parts: &[Part<'d>]) -> bool {
        // Entries that runtime can disable are skipped.
        let is_read = entry.level.is_of_routes() && !entry.part.has("disable_key");
        is_read
            && self.filters.iter().filter_map(|filter| local(filter, parts)).any(|own| applies(own, entry))
    }
}

/// Whether a filter with these settings applies entries of this entry's stage: not without descriptors, and not with `rate_limits` of its own.
fn applies(settings: Part<'_>, entry: &RateLimitEntry<'_>) -> bool {
    let is_empty = |name| settings.list(name).next().is_none();
    is_empty("rate_limits")
        && !is_empty("descriptors")
        && settings.number("stage").unwrap_or(0) == entry.stage()
}

/// The settings of a filter for local limits: those of the most specific part, instead of its own.
fn local<'d>(filter: &HttpFilter<'d>, parts: &[Part<'d>]) -> Option<Part<'d>> {
    let FilterKind::Other(message) = filter.kind else { return None };
    let of_parts = || parts.iter().find_map(|part| settings_of(*part, filter.name));
    message.ends_with(LOCAL_RATE_LIMIT).then(|| of_parts().unwrap_or_else(|| filter.settings()))
}

/// What a part sets for the filter of this name, if that is for local limits.
fn settings_of<'d>(part: Part<'d>, filter: &str) -> Option<Part<'d>> {
    let (_, own) = part.get("typed_per_filter_config")?.fields().find(|(name, _)| *name == filter)?;
    let config = if own.message().ends_with(".FilterConfig") { own.get("config")? } else { own };
    let Typed { message, fields } = Typed::of(config);
    message.ends_with(LOCAL_RATE_LIMIT).then_some(fields)
}
