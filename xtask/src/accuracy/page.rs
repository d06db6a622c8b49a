//! The page: the figures as Markdown tables.

use super::{Measured, measure::Figures, subject::Subject};
use std::fmt::Write as _;

/// The page without its tables.
const FRAME: &str = include_str!("page.md");

/// The whole page.
pub(super) fn markdown(measured: &Measured) -> String {
    let mut tables = String::new();
    for (traffic, figures) in &measured.traffics {
        let requests: usize = traffic.sources.iter().map(Vec::len).sum();
        let _ =
            writeln!(tables, "### {}\n\n{} {requests} requests.\n", capitalised(traffic.name), traffic.about);
        tables.push_str(HEAD);
        for (subject, figures) in measured.subjects.iter().zip(figures) {
            tables.push_str(&row(subject, figures));
        }
        tables.push('\n');
    }
    let (_, population) =
        measured.traffics.iter().find(|(traffic, _)| traffic.name == "population").expect("there");
    let plain = &population[row_of(measured, "plain two buckets")];
    let ours = &population[row_of(measured, "sliding_window")];
    FRAME
        .replace("{plain_wrong}", &percent(plain.wrong_percent()))
        .replace("{plain_count}", &percent(plain.count_error_percent()))
        .replace("{ours_wrong}", &percent(ours.wrong_percent()))
        .replace("{ours_count}", &percent(ours.count_error_percent()))
        .replace("{tables}", tables.trim_end())
}

const HEAD: &str = "\
| | worst window | bound | wrongly admitted | wrongly denied | admitted, off by | count, off by |
|---|---|---|---|---|---|---|
";

fn row(subject: &Subject, figures: &Figures) -> String {
    let bound = subject
        .bound()
        .map_or_else(|| "–".to_owned(), |bound| format!("{:.2}", f64::from(bound) / f64::from(super::LIMIT)));
    let count =
        if subject.counts_a_window() { percent(figures.count_error_percent()) } else { "–".to_owned() };
    format!(
        "| {} | {:.2} | {bound} | {} | {} | {} | {count} |\n",
        subject.name(),
        figures.worst_window_ratio(),
        percent(figures.wrongly_admitted_percent()),
        percent(figures.wrongly_denied_percent()),
        percent(figures.admitted_error_percent()),
    )
}

fn row_of(measured: &Measured, name: &str) -> usize {
    measured.subjects.iter().position(|subject| subject.name() == name).expect("it is measured")
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

fn capitalised(name: &str) -> String {
    let (first, rest) = name.split_at(1);
    first.to_uppercase() + rest
}
