//! The Go client: go test, gofmt, go vet.

use super::Language;

pub(super) const LANGUAGE: Language = Language {
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
};

#[test]
fn outcomes_of_go_test_are_read() {
    super::check(
        &LANGUAGE,
        &[
            ("    --- PASS: TestLocalDenials/a_denial (0.01s)", Some(("local denials", true))),
            ("--- FAIL: TestObservers (0.01s)", Some(("own tests", false))),
            ("=== RUN   TestVectors", None),
        ],
    );
}
