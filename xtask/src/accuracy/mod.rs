//! `cargo xtask accuracy`: how near each algorithm comes to an exact count, on traffic of several kinds.
//!
//! Everything is drawn from a seed and counted in whole numbers: two runs agree to the last digit, and a test holds the
//! committed page to what the program says now. What is measured is said in [`measure`].

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

/// Where the page and its drawing are, from the root of the repository.
const PAGE: &str = "docs/accuracy.md";
const DRAWING: &str = "docs/accuracy.svg";

/// Hits in a window, of every algorithm.
const LIMIT: u32 = 100;

/// The window of every algorithm: a minute.
const WINDOW_NANOS: u64 = 60_000_000_000;

/// Measures how near each algorithm comes to an exact count, and writes docs/accuracy.md with its drawing.
#[derive(Args)]
pub(super) struct Accuracy {}

/// What came of it: for each traffic, for each subject.
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
    fn the_page_and_the_drawing_are_what_is_measured_now_and_no_bound_is_passed() {
        let measured = Measured::all();
        for (traffic, figures) in &measured.traffics {
            for (subject, figures) in measured.subjects.iter().zip(figures) {
                let bound = subject.bound().unwrap_or(u32::MAX);
                assert!(figures.worst_window <= bound, "{} on {} traffic", subject.name(), traffic.name);
            }
        }
        let again = "run `cargo xtask accuracy` and look at what changed";
        assert!(page::markdown(&measured) == committed(PAGE), "{PAGE} is of another time: {again}");
        assert!(plot::svg(&measured) == committed(DRAWING), "{DRAWING} is of another time: {again}");
    }
}
