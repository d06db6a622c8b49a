//! The Rust client: cargo test, rustfmt, clippy, rustdoc.

use super::Language;

pub(super) const LANGUAGE: Language = Language {
    name: "Rust",
    toolchain: "rust",
    folder: "rust",
    probes: &[&["cargo", "--version"]],
    prepare: &[
        &["cargo", "fmt", "--check"],
        &["cargo", "clippy", "--quiet", "--locked", "--all-features", "--all-targets", "--", "-Dwarnings"],
    ],
    test: &["cargo", "test", "--quiet", "--locked", "--all-features", "--", "--format=pretty"],
    outcome: |line| {
        let (name, outcome) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
        match outcome {
            "ok" => Some((name.trim_end(), true)),
            "FAILED" => Some((name.trim_end(), false)),
            _ => None,
        }
    },
};

#[test]
fn outcomes_of_cargo_test_are_read() {
    super::check(
        &LANGUAGE,
        &[
            ("test conformance::vectors::charging/a_peek ... ok", Some(("vectors", true))),
            ("test conformance::headers::one_limit ... FAILED", Some(("headers", false))),
            ("test breaker::tests::failures_count_in_a_row_only ... ok", Some(("own tests", true))),
            ("test src/lib.rs - (line 3) - compile ... ok", Some(("own tests", true))),
            ("test result: ok. 3 passed; 0 failed", None),
        ],
    );
}
