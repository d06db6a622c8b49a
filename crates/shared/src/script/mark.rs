//! Names of the marks of give-backs, which the scripts write (`mark.lua`).

/// The key of the mark of a counter, which is in the counter's slot: it exists for two minutes after hits were given back to the
/// counter, or it was reset.
pub fn mark(counter: &str) -> String {
    format!("{counter}:given")
}
