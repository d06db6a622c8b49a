//! How a limit counts: from the keys of a `rate_limit` to an [`Algorithm`].
//!
//! To add an algorithm, write the function that reads its keys and give it a row in [`ALGORITHMS`].

use super::window;
use crate::{
    algorithm::{Algorithm, FixedWindow, SlidingWindow},
    limit::Window,
    rules::{
        rule::Semantics,
        yaml::{Fields, Report, nearest, quoted},
    },
};

/// An algorithm with what answers say of its limit.
pub(super) struct Counting {
    pub(super) requests: u32,
    pub(super) window: Window,
    pub(super) algorithm: Algorithm,
}

/// Reads the keys of one algorithm; none if they say nothing usable, which is reported.
type Read = fn(&mut Fields<'_>, Semantics, &mut Report<'_>) -> Option<Counting>;

const ALGORITHMS: [(&str, Read); 2] = [("sliding_window", sliding_window), ("fixed_window", fixed_window)];

/// What `algorithm` and the keys that go with it say.
pub(super) fn counting(
    fields: &mut Fields<'_>,
    semantics: Semantics,
    report: &mut Report<'_>,
) -> Option<Counting> {
    let default: Read = match semantics {
        Semantics::Exact => sliding_window,
        Semantics::Reference => fixed_window,
    };
    let Some(field) = fields.take("algorithm") else {
        return default(fields, semantics, report);
    };
    let name = field.text(report);
    let read = ALGORITHMS.into_iter().find(|(known, _)| Some(*known) == name).map(|(_, read)| read);
    if let (None, Some(name)) = (read, name) {
        let known = ALGORITHMS.map(|(known, _)| known);
        let remedy = match nearest(name, &known) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("write one of {}", known.join(", ")),
        };
        field.reject(report, format!("{} is not an algorithm; {remedy}", quoted(name)));
    }
    read.unwrap_or(default)(fields, semantics, report)
}

fn sliding_window(
    fields: &mut Fields<'_>,
    semantics: Semantics,
    report: &mut Report<'_>,
) -> Option<Counting> {
    let (limit, window) = requests_and_window(fields, semantics, report)?;
    let algorithm = Algorithm::SlidingWindow(SlidingWindow { limit, window });
    Some(Counting { requests: limit, window, algorithm })
}

fn fixed_window(fields: &mut Fields<'_>, semantics: Semantics, report: &mut Report<'_>) -> Option<Counting> {
    let (limit, window) = requests_and_window(fields, semantics, report)?;
    let algorithm = Algorithm::FixedWindow(FixedWindow::on_the_clock(limit, window));
    Some(Counting { requests: limit, window, algorithm })
}

/// So many requests in so much time. Both are read, so that the mistakes of both are told.
fn requests_and_window(
    fields: &mut Fields<'_>,
    semantics: Semantics,
    report: &mut Report<'_>,
) -> Option<(u32, Window)> {
    let requests = match (fields.take("requests_per_unit"), semantics) {
        (Some(field), _) => field.whole(report),
        // The reference server reads a missing number as 0.
        (None, Semantics::Reference) => Some(0),
        (None, Semantics::Exact) => {
            let message = "is missing; write how many requests are admitted (0 denies all)";
            report.at(fields.position(), fields.path_of("requests_per_unit"), message);
            None
        }
    };
    let window = window::window(fields, report);
    requests.zip(window)
}
