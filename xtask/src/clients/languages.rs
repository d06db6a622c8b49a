//! Commands of each language: how its tests run, and how its results read.

/// A client library and the commands that test it, run in `clients/FOLDER`.
pub(super) struct Language {
    /// Name in the table.
    pub(super) name: &'static str,
    /// Name in `TIDEGATE_REQUIRE`.
    pub(super) toolchain: &'static str,
    pub(super) folder: &'static str,
    /// Commands that succeed where the toolchain is installed.
    pub(super) probes: &'static [&'static [&'static str]],
    /// Commands that install dependencies, check formatting and lint.
    pub(super) prepare: &'static [&'static [&'static str]],
    /// Command that runs the tests, one line of output each.
    pub(super) test: &'static [&'static str],
    /// Reads the outcome of one test from a line, if it is one.
    pub(super) outcome: fn(&str) -> Option<(&str, bool)>,
}

pub(super) const LANGUAGES: &[Language] = &[
    Language {
        name: "Python",
        toolchain: "python",
        folder: "python",
        probes: &[&["python3", "--version"]],
        prepare: &[
            &["python3", "-m", "venv", ".venv"],
            &[".venv/bin/pip", "install", "--quiet", "--disable-pip-version-check", "--upgrade", "pip>=25.1"],
            &[".venv/bin/pip", "install", "--quiet", "--group", "dev", "--editable", "."],
            &[".venv/bin/ruff", "format", "--check", "--quiet", "."],
            &[".venv/bin/ruff", "check", "--quiet", "."],
            &[".venv/bin/mypy"],
        ],
        test: &[".venv/bin/pytest", "--verbose", "--verbose", "--color=no"],
        outcome: |line| {
            let (name, rest) = line.strip_prefix("tests/")?.split_once(' ')?;
            match rest.split_whitespace().next()? {
                "PASSED" => Some((name, true)),
                "FAILED" | "ERROR" => Some((name, false)),
                _ => None,
            }
        },
    },
    Language {
        name: "Go",
        toolchain: "go",
        folder: "go",
        probes: &[&["go", "version"]],
        prepare: &[&["sh", "-c", "test -z \"$(gofmt -l .)\""], &["go", "vet", "./..."]],
        test: &["go", "test", "-count=1", "-v", "./..."],
        outcome: |line| {
            let line = line.trim_start();
            let (rest, has_passed) = match line.strip_prefix("--- PASS: ") {
                Some(rest) => (rest, true),
                None => (line.strip_prefix("--- FAIL: ")?, false),
            };
            rest.split_once(' ').map(|(name, _)| (name, has_passed))
        },
    },
    Language {
        name: "TypeScript",
        toolchain: "node",
        folder: "typescript",
        probes: &[&["node", "--version"], &["npm", "--version"]],
        prepare: &[&["npm", "ci", "--silent"], &["npm", "run", "--silent", "check"]],
        test: &["npx", "vitest", "run", "--reporter=tap-flat"],
        outcome: |line| {
            let (rest, has_passed) = match line.strip_prefix("ok ") {
                Some(rest) => (rest, true),
                None => (line.strip_prefix("not ok ")?, false),
            };
            let is_skipped = rest.contains("# SKIP");
            rest.split_once(" - ").filter(|_| !is_skipped).map(|(_, name)| (name, has_passed))
        },
    },
];

/// Columns of the table: groups of cases in `clients/conformance`, and each language's own tests.
pub(super) const GROUPS: [&str; 6] =
    ["vectors", "headers", "local denials", "failures", "client addresses", "own tests"];

/// The column of a test, by its name in any of the languages.
pub(super) fn group(test: &str) -> usize {
    let letters: String = test.chars().filter(char::is_ascii_alphabetic).collect::<String>().to_lowercase();
    let names = ["vectors", "headers", "localdenials", "failures", "clientaddresses"];
    let is_case = letters.contains("conformance") || test.starts_with("Test");
    names.iter().position(|name| is_case && letters.contains(name)).unwrap_or(GROUPS.len() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_each_language_are_read_and_put_in_their_columns() {
        let read = |language: usize, line: &str| {
            (LANGUAGES[language].outcome)(line).map(|(name, has_passed)| (GROUPS[group(name)], has_passed))
        };
        let [python, go, typescript] = [0, 1, 2];
        let lines = [
            (
                python,
                "tests/test_conformance.py::test_vectors[sync-charging/a_peek] PASSED [ 1%]",
                "vectors",
                true,
            ),
            (python, "tests/test_conformance.py::test_headers[one_limit] FAILED [ 1%]", "headers", false),
            (python, "tests/test_client.py::test_a_unix_socket PASSED [ 1%]", "own tests", true),
            (go, "    --- PASS: TestLocalDenials/a_denial (0.01s)", "local denials", true),
            (go, "--- FAIL: TestObservers (0.01s)", "own tests", false),
            (typescript, "ok 3 - test/conformance.test.ts > failures: 'reset' # time=5ms", "failures", true),
            (
                typescript,
                "not ok 4 - test/conformance.test.ts > client addresses: 'x'",
                "client addresses",
                false,
            ),
        ];
        for (language, line, group, has_passed) in lines {
            assert_eq!(read(language, line), Some((group, has_passed)), "{line}");
        }
        for (language, line) in [
            (python, "tests/test_package.py::test_the_readme SKIPPED (needs a registry) [ 1%]"),
            (go, "=== RUN   TestVectors"),
            (typescript, "ok 5 - test/package.test.ts > the README # SKIP"),
        ] {
            assert_eq!(read(language, line), None, "{line}");
        }
    }
}
