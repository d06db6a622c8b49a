//! What commands print: tables and lines, progress, plots.

pub(super) mod details;
pub(super) mod progress;
pub(super) mod rule_text;
pub mod svg;
pub(super) mod table;
