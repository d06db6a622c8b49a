//! The Java client: JUnit by Maven, google-java-format, javac -Xlint, Javadoc.

use super::Language;

pub(super) const LANGUAGE: Language = Language {
    name: "Java",
    toolchain: "java",
    folder: "java",
    probes: &[&["javac", "--version"], &["mvn", "--version"]],
    install: &[],
    check: &[],
    // Formatting, lints and Javadoc are phases of it, and the last module tests what it installed.
    test: &["mvn", "--batch-mode", "--no-transfer-progress", "install"],
    outcome: |line| {
        let (rest, has_passed) = match line.strip_prefix("ok ") {
            Some(rest) => (rest, true),
            None => (line.strip_prefix("not ok ")?, false),
        };
        rest.split_once(" - ").map(|(_, name)| (name, has_passed))
    },
    faults: None,
    bench: None,
};

#[test]
fn outcomes_of_junit_are_read() {
    super::check(
        &LANGUAGE,
        &[
            ("ok 3 - ConformanceTest > localDenials: a_denial", Some(("local denials", true))),
            ("not ok 4 - TidegateTest > observersSeeEachDecision", Some(("own tests", false))),
            ("[INFO] Tests run: 153, Failures: 0", None),
        ],
    );
}
