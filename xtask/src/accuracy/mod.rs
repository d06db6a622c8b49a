//! `cargo xtask accuracy`: accuracy of each algorithm against an exact count, on several kinds of traffic.
//!
//! Everything derives from a seed and is counted in whole numbers: two runs agree to the last digit, and a test
//! compares the committed page with a new run. [`measure`] defines the figures.

mod measure;
mod plot;
mod subjects;
mod traffic;

use crate::Failure;
use measure::{Figures, figures};
use std::{fmt::Write as _, fs, process::ExitCode};
use subjects::{Subject, subjects};
use traffic::{Traffic, traffics};

/// The page and its drawing, relative to the root of the repository.
const PAGE: &str = "docs/accuracy.md";
const DRAWING: &str = "docs/accuracy.svg";

/// Hits in a window, of every algorithm.
const LIMIT: u32 = 100;

/// The window of every algorithm: a minute.
const WINDOW_NANOS: u64 = 60_000_000_000;

/// Each traffic with the figures of all subjects, in their order.
type Measured = Vec<(Traffic, Vec<(Subject, Figures)>)>;

pub(super) fn run() -> Result<ExitCode, Failure> {
    let measured = measured();
    for (path, text) in [(PAGE, page(&measured)), (DRAWING, plot::svg(&measured))] {
        fs::write(path, text).map_err(|error| format!("cannot write {path}: {error}"))?;
    }
    println!("wrote {PAGE} and {DRAWING}");
    Ok(ExitCode::SUCCESS)
}

fn measured() -> Measured {
    let of = |traffic: Traffic| {
        let figures = subjects()
            .map(|subject| {
                let figures = figures(&subject, &traffic);
                (subject, figures)
            })
            .collect();
        (traffic, figures)
    };
    traffics().into_iter().map(of).collect()
}

/// The page: a table for each traffic.
fn page(measured: &Measured) -> String {
    let mut tables = String::new();
    for (Traffic { name, about, sources }, subjects) in measured {
        let (first, rest) = name.split_at(1);
        let requests: usize = sources.iter().map(Vec::len).sum();
        let _ = writeln!(tables, "### {}{rest}\n\n{about} {requests} requests.\n", first.to_uppercase());
        tables.push_str("| | worst window | bound | wrongly admitted | wrongly denied | admitted, off by | count, off by |\n");
        tables.push_str("|---|---|---|---|---|---|---|\n");
        for (subject, figures) in subjects {
            let or_none = |cell: Option<String>| cell.unwrap_or_else(|| "–".to_owned());
            let cells = [
                subject.name.to_owned(),
                format!("{:.2}", in_limits(figures.worst_window)),
                or_none(subject.bound.map(|bound| format!("{:.2}", in_limits(bound)))),
                percent(figures.wrongly_admitted),
                percent(figures.wrongly_denied),
                percent(figures.admitted_error),
                or_none(subject.counts_a_window.then(|| percent(figures.count_error))),
            ];
            let _ = writeln!(tables, "| {} |", cells.join(" | "));
        }
        tables.push('\n');
    }
    let (_, population) = &measured[0];
    let mut page = include_str!("page.md").replace("{tables}", tables.trim_end());
    for (place, name) in [("plain", "plain two buckets"), ("ours", "sliding_window")] {
        let (_, figures) = population.iter().find(|(subject, _)| subject.name == name).expect("a subject");
        page = page.replace(&format!("{{{place}_wrong}}"), &percent(figures.wrong()));
        page = page.replace(&format!("{{{place}_count}}"), &percent(figures.count_error));
    }
    page
}

fn in_limits(hits: u32) -> f64 {
    f64::from(hits) / f64::from(LIMIT)
}

/// At least two significant digits down to 0.0001 %; exactly zero is "0".
fn percent(percent: f64) -> String {
    match percent {
        0.0 => "0".to_owned(),
        _ if percent < 0.01 => format!("{percent:.4} %"),
        _ if percent < 1.0 => format!("{percent:.2} %"),
        _ => format!("{percent:.1} %"),
    }
}

#[test]
fn the_page_and_drawing_are_current_and_no_bound_is_exceeded() {
    let measured = measured();
    for (traffic, subjects) in &measured {
        for (subject, figures) in subjects {
            let bound = subject.bound.unwrap_or(u32::MAX);
            assert!(figures.worst_window <= bound, "{} on {} traffic", subject.name, traffic.name);
        }
    }
    for (path, text) in [(PAGE, page(&measured)), (DRAWING, plot::svg(&measured))] {
        let committed = fs::read_to_string(format!("{}/../{path}", env!("CARGO_MANIFEST_DIR")));
        let is_current = committed.expect("a committed file") == text;
        assert!(is_current, "{path} is out of date: run `cargo xtask accuracy` and review the changes");
    }
}
