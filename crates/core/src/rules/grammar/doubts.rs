//! Warnings about values and limits that are valid, and surely do not do what they look like.

use super::declared::DeclaredKey;
use crate::rules::{
    Network,
    regexes::Regex,
    yaml::{Field, Fields, quoted},
};

/// Keys whose values Envoy's configuration states or masks itself: a network among them is a text.
const OF_CONFIGURATION: [&str; 2] = ["masked_remote_address", "generic_key"];

/// Warns of a value that looks like a network or a regular expression.
pub(super) fn doubt_value(field: &Field<'_>, key: &DeclaredKey) {
    let Some(text) = field.as_text() else { return };
    let is_of_configuration = matches!(key, DeclaredKey::Exact(key) if OF_CONFIGURATION.contains(&&**key));
    let shown = quoted(text);
    if text.contains('/') && text.parse::<Network>().is_ok() && !is_of_configuration {
        let message =
            format!("{shown} is compared as a text, which no address equals; write `value_network: {text}`");
        field.doubt(message);
    } else if looks_like_regex(text) && Regex::new(text, false).is_ok() {
        let stars = if text.contains('*') { " in which `*` is any text" } else { "" };
        let message = format!(
            "{shown} is compared as a text{stars}, not as a regular expression; write `value_regex: {text}`"
        );
        field.doubt(message);
    }
}

/// Whether a text has parts that occur in regular expressions, but not in paths, addresses and names.
fn looks_like_regex(text: &str) -> bool {
    const PARTS: [&str; 10] = ["\\d", "\\w", "\\s", "\\.", "\\/", "[0-9", "[a-z", "[A-Z", "[^", "(?"];
    let is_anchored = text.len() > 1 && text.starts_with('^') || text.contains(".*") && text.ends_with('$');
    let is_path = text.starts_with('/') && text.ends_with("/.*");
    is_anchored || is_path || PARTS.iter().any(|part| text.contains(part))
}

/// Warns of a bucket that admits nothing although it is refilled.
pub(super) fn doubt_empty_bucket(size: &Field<'_>, requests: u32) {
    if requests > 0 {
        let message = "a bucket of 0 denies every request; write the largest burst, 1 or more, or 0 in `requests_per_unit` to deny all";
        size.doubt(message);
    }
}

/// Warns of a sliding window of one, by default: at the edge of a window it admits a second hit within a moment of the first.
pub(super) fn doubt_window_of_one(fields: &mut Fields<'_>, limit: u32) {
    if limit == 1
        && fields.take("algorithm").is_none()
        && let Some(field) = fields.take("requests_per_unit")
    {
        let message = "a sliding window of 1 admits two requests within a moment at the edge of a window; write `algorithm: sliding_log`, or \
                       `algorithm: fixed_window` with `aligned: first_hit`";
        field.doubt(message);
    }
}
