//! The arguments of `serve` and the variables, before settings of other sources are added.

use crate::cli::Failure;
use std::{collections::BTreeMap, path::Path};
use tidegate_shared::without_userinfo;

/// The settings that the user gives on the command line and in variables.
pub(in crate::cli) struct Given<'g> {
    /// The arguments after the command.
    pub(in crate::cli) own: &'g [String],
    /// The variables of the process.
    pub(in crate::cli) variables: &'g BTreeMap<String, String>,
}

impl Given<'_> {
    /// Whether the flag is among the arguments.
    fn has_flag(&self, flag: &str) -> bool {
        let with_value = format!("{flag}=");
        self.own.iter().any(|arg| arg == flag || arg.starts_with(&with_value))
    }

    /// Whether a variable sets the flag.
    fn has_variable(&self, flag: &str) -> bool {
        self.variables.get(&variable_of(flag)).is_some_and(|value| !value.is_empty())
    }

    /// Whether either sets it.
    pub(in crate::cli) fn has(&self, flag: &str) -> bool {
        self.has_flag(flag) || self.has_variable(flag)
    }

    /// The flags that follow from another server's variables, less those that the user or a file of settings gives. Images set
    /// TIDEGATE_LISTEN; the other server's variable for the port overrides that.
    pub(in crate::cli) fn without_given(
        &self,
        mut flags: Flags,
        names_port: bool,
        is_in_file: impl Fn(&str) -> bool,
    ) -> Flags {
        flags.retain(|(flag, _)| {
            let is_variable = self.has_variable(flag) && !(*flag == "--listen" && names_port);
            !is_variable && !self.has_flag(flag) && !is_in_file(flag)
        });
        flags
    }
}

/// Flags and their values.
pub(in crate::cli) type Flags = Vec<(&'static str, Option<String>)>;

/// Flags as arguments.
pub(in crate::cli) fn arguments(flags: Flags) -> impl Iterator<Item = String> {
    flags.into_iter().map(|(flag, value)| match value {
        None => flag.to_owned(),
        Some(value) => format!("{flag}={value}"),
    })
}

/// The variables of the process, as another server reads them.
pub(in crate::cli) struct Environment<'v>(pub(in crate::cli) &'v BTreeMap<String, String>);

impl Environment<'_> {
    /// The value; none if it is empty.
    pub(in crate::cli) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Whether any of them has a value.
    pub(in crate::cli) fn has_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.text(name).is_some())
    }

    /// The error of a wrong value.
    pub(in crate::cli) fn wrong(&self, name: &str, remedy: &str) -> Failure {
        // A password is in REDIS_URL.
        let value = without_userinfo(self.text(name).unwrap_or_default());
        Failure(format!("the variable {name} is {value:?}; write {remedy}"))
    }
}

/// The arguments after the name of another server, under which the program is started in containers, or after `serve`; and whether `--env`
/// or TIDEGATE_ENV names the server. None if nothing selects the server.
pub(in crate::cli) struct Selection<'a> {
    pub(in crate::cli) own: &'a [String],
    pub(in crate::cli) is_program: bool,
    pub(in crate::cli) is_chosen: bool,
}

impl<'a> Selection<'a> {
    /// The selection of a server by its program, or by its name in `--env`.
    pub(in crate::cli) fn of(
        args: &'a [String],
        variables: &BTreeMap<String, String>,
        (program, name): (&str, &str),
    ) -> Option<Self> {
        let is = |path: &String| Path::new(path).file_name().is_some_and(|name| name == program);
        let (own, is_program) = match args {
            [first, own @ ..] if is(first) => (own, true),
            // The command of a container whose image has an entry point is its first argument.
            [_, first, own @ ..] if is(first) => (own, true),
            [_, command, own @ ..] if command == "serve" => (own, false),
            _ => return None,
        };
        let is_chosen = own.contains(&format!("--env={name}"))
            || own.windows(2).any(|pair| pair == ["--env", name])
            || variables.get("TIDEGATE_ENV").is_some_and(|value| value == name);
        (is_program || is_chosen).then_some(Self { own, is_program, is_chosen })
    }
}

/// `TIDEGATE_MAX_COUNTERS` of `--max-counters`.
pub(super) fn variable_of(flag: &str) -> String {
    format!("TIDEGATE_{}", flag.trim_start_matches("--").replace('-', "_").to_uppercase())
}
