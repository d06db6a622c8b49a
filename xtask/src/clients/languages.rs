//! The languages of the clients: how the tests of each language run, by its file in `clients/conformance/languages/`, and how to read their
//! results.

use super::{bench::Bench, faults::Faults};
use crate::Failure;
use serde::Deserialize;
use std::{fs, path::Path};

/// The rows of the table, in their order: a file for each.
const FOLDERS: [&str; 5] = ["python", "go", "typescript", "java", "rust"];

/// A client library and the commands that test it, run in `clients/FOLDER`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Language {
    /// Name in the table.
    pub(super) name: String,
    /// Name in `TIDEGATE_REQUIRE`.
    pub(super) toolchain: String,
    /// Name of its file.
    #[serde(skip)]
    pub(super) folder: &'static str,
    /// Commands that succeed where the toolchain is installed.
    pub(super) probes: Vec<Command>,
    /// Commands that install dependencies.
    #[serde(default)]
    pub(super) install: Vec<Command>,
    /// Commands that check formatting, lint, and build the API reference.
    pub(super) check: Vec<Command>,
    /// Command that runs the tests, one line of output each.
    pub(super) test: Command,
    /// Faults that `--faults` plants.
    pub(super) faults: Faults,
    /// Program that `--bench` runs.
    pub(super) bench: Bench,
}

/// A program and its arguments. A program with a `/` is relative to the language's folder.
pub(super) type Command = Vec<String>;

/// Reads the languages.
pub(super) fn languages(repository: &Path) -> Result<Vec<Language>, Failure> {
    let read = |folder: &'static str| {
        let path = repository.join(format!("clients/conformance/languages/{folder}.yaml"));
        let in_file = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let text = fs::read_to_string(&path).map_err(|error| in_file(&error))?;
        let language: Language = serde_saphyr::from_str(&text).map_err(|error| in_file(&error))?;
        Ok(Language { folder, ..language })
    };
    FOLDERS.into_iter().map(read).collect()
}

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
    // The first name is the name of the test; a case may be called after another group.
    let places = names.iter().enumerate().filter_map(|(group, name)| Some((letters.find(name)?, group)));
    if is_case { places.min().map_or(GROUPS.len() - 1, |(_, group)| group) } else { GROUPS.len() - 1 }
}

/// The name of a test and whether it passed, if a line has them: in the form of go test, of TAP, of pytest or of cargo test.
pub(super) fn outcome(line: &str) -> Option<(&str, bool)> {
    let line = line.trim_start();
    if let Some(rest) = line.strip_prefix("--- ") {
        let (outcome, rest) = rest.split_once(": ")?;
        return Some((rest.split_once(' ')?.0, has_passed(outcome)?));
    }
    if let Some(rest) = line.strip_prefix("test ") {
        let (name, outcome) = rest.rsplit_once(" ... ")?;
        return Some((name.trim_end(), has_passed(outcome)?));
    }
    if let Some(rest) = line.strip_prefix("tests/") {
        let (name, rest) = rest.split_once(' ')?;
        return Some((name, has_passed(rest.split_whitespace().next()?)?));
    }
    let rest = line.strip_prefix("not ").unwrap_or(line).strip_prefix("ok ")?;
    let (_, name) = rest.split_once(" - ").filter(|_| !rest.contains("# SKIP"))?;
    Some((name, !line.starts_with("not ")))
}

/// Whether the word of a test runner states that a test passed; absent for a test that did not run.
fn has_passed(outcome: &str) -> Option<bool> {
    match outcome {
        "PASS" | "PASSED" | "ok" => Some(true),
        "FAIL" | "FAILED" | "ERROR" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_of_each_test_runner_are_read() {
        let lines = [
            ("    --- PASS: TestLocalDenials/a_denial (0.01s)", Some(("local denials", true))),
            ("--- FAIL: TestObservers (0.01s)", Some(("own tests", false))),
            ("=== RUN   TestVectors", None),
            ("ok  \ttidegate.io/client\t0.301s", None),
            ("ok 3 - ConformanceTest > localDenials: a_denial", Some(("local denials", true))),
            ("not ok 4 - TidegateTest > observersSeeEachDecision", Some(("own tests", false))),
            ("[INFO] Tests run: 153, Failures: 0", None),
            (
                "tests/test_conformance.py::test_vectors[sync-charging/a_peek] PASSED [ 1%]",
                Some(("vectors", true)),
            ),
            (
                "tests/test_conformance_middleware.py::test_middleware[missing_headers-flask] PASSED [ 1%]",
                Some(("middleware", true)),
            ),
            ("tests/test_conformance.py::test_headers[one_limit] FAILED [ 1%]", Some(("headers", false))),
            ("tests/test_client.py::test_a_unix_socket PASSED [ 1%]", Some(("own tests", true))),
            ("tests/test_package.py::test_the_readme SKIPPED (needs a registry) [ 1%]", None),
            ("test conformance::vectors::charging/a_peek ... ok", Some(("vectors", true))),
            ("test conformance::headers::one_limit ... FAILED", Some(("headers", false))),
            ("test breaker::tests::failures_count_in_a_row_only ... ok", Some(("own tests", true))),
            ("test src/lib.rs - (line 3) - compile ... ok", Some(("own tests", true))),
            ("test result: ok. 3 passed; 0 failed", None),
            ("ok 3 - test/conformance.test.ts > failures: 'reset' # time=5ms", Some(("failures", true))),
            (
                "not ok 4 - test/conformance.test.ts > client addresses: 'x'",
                Some(("client addresses", false)),
            ),
            (
                "ok 5 - test/conformance.middleware.test.ts > middleware: 'missing_headers' with express",
                Some(("middleware", true)),
            ),
            ("ok 5 - test/package.test.ts > the README # SKIP", None),
        ];
        for (line, expected) in lines {
            let read = outcome(line).map(|(name, has_passed)| (GROUPS[group(name)], has_passed));
            assert_eq!(read, expected, "{line}");
        }
    }
}
