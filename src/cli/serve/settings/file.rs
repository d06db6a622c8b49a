//! The file of `--config`: a YAML map of settings. Its names are those of the flags without dashes in front.

use super::{Failure, Given, secrets::error_text, urls, variables::adjusted};
use clap::{Arg, ArgAction, Command, error::ErrorKind};
use std::path::Path;
use tidegate_core::rules::{self, Origin, PlainEntry, Source, plain_map};

/// Flags that choose where settings come from, and so cannot be settings of the file.
const NOT_IN_FILES: [&str; 3] = ["check", "config", "env"];

/// Settings are some hundred lines.
const BYTES_MAX: u64 = 1 << 20;

/// A setting of the file.
#[derive(Debug)]
pub(super) struct FileSetting {
    /// The flag, with its dashes.
    pub(super) flag: String,
    /// The values; none for a switch that is on.
    values: Option<Vec<String>>,
}

impl FileSetting {
    /// The arguments that it stands for.
    pub(super) fn into_args(self) -> Vec<String> {
        match self.values {
            None => vec![self.flag],
            Some(values) => values.iter().map(|value| format!("{}={value}", self.flag)).collect(),
        }
    }
}

/// The path that the flag or the variable names.
pub(super) fn path(given: &Given<'_>) -> Option<String> {
    let mut own = given.own.iter();
    while let Some(arg) = own.next() {
        match arg.strip_prefix("--config") {
            Some("") => return own.next().cloned(),
            Some(rest) if let Some(path) = rest.strip_prefix('=') => return Some(path.to_owned()),
            _ => {}
        }
    }
    given.variables.get("TIDEGATE_CONFIG").filter(|path| !path.is_empty()).cloned()
}

/// Reads the file, or returns every error in it.
pub(super) fn read(program: &Command, path: &str) -> Result<Vec<FileSetting>, Failure> {
    urls::refuse("config", path)?;
    let text = rules::read_text(Path::new(path), BYTES_MAX);
    let text = text.map_err(|error| Failure(format!("--config {path}: {error}")))?;
    settings(program, &Source::file(path, text))
}

/// The settings in the text, or every error in it.
pub(super) fn settings(program: &Command, source: &Source) -> Result<Vec<FileSetting>, Failure> {
    let entries = plain_map(source)?;
    // Without variables: their errors are not errors of the file.
    let command = adjusted(program.clone(), |_| Some(Default::default()));
    let serve = command.find_subcommand("serve").expect("a command").clone();
    let (mut settings, mut errors) = (Vec::new(), Vec::new());
    for entry in &entries {
        match setting(&serve, entry) {
            Ok(setting) => settings.extend(setting),
            Err((origin, message)) => errors.push(format!("{origin}: {}: {message}", entry.name)),
        }
    }
    if errors.is_empty() { Ok(settings) } else { Err(Failure(errors.join("\n"))) }
}

/// The setting of one name; none if it is a switch that is off.
fn setting(serve: &Command, entry: &PlainEntry) -> Result<Option<FileSetting>, (Origin, String)> {
    let settable = |arg: &&Arg| {
        let long = arg.get_long().unwrap_or_default();
        !arg.is_hide_set() && !NOT_IN_FILES.contains(&long) && long != "help"
    };
    let mut args = serve.get_arguments().filter(settable);
    let Some(arg) = args.find(|arg| arg.get_long() == Some(&entry.name)) else {
        return Err((entry.origin.clone(), unknown(serve, &entry.name)));
    };
    let flag = format!("--{}", entry.name);
    let wrong = |message: String| (entry.value_origin.clone(), message);
    if matches!(arg.get_action(), ArgAction::SetTrue) {
        return match &entry.values[..] {
            [value] if value == "true" => Ok(Some(FileSetting { flag, values: None })),
            [value] if value == "false" => Ok(None),
            _ => Err(wrong("write true or false".to_owned())),
        };
    }
    if !matches!(arg.get_action(), ArgAction::Append) && entry.values.len() != 1 {
        return Err(wrong("a list; write one value".to_owned()));
    }
    let setting = FileSetting { flag: flag.clone(), values: Some(entry.values.clone()) };
    let args = entry.values.iter().map(|value| format!("{flag}={value}"));
    let parsed = serve.clone().try_get_matches_from(["serve".to_owned()].into_iter().chain(args));
    match parsed {
        // Combinations of settings are checked when all are known.
        Err(error)
            if !matches!(error.kind(), ErrorKind::MissingRequiredArgument | ErrorKind::ArgumentConflict) =>
        {
            let text = error_text(&error, arg);
            let message = text.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default();
            Err(wrong(message.split_whitespace().collect::<Vec<_>>().join(" ")))
        }
        _ => Ok(Some(setting)),
    }
}

fn unknown(serve: &Command, name: &str) -> String {
    let known = serve.get_arguments().filter_map(Arg::get_long).filter(|known| !NOT_IN_FILES.contains(known));
    let near = known.map(|known| (strsim::osa_distance(&name.replace('_', "-"), known), known)).min();
    match near.filter(|(edits, known)| *edits <= known.len() / 3) {
        Some((_, known)) => format!("the setting is not known; did you mean `{known}`?"),
        None => "the setting is not known; `tidegate serve --help` lists the flags, which are written without dashes in front".to_owned(),
    }
}
