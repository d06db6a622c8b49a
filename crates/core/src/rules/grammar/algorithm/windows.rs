//! Algorithms with a window: sliding and fixed.

use super::{
    super::doubts::doubt_window_of_one,
    calendar,
    common::{Counting, choice, requests_and_window},
};
use crate::{
    algorithm::{Algorithm, Schedule, SlidingLog},
    limit::Window,
    rules::{
        semantics::Semantics,
        yaml::{Field, Fields, Report},
    },
};

pub(super) fn sliding_window(
    fields: &mut Fields<'_>,
    semantics: Semantics,
    report: &mut Report<'_>,
) -> Option<Counting> {
    let precision = precision(fields, report);
    let (limit, window) = requests_and_window(fields, semantics, report)?;
    if semantics == Semantics::Exact && matches!(precision, None | Some(1)) {
        doubt_window_of_one(fields, limit, report);
    }
    let algorithm = Algorithm::sliding_window(limit, window, precision.unwrap_or(1));
    Some(Counting { requests: limit, window, algorithm })
}

/// `precision`: the number of sub-windows.
pub(in super::super) fn precision(fields: &mut Fields<'_>, report: &mut Report<'_>) -> Option<u8> {
    let field = fields.take("precision")?;
    let precision = u8::try_from(field.whole(report)?).ok().filter(|&precision| precision > 0);
    if precision.is_none() {
        field.reject(report, "a window has 1 to 255 sub-windows; write a number from that range");
    }
    precision
}

/// `aligned`: whether windows begin with their first hit.
pub(in super::super) fn is_from_first_hit(aligned: Option<&Field<'_>>, report: &mut Report<'_>) -> bool {
    let alignments = [("clock", false), ("first_hit", true)];
    aligned.and_then(|field| choice(field, report, "an alignment", &alignments)).unwrap_or(false)
}

pub(super) fn sliding_log(
    fields: &mut Fields<'_>,
    semantics: Semantics,
    report: &mut Report<'_>,
) -> Option<Counting> {
    let (limit, window) = requests_and_window(fields, semantics, report)?;
    if let Some(field) = fields.take("requests_per_unit").filter(|_| limit > SlidingLog::LIMIT_MAX) {
        let message = format!(
            "a log of {limit} hits is too large (at most {}); \
             write `algorithm: sliding_window` and `precision: 60`",
            SlidingLog::LIMIT_MAX
        );
        field.reject(report, message);
        return None;
    }
    Some(Counting { requests: limit, window, algorithm: log(limit, window, limit) })
}

/// A log without other keys.
pub(super) fn log(limit: u32, window: Window, _: u32) -> Algorithm {
    Algorithm::SlidingLog(SlidingLog { limit, window })
}

pub(super) fn fixed_window(
    fields: &mut Fields<'_>,
    semantics: Semantics,
    report: &mut Report<'_>,
) -> Option<Counting> {
    let calendar_field = fields.take("calendar");
    if let Some(field) =
        calendar_field.as_ref().filter(|field| field.is_map() || field.boolean(report) == Some(true))
    {
        return calendar::calendar_window(fields, field, semantics, report);
    }
    let (aligned, time_zone) = (fields.take("aligned"), fields.take("time_zone"));
    let (limit, window) = requests_and_window(fields, semantics, report)?;
    if let Some(time_zone) = time_zone
        && fields.take("schedule").is_none()
    {
        let message = "only a calendar or a schedule has a time zone; add `calendar: true` or remove this";
        time_zone.reject(report, message);
    }
    let schedule = match is_from_first_hit(aligned.as_ref(), report) {
        true => Schedule::FirstHit(window),
        false => Schedule::Clock(window),
    };
    Some(Counting { requests: limit, window, algorithm: Algorithm::fixed_window(limit, schedule) })
}
