//! Where the settings of `serve` come from: flags, over variables, over the file of `--config`, over the variables of the
//! reference server where those are read.
//!
//! A setting of the file becomes a flag in front of the arguments, unless a flag or a variable sets it. An empty variable
//! counts as unset: Compose's `${X:-}` makes one.

mod effective;
mod file;
mod given;
mod secrets;
#[cfg(test)]
mod tests;
mod urls;
mod variables;
mod wrong_value;

pub(in crate::cli) use effective::EffectiveSettings;
pub(in crate::cli) use given::{Environment, Flags, Given, Selection, arguments};
pub(super) use variables::with_variable;

use crate::cli::{
    Failure,
    serve::{limitador_env, reference_env},
};
use clap::{ArgMatches, Command};
pub(in crate::cli) use effective::Inserted;
use std::{collections::BTreeMap, ffi::OsString};

/// The arguments of the process as `program` parses them, and the settings of `serve` that they make, if that is the command. Ends the
/// process after wrong arguments, and after `--help`.
pub(in crate::cli) fn parse(program: &Command) -> Result<(ArgMatches, Option<EffectiveSettings>), Failure> {
    let (given, variables) = (texts(), reference_env::variables());
    reference_env::add_open_telemetry(&given, &variables)?;
    limitador_env::add_open_telemetry(&given, &variables)?;
    let (expanded, inserted) = expand(program, given.clone(), &variables)?;
    let args = with_originals(expanded, std::env::args_os().collect());
    let command = variables::adjusted(program.clone(), |name| std::env::var_os(name));
    let matches = command
        .clone()
        .try_get_matches_from(args)
        .unwrap_or_else(|error| wrong_value::with_source(error, &command, &given, &variables).exit());
    let serve = matches.subcommand_matches("serve");
    let mut settings = serve.map(|serve| effective(&command, serve, inserted)).transpose()?;
    if let Some(settings) = &mut settings {
        settings.warnings = variables::warnings(program, &variables);
    }
    Ok((matches, settings))
}

/// The arguments of the process as text. Paths need not be UTF-8: what is not is replaced by U+FFFD.
pub(in crate::cli) fn texts() -> Vec<String> {
    std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect()
}

/// The expanded arguments with those at their end as the process has them, since texts may have lost what is not UTF-8.
fn with_originals(expanded: Vec<String>, given: Vec<OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = expanded.into_iter().map(OsString::from).collect();
    let ends = args.iter_mut().rev().zip(given.into_iter().rev());
    ends.take_while(|(arg, given)| **arg == *given.to_string_lossy()).for_each(|(arg, given)| *arg = given);
    args
}

fn effective(
    command: &Command,
    serve: &ArgMatches,
    inserted: Inserted,
) -> Result<EffectiveSettings, Failure> {
    let command = command.find_subcommand("serve").expect("it was parsed");
    urls::refuse_for_paths(command, serve)?;
    Ok(EffectiveSettings::new(command, serve, inserted))
}

/// The arguments with the settings of the file, and those that follow from the variables of the reference server.
pub(in crate::cli) fn expand(
    program: &Command,
    args: Vec<String>,
    variables: &BTreeMap<String, String>,
) -> Result<(Vec<String>, Inserted), Failure> {
    let limitador = limitador_env::command(&args, variables)?;
    let is_complete = limitador.is_some();
    let args = limitador.unwrap_or(args);
    let selected = reference_env::selection(&args, variables).filter(|_| !is_complete);
    let is_serve = args.get(1).is_some_and(|command| command == "serve");
    if selected.is_none() && !is_serve {
        return Ok((args, Inserted::default()));
    }
    let own = selected.as_ref().map_or_else(|| args[2..].to_vec(), |selected| selected.own.to_vec());
    let given = Given { own: &own, variables };
    let (path, entries) = match file::path(&given) {
        None => (None, Vec::new()),
        Some(path) => (Some(path.clone()), file::read(program, &path)?),
    };
    let mut expanded = vec!["tidegate".to_owned(), "serve".to_owned()];
    let mut inserted = Inserted { file: path, ..Inserted::default() };
    let is_in_file = |flag: &str| entries.iter().any(|entry| entry.flag == flag);
    if let Some(selected) = selected {
        if !selected.is_chosen {
            expanded.push("--env=reference".to_owned());
        }
        let flags = reference_env::flags(&given, is_in_file)?;
        expanded.extend(inserted.arguments(flags, "reference"));
    }
    if !is_complete && let Some(flags) = limitador_env::flags(&args, &given, is_in_file)? {
        expanded.extend(inserted.arguments(flags, "limitador"));
    }
    for entry in entries.into_iter().filter(|entry| !given.has(&entry.flag)) {
        inserted.from.insert(entry.flag[2..].to_owned(), "file");
        expanded.extend(entry.into_args());
    }
    expanded.extend(own);
    Ok((expanded, inserted))
}
