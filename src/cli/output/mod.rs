//! What commands print: tables and lines, progress.

pub(super) mod details;
pub(super) mod progress;
pub(super) mod rule_text;
pub(super) mod table;
pub(super) mod yaml;
