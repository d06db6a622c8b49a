//! The Python client: pytest, ruff, mypy, pdoc.

use super::Language;

pub(super) const LANGUAGE: Language = Language {
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
};

#[test]
fn outcomes_of_pytest_are_read() {
    super::check(
        &LANGUAGE,
        &[
            (
                "tests/test_conformance.py::test_vectors[sync-charging/a_peek] PASSED [ 1%]",
                Some(("vectors", true)),
            ),
            ("tests/test_conformance.py::test_headers[one_limit] FAILED [ 1%]", Some(("headers", false))),
            ("tests/test_client.py::test_a_unix_socket PASSED [ 1%]", Some(("own tests", true))),
            ("tests/test_package.py::test_the_readme SKIPPED (needs a registry) [ 1%]", None),
        ],
    );
}
