//! Refuses URLs for settings that are paths. As a path, a URL would appear in errors and in the log with its password, and would name a new
//! data directory.

use crate::cli::Failure;
use clap::{Arg, ArgMatches, Command};
use tidegate_shared::without_userinfo;

/// Names of values that are paths. `TARGET` is a path if it is nothing else.
const PATHS: [&str; 4] = ["DIR", "FILE", "PATH", "TARGET"];

/// An error if a setting of `serve` that is a path is a URL.
pub(super) fn refuse_for_paths(serve: &Command, matches: &ArgMatches) -> Result<(), Failure> {
    let is_path = |arg: &&Arg| {
        arg.get_value_names().is_some_and(|names| names.iter().any(|name| PATHS.contains(&name.as_str())))
    };
    for arg in serve.get_arguments().filter(is_path) {
        let occurrences = matches.get_raw_occurrences(arg.get_id().as_str()).into_iter().flatten();
        for values in occurrences {
            // A list of paths was divided at its colons.
            let values: Vec<_> = values.map(|value| value.to_string_lossy()).collect();
            refuse(arg.get_long().unwrap_or_default(), &values.join(":"))?;
        }
    }
    Ok(())
}

/// An error if the value of the flag is a URL. Control planes are the URLs that `--rules` has.
pub(super) fn refuse(flag: &str, value: &str) -> Result<(), Failure> {
    if !value.replace("xds://", "").contains("://") {
        return Ok(());
    }
    Err(Failure(format!("--{flag}: {} is a URL; write a path", without_userinfo(value))))
}
