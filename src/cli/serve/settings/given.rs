//! The arguments of `serve` and the variables, before settings of other sources are added.

use std::collections::BTreeMap;

/// What the user gives on the command line and in variables.
pub(in crate::cli) struct Given<'g> {
    /// The arguments after the command.
    pub(in crate::cli) own: &'g [String],
    /// The variables of the process.
    pub(in crate::cli) variables: &'g BTreeMap<String, String>,
}

impl Given<'_> {
    /// Whether the flag is among the arguments.
    pub(in crate::cli) fn has_flag(&self, flag: &str) -> bool {
        let with_value = format!("{flag}=");
        self.own.iter().any(|arg| arg == flag || arg.starts_with(&with_value))
    }

    /// Whether a variable sets the flag.
    pub(in crate::cli) fn has_variable(&self, flag: &str) -> bool {
        self.variables.get(&variable_of(flag)).is_some_and(|value| !value.is_empty())
    }

    /// Whether either sets it.
    pub(super) fn has(&self, flag: &str) -> bool {
        self.has_flag(flag) || self.has_variable(flag)
    }
}

/// `TIDEGATE_MAX_COUNTERS` of `--max-counters`.
pub(super) fn variable_of(flag: &str) -> String {
    format!("TIDEGATE_{}", flag.trim_start_matches("--").replace('-', "_").to_uppercase())
}
