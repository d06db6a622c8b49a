//! What commands print: tables and lines, progress.

pub(super) mod details;
pub(super) mod progress;
pub(super) mod rule_text;
pub(super) mod table;
pub(super) mod yaml;

/// A text of a client, on one line, without control characters that a terminal would obey.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { '\u{fffd}' } else { character }).collect()
}

/// A number of things: `1 bucket`, `2 buckets`.
pub(super) fn counted(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// A text of a client of several lines, without control characters that a terminal would obey.
pub(super) fn plain_lines(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}
