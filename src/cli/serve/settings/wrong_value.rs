//! Errors of values: each names the source (a flag, a variable or another server's variable) and states the value once.

use super::secrets::without_secrets;
use crate::cli::serve::{reference_env, settings::given::variable_of};
use clap::{
    Arg, Command, Error,
    error::{ContextKind, ContextValue, ErrorKind},
};
use std::{collections::BTreeMap, error::Error as _, path::Path};

/// Makes the error of a wrong value name its source; returns any other error as it is.
pub(super) fn with_source(
    error: Error,
    command: &Command,
    args: &[String],
    variables: &BTreeMap<String, String>,
) -> Error {
    let Some(message) = file_without_flag(&error, args).or_else(|| message(&error, command, args, variables))
    else {
        return error;
    };
    Error::raw(ErrorKind::ValueValidation, format!("{message}\n\nFor more information, try '--help'.\n"))
        .with_cmd(command)
}

/// The error for a file without `--rules`, such as `tidegate serve rules.yaml`.
fn file_without_flag(error: &Error, args: &[String]) -> Option<String> {
    let (Some(ContextValue::String(file)), true) =
        (error.get(ContextKind::InvalidArg), error.kind() == ErrorKind::UnknownArgument)
    else {
        return None;
    };
    let is_rules = !file.starts_with('-')
        && (Path::new(file).exists() || file.ends_with(".yaml") || file.ends_with(".yml"));
    let is_serve = args.get(1).is_some_and(|command| command == "serve");
    (is_rules && is_serve).then(|| format!("`{file}` has no flag in front: write --rules {file}"))
}

fn message(
    error: &Error,
    command: &Command,
    args: &[String],
    variables: &BTreeMap<String, String>,
) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    if error.kind() != ErrorKind::ValueValidation {
        return None;
    }
    let (value, argument) = (text(ContextKind::InvalidValue)?, text(ContextKind::InvalidArg)?);
    let flag = argument.split(' ').next().filter(|flag| flag.starts_with("--"))?;
    let source = source_of(flag, value, args, variables);
    let shown = match argument_of(command, flag) {
        Some(arg) => without_secrets(arg, value),
        None => value.to_owned(),
    };
    let reason = error.source()?.to_string().replace(value, &shown);
    let message = if reason.contains(&shown) {
        format!("{source}: {reason}")
    } else {
        format!("invalid value '{shown}' for {source}: {reason}")
    };
    Some(message)
}

/// The argument of that flag, in the command or in one below it.
fn argument_of<'c>(command: &'c Command, flag: &str) -> Option<&'c Arg> {
    let own = command
        .get_arguments()
        .find(|arg| arg.get_long().is_some_and(|name| flag.strip_prefix("--") == Some(name)));
    own.or_else(|| command.get_subcommands().find_map(|command| argument_of(command, flag)))
}

/// The source of the value of a flag.
fn source_of(flag: &str, value: &str, args: &[String], variables: &BTreeMap<String, String>) -> String {
    let with_value = format!("{flag}=");
    if args.iter().any(|arg| arg == flag || arg.starts_with(&with_value)) {
        return flag.to_owned();
    }
    let own = variable_of(flag);
    if variables.get(&own).is_some_and(|text| text.contains(value)) {
        return format!("the variable {own}");
    }
    // A flag can follow from several variables of the reference server, such as HOST and PORT.
    let is_part = |name: &&&str| {
        variables.get(**name).is_some_and(|text| !text.is_empty() && value.contains(text.as_str()))
    };
    match reference_env::READ.iter().filter(is_part).copied().collect::<Vec<_>>().as_slice() {
        [] => flag.to_owned(),
        [name] => format!("the variable {name}"),
        names => format!("the variables {}", names.join(" and ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(flag: &str, value: &str, args: &[&str], variables: &[(&str, &str)]) -> String {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        source_of(flag, value, &args, &variables.collect())
    }

    #[test]
    fn an_error_names_the_variable_that_a_wrong_value_comes_from() {
        assert_eq!(
            source("--listen", "x", &["serve", "--listen", "x"], &[("TIDEGATE_LISTEN", "x")]),
            "--listen"
        );
        assert_eq!(source("--listen", "x", &["serve", "--listen=x"], &[]), "--listen");
        assert_eq!(
            source("--listen", "x", &["serve"], &[("TIDEGATE_LISTEN", "a:1,x")]),
            "the variable TIDEGATE_LISTEN"
        );
        assert_eq!(
            source("--http-listen", "0.0.0.0:x", &["serve"], &[("PORT", "x"), ("HOST", "")]),
            "the variable PORT"
        );
        assert_eq!(source("--listen", "x", &["serve"], &[]), "--listen");
    }
}
