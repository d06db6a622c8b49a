//! What algorithms have in common: the requests of a window, and choices by name.

use super::super::window;
use crate::{
    algorithm::Algorithm,
    limit::Window,
    rules::{
        semantics::Semantics,
        yaml::{Field, Fields, Report, nearest, quoted},
    },
};

/// An algorithm, with the numbers that statuses report of its limit.
pub(in super::super) struct Counting {
    pub(in super::super) requests: u32,
    pub(in super::super) window: Window,
    pub(in super::super) algorithm: Algorithm,
}

/// The choice of this name; reports the valid names if it is none of them.
pub(super) fn choice<T: Copy>(
    field: &Field<'_>,
    report: &mut Report<'_>,
    what: &str,
    choices: &[(&'static str, T)],
) -> Option<T> {
    let name = field.text(report)?;
    let chosen = choices.iter().find(|(known, _)| *known == name);
    if chosen.is_none() {
        let known: Vec<_> = choices.iter().map(|(known, _)| *known).collect();
        let remedy = match nearest(name, &known) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("write one of {}", known.join(", ")),
        };
        field.reject(report, format!("{} is not {what}; {remedy}", quoted(name)));
    }
    chosen.map(|(_, chosen)| *chosen)
}

/// Number of requests and window. Both are read before returning, so that errors in both are reported.
pub(super) fn requests_and_window(
    fields: &mut Fields<'_>,
    semantics: Semantics,
    report: &mut Report<'_>,
) -> Option<(u32, Window)> {
    let requests = requests(fields, semantics, report);
    let window = window::window(fields, report);
    requests.zip(window)
}

/// Number of requests.
pub(super) fn requests(
    fields: &mut Fields<'_>,
    semantics: Semantics,
    report: &mut Report<'_>,
) -> Option<u32> {
    match (fields.take("requests_per_unit"), semantics) {
        (Some(field), _) => field.whole(report),
        // The reference server reads a missing number as 0.
        (None, Semantics::Reference) => Some(0),
        (None, Semantics::Exact) => {
            let message = "is missing; write how many requests are admitted (0 denies all)";
            report.at(fields.place(), fields.path_of("requests_per_unit"), message);
            None
        }
    }
}
