//! Names of the marks of give-backs, which the scripts write (`mark.lua`).

/// The key of the mark of a counter. It is in the counter's slot, and exists for two minutes after hits of the counter were given back or
/// reset.
pub fn mark(counter: &str) -> String {
    format!("{counter}:given")
}
