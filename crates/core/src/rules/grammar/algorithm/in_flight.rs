//! Requests in flight: their number, and how long one holds its slot.

use super::{super::window, common::Counting, queue::queue};
use crate::{
    algorithm::{Algorithm, Concurrency, HOLD_MAX},
    limit::Window,
    rules::{
        semantics::Semantics,
        yaml::{Field, Fields, Report},
    },
};

/// The longest time that a slot is held, by default.
const HOLD_DEFAULT_SECS: u64 = 60;

pub(super) fn concurrency(
    fields: &mut Fields<'_>,
    _: Semantics,
    report: &mut Report<'_>,
) -> Option<Counting> {
    let mut has_number = false;
    for (name, remedy) in [
        ("requests_per_unit", "write the number in `requests_in_flight`"),
        ("unit", "remove it; `max_hold` bounds how long a request is in flight"),
        ("unit_multiplier", "remove it; `max_hold` bounds how long a request is in flight"),
        ("per", "remove it; `max_hold` bounds how long a request is in flight"),
    ] {
        if let Some(field) = fields.take(name) {
            has_number |= name == "requests_per_unit";
            field.reject(report, format!("requests in flight have no window; {remedy}"));
        }
    }
    if let Some(charge) = fields.take("charge")
        && charge.text(report).is_some_and(|charge| charge != "admitted")
    {
        charge.reject(report, "only admitted requests are in flight; remove it");
    }
    let max_hold = match fields.take("max_hold") {
        None => Window::from_secs(HOLD_DEFAULT_SECS).ok(),
        Some(field) => hold(&field, report),
    };
    let queue = queue(fields, Some(Concurrency::WAIT_DEFAULT), report);
    let Some(field) = fields.take("requests_in_flight") else {
        if !has_number {
            let message = "is missing; write how many requests may be in flight at once (0 denies all)";
            report.at(fields.place(), fields.path_of("requests_in_flight"), message);
        }
        return None;
    };
    let limit = field.whole(report).filter(|limit| {
        let fits = *limit <= Concurrency::LIMIT_MAX;
        if !fits {
            field.reject(
                report,
                format!(
                    "at most {} requests are in flight; write a number up to that",
                    Concurrency::LIMIT_MAX
                ),
            );
        }
        fits
    });
    let (limit, max_hold) = limit.zip(max_hold)?;
    let algorithm = Algorithm::Concurrency(Concurrency { limit, max_hold, queue });
    Some(Counting { requests: limit, window: max_hold, algorithm })
}

/// The longest time that a request is in flight; none if it is not valid, which is reported.
pub(in super::super) fn hold(field: &Field<'_>, report: &mut Report<'_>) -> Option<Window> {
    window::of_length(field, report).filter(|hold| {
        let fits = hold.duration() <= HOLD_MAX;
        if !fits {
            field.reject(report, "a request is in flight for at most 24h; write 24h or less");
        }
        fits
    })
}
