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
        &["sh", "-c", "go vet ./... && go -C tidegateprom vet ./... && go -C tidegateotel vet ./..."],
        &["go", "doc", "-all", "."],
        &["go", "run", "honnef.co/go/tools/cmd/staticcheck@v0.8.2", "./..."],
    ],
    // Metrics and traces are modules of their own.
    test: &[
        "sh",
        "-c",
        "go test -count=1 -v ./... && go -C tidegateprom test -count=1 -v ./... && \
         go -C tidegateotel test -count=1 -v ./...",
    ],
    outcome: |line| {
        let line = line.trim_start();
        let (rest, has_passed) = match line.strip_prefix("--- PASS: ") {
            Some(rest) => (rest, true),
            None => (line.strip_prefix("--- FAIL: ")?, false),
        };
        rest.split_once(' ').map(|(name, _)| (name, has_passed))
    },
    faults: Some(Faults {
        planted: &[
            ("client.go", "c.denials.endFor(r)", "_ = c.denials.endFor"),
            ("denials.go", "min(decision.RetryAfter, l.keptFor)", "decision.RetryAfter"),
            ("decision.go", "if wait%time.Second > 0 {", "if false {"),
            (
                "client.go",
                "\tisOver = true\n",
                "\tif status.Code(err) == codes.Unavailable {\n\t\tresponse, err = c.send(ctx, r.timeout, r.message(), a)\n\t}\n\tisOver = true\n",
            ),
            ("keys.go", "case len(values) > 1:", "case false:"),
            (
                "middleware.go",
                "\"Service Unavailable\", http.StatusServiceUnavailable",
                "\"Service Unavailable\", http.StatusTooManyRequests",
            ),
            ("slot.go", "s == nil || s.Ticket == \"\" {", "s == nil || s.Ticket == \"\" || isEnd {"),
            ("slot.go", "\tr.usesLocal = false\n", ""),
            ("slot.go", "descriptor.Cost(*cost)", "descriptor.Cost(estimate)"),
            ("slot.go", "s.Ticket).Cost(1)", "s.Ticket).Cost(0)"),
            ("slot.go", "go s.Release()", "_ = s"),
        ],
        test: &[
            "go",
            "test",
            "-count=1",
            "-v",
            "-vet=off",
            "-run",
            "^(TestHeaders|TestLocalDenials.*|TestFailures|TestMiddleware|TestSlots)$",
            ".",
        ],
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
