//! Warnings about values and limits that are valid, and surely do not do what they look like.

use super::declared::DeclaredKey;
use crate::rules::{
    Network,
    networks::usual_spelling,
    regexes::Regex,
    yaml::{Field, Fields, quoted},
};

/// Warns of a value that looks like a network or a regular expression, or is an address in another spelling than that of requests.
///
/// The value of `generic_key` is a text of Envoy's configuration, and that of `masked_remote_address` a network that Envoy writes.
pub(super) fn doubt_value(field: &Field<'_>, key: &DeclaredKey) {
    let Some(text) = field.as_text() else { return };
    let is_key = |of: &str| matches!(key, DeclaredKey::Exact(key) if **key == *of);
    let shown = quoted(text);
    if text.parse::<Network>().is_ok() && !is_key("generic_key") {
        if text.contains('/') && !is_key("masked_remote_address") {
            let message = format!(
                "{shown} is compared as a text, which no address equals; write `value_network: {text}`"
            );
            field.doubt(message);
        } else if let Some(usual) = usual_spelling(text) {
            field.doubt(format!(
                "{shown} is compared as a text, and Envoy writes it as {usual}; write {usual}"
            ));
        }
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
