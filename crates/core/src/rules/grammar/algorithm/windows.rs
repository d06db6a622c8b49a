//! Algorithms with a window: sliding and fixed.

use super::{
    super::doubts::doubt_window_of_one,
    calendar,
    common::{Counting, choice, requests_and_window},
};
use crate::{
    algorithm::{Algorithm, Schedule, SlidingLog},
    rules::{semantics::Semantics, yaml::Fields},
};

pub(super) fn sliding_window(fields: &mut Fields<'_>, semantics: Semantics) -> Option<Counting> {
    let precision = precision(fields);
    let (limit, window) = requests_and_window(fields, semantics)?;
    if semantics == Semantics::Exact && matches!(precision, None | Some(1)) {
        doubt_window_of_one(fields, limit);
    }
    let algorithm = Algorithm::sliding_window(limit, window, precision.unwrap_or(1));
    Some(Counting { requests: limit, window, algorithm })
}

/// `precision`: the number of sub-windows.
pub(in super::super) fn precision(fields: &mut Fields<'_>) -> Option<u8> {
    let field = fields.take("precision")?;
    let precision = u8::try_from(field.whole()?).ok().filter(|&precision| precision > 0);
    precision.or_else(|| field.refuse("a window has 1 to 255 sub-windows; write a number from that range"))
}

/// `aligned`: whether windows begin with their first hit.
pub(in super::super) fn is_from_first_hit(fields: &mut Fields<'_>) -> bool {
    let alignments = [("clock", false), ("first_hit", true)];
    fields.take("aligned").and_then(|field| choice(&field, "an alignment", &alignments)).unwrap_or(false)
}

pub(super) fn sliding_log(fields: &mut Fields<'_>, semantics: Semantics) -> Option<Counting> {
    let (limit, window) = requests_and_window(fields, semantics)?;
    if let Some(field) = fields.take("requests_per_unit").filter(|_| limit > SlidingLog::LIMIT_MAX) {
        let most = SlidingLog::LIMIT_MAX;
        return field.refuse(format!(
            "a log of {limit} hits is too large (at most {most}); write `algorithm: sliding_window` and `precision: 60`"
        ));
    }
    Some(Counting { requests: limit, window, algorithm: Algorithm::SlidingLog(SlidingLog { limit, window }) })
}

pub(super) fn fixed_window(fields: &mut Fields<'_>, semantics: Semantics) -> Option<Counting> {
    if let Some(field) = fields.take("calendar")
        && (field.is_map() || field.boolean() == Some(true))
    {
        return calendar::calendar_window(fields, &field, semantics);
    }
    let is_from_first_hit = is_from_first_hit(fields);
    let time_zone = fields.take("time_zone");
    let (limit, window) = requests_and_window(fields, semantics)?;
    if let Some(time_zone) = time_zone
        && fields.take("schedule").is_none()
    {
        let message = "only a calendar or a schedule has a time zone; add `calendar: true` or remove this";
        time_zone.reject(message);
    }
    let schedule = if is_from_first_hit { Schedule::FirstHit(window) } else { Schedule::Clock(window) };
    Some(Counting { requests: limit, window, algorithm: Algorithm::fixed_window(limit, schedule) })
}
