//! The Go client: go test, gofmt, go vet.

use super::Language;
use crate::clients::{bench::Bench, faults::Faults};

pub(super) const LANGUAGE: Language = Language {
    name: "Go",
    toolchain: "go",
    folder: "go",
    probes: &[&["go", "version"]],
    install: &[],
    check: &[
        &["sh", "-c", "test -z \"$(gofmt -l .)\""],
        &["go", "vet", "./..."],
        &["go", "doc", "-all", "."],
        &["go", "run", "honnef.co/go/tools/cmd/staticcheck@v0.8.2", "./..."],
    ],
    test: &["go", "test", "-count=1", "-v", "./..."],
    outcome: |line| {
        let line = line.trim_start();
        let (rest, has_passed) = match line.strip_prefix("--- PASS: ") {
            Some(rest) => (rest, true),
            None => (line.strip_prefix("--- FAIL: ")?, false),
        };
        rest.split_once(' ').map(|(name, _)| (name, has_passed))
    },
    faults: Some(Faults {
        planted: [
            ("client.go", "c.denials.endFor(r)", "_ = c.denials.endFor"),
            ("decision.go", "if wait%time.Second > 0 {", "if false {"),
        ],
        test: &["go", "test", "-count=1", "-v", "-vet=off", "-run", "^(TestHeaders|TestLocalDenials)$", "."],
        linked: &[],
        complete: |_, _| Ok(()),
    }),
    bench: Some(Bench {
        prepare: &[&["go", "build", "-o", "../../target/client-bench-go", "./internal/bench"]],
        run: &["../../target/client-bench-go"],
        local_denial_us_max: 2.0,
    }),
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
