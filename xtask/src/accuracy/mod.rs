//! `cargo xtask accuracy`: accuracy of each algorithm against an exact count, on several kinds of traffic.
//!
//! Everything derives from a seed and is counted in whole numbers: two runs agree to the last digit, and a test
//! compares the committed page with a new run. [`measure`] defines the figures.

mod measure;
mod page;
mod plot;
mod subject;
mod traffic;

use crate::Failure;
use clap::Args;
use measure::Figures;
use std::{fs, process::ExitCode};
use subject::Subject;
use traffic::Traffic;

/// The page and its drawing, relative to the root of the repository.
const PAGE: &str = "docs/accuracy.md";
const DRAWING: &str = "docs/accuracy.svg";

/// Hits in a window, of every algorithm.
const LIMIT: u32 = 100;

/// The window of every algorithm: a minute.
const WINDOW_NANOS: u64 = 60_000_000_000;

/// Measures the accuracy of each algorithm against an exact count, and writes docs/accuracy.md with its drawing
#[derive(Args)]
pub(super) struct Accuracy {}

/// The figures of each subject for each traffic.
struct Measured {
    subjects: Vec<Subject>,
    traffics: Vec<(Traffic, Vec<Figures>)>,
}

impl Accuracy {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let measured = Measured::all();
        let write = |path: &str, text: String| {
            fs::write(path, text).map_err(|error| format!("cannot write {path}: {error}"))
        };
        write(PAGE, page::markdown(&measured))?;
        write(DRAWING, plot::svg(&measured))?;
        println!("wrote {PAGE} and {DRAWING}");
        Ok(ExitCode::SUCCESS)
    }
}

impl Measured {
    fn all() -> Self {
        let subjects = Subject::all();
        let of = |traffic: Traffic| {
            let figures = subjects.iter().map(|subject| measure::figures(subject, &traffic)).collect();
            (traffic, figures)
        };
        let traffics = Traffic::all().into_iter().map(of).collect();
        Self { subjects, traffics }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn committed(path: &str) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        fs::read_to_string(root.join(path)).expect("a committed file")
    }

    #[test]
    fn the_page_and_drawing_are_current_and_no_bound_is_exceeded() {
        let measured = Measured::all();
        for (traffic, figures) in &measured.traffics {
            for (subject, figures) in measured.subjects.iter().zip(figures) {
                let bound = subject.bound().unwrap_or(u32::MAX);
                assert!(figures.worst_window <= bound, "{} on {} traffic", subject.name(), traffic.name);
            }
        }
        let again = "run `cargo xtask accuracy` and review the changes";
        assert!(page::markdown(&measured) == committed(PAGE), "{PAGE} is out of date: {again}");
        assert!(plot::svg(&measured) == committed(DRAWING), "{DRAWING} is out of date: {again}");
    }
}
