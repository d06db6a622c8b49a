//! Commands of each language: how its tests run, and how its results read.

mod go;
mod java;
mod python;
mod rust;
mod typescript;

use super::{bench::Bench, faults::Faults};

/// A client library and the commands that test it, run in `clients/FOLDER`.
pub(super) struct Language {
    /// Name in the table.
    pub(super) name: &'static str,
    /// Name in `TIDEGATE_REQUIRE`.
    pub(super) toolchain: &'static str,
    pub(super) folder: &'static str,
    /// Commands that succeed where the toolchain is installed.
    pub(super) probes: &'static [Command],
    /// Commands that install dependencies.
    pub(super) install: &'static [Command],
    /// Commands that check formatting, lint, and build the API reference.
    pub(super) check: &'static [Command],
    /// Command that runs the tests, one line of output each.
    pub(super) test: Command,
    /// Reads the outcome of one test from a line, if it is one.
    pub(super) outcome: fn(&str) -> Option<(&str, bool)>,
    /// Faults that `--faults` plants.
    pub(super) faults: Option<Faults>,
    /// Program that `--bench` runs.
    pub(super) bench: Option<Bench>,
}

/// A program and its arguments. A program with a `/` is relative to the language's folder.
pub(super) type Command = &'static [&'static str];

pub(super) const LANGUAGES: &[Language] =
    &[python::LANGUAGE, go::LANGUAGE, typescript::LANGUAGE, java::LANGUAGE, rust::LANGUAGE];

/// Columns of the table: groups of cases in `clients/conformance`, and each language's own tests.
pub(super) const GROUPS: [&str; 8] = [
    "vectors",
    "headers",
    "local denials",
    "slots",
    "failures",
    "client addresses",
    "middleware",
    "own tests",
];

/// The column of a test, by its name in any of the languages.
pub(super) fn group(test: &str) -> usize {
    let letters: String = test.chars().filter(char::is_ascii_alphabetic).collect::<String>().to_lowercase();
    let names = ["vectors", "headers", "localdenials", "slots", "failures", "clientaddresses", "middleware"];
    let is_case = letters.contains("conformance") || test.starts_with("Test");
    // The first name is that of the test; a case may be called after another group.
    let places = names.iter().enumerate().filter_map(|(group, name)| Some((letters.find(name)?, group)));
    if is_case { places.min().map_or(GROUPS.len() - 1, |(_, group)| group) } else { GROUPS.len() - 1 }
}

/// Checks that lines of a test run are read as (column, outcome), or as no outcome.
#[cfg(test)]
fn check(language: &Language, lines: &[(&str, Option<(&str, bool)>)]) {
    for (line, expected) in lines {
        let read = (language.outcome)(line).map(|(name, has_passed)| (GROUPS[group(name)], has_passed));
        assert_eq!(read, *expected, "{line}");
    }
}
