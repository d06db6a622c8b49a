//! The Rust client: cargo test, rustfmt, clippy, rustdoc.

use super::Language;
use crate::clients::{bench::Bench, faults::Faults};
use std::{fs, io, path::Path};

pub(super) const LANGUAGE: Language = Language {
    name: "Rust",
    toolchain: "rust",
    folder: "rust",
    probes: &[&["cargo", "--version"]],
    install: &[],
    check: &[
        &["cargo", "fmt", "--check"],
        &["cargo", "clippy", "--quiet", "--locked", "--all-features", "--all-targets", "--", "-Dwarnings"],
        &[
            "env",
            "RUSTDOCFLAGS=-Dwarnings",
            "cargo",
            "doc",
            "--quiet",
            "--locked",
            "--no-deps",
            "--all-features",
        ],
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
    faults: Some(Faults {
        planted: &[
            ("src/client.rs", "inner.denials.end_for(request, domain);", ""),
            ("src/denials.rs", "wait.min(self.kept_for)", "wait"),
            ("src/decision.rs", "u64::from(wait.subsec_nanos() > 0)", "0"),
            (
                "src/client.rs",
                "answer => return answer,",
                "Err(status) if status.code() == tonic::Code::Unavailable && refusals == 0 => refusals = 1,\n                answer => return answer,",
            ),
            ("src/keys.rs", "if values.next().is_some() {", "if false {"),
            (
                "src/layer.rs",
                "Self::NoAnswer => StatusCode::SERVICE_UNAVAILABLE",
                "Self::NoAnswer => StatusCode::TOO_MANY_REQUESTS",
            ),
            ("src/slot.rs", "None => ticket.cost(estimate),", "None => ticket.cost(0),"),
            ("src/slot.rs", "request.into().without_local_denials()", "Into::<Request>::into(request)"),
            ("src/slot.rs", "Some(cost) => ticket.cost(cost),", "Some(_) => ticket.cost(estimate),"),
            ("src/slot.rs", "and(\"renew\", ticket).cost(1)", "and(\"renew\", ticket).cost(0)"),
            (
                "src/layer.rs",
                "request.extensions_mut().insert(slot.clone());",
                "std::mem::forget(slot.clone());",
            ),
        ],
        test: &[
            "env",
            "CARGO_TARGET_DIR=../../..",
            "cargo",
            "test",
            "--quiet",
            "--all-features",
            "--test=conformance",
            "--",
            "--format=pretty",
            "--skip=vectors",
            "--skip=client_addresses",
            "--skip=middleware_ends",
        ],
        linked: &[],
        complete: complete_workspace,
    }),
    bench: Some(Bench {
        prepare: &[&["cargo", "build", "--quiet", "--locked", "--profile=clients", "--example=bench"]],
        run: &["../../target/clients/examples/bench"],
        local_denial_us_max: 2.0,
    }),
};

/// Writes the manifest of a workspace with the copied client alone, with the lints and profiles of the repository.
fn complete_workspace(repository: &Path, copy: &Path) -> io::Result<()> {
    let manifest = fs::read_to_string(repository.join("Cargo.toml"))?;
    let mut is_kept = false;
    let sections = manifest.lines().filter(|line| {
        if line.starts_with('[') {
            is_kept = line.starts_with("[workspace.lints") || line.starts_with("[profile.dev");
        }
        is_kept
    });
    let sections: Vec<_> = sections.collect();
    let members = "[workspace]\nmembers = [\"clients/rust\"]\nresolver = \"3\"\n\n";
    fs::write(copy.join("Cargo.toml"), members.to_owned() + &sections.join("\n") + "\n")?;
    fs::copy(repository.join("Cargo.lock"), copy.join("Cargo.lock"))?;
    Ok(())
}

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
