//! Algorithms with a window: sliding, fixed, and by the calendar.

use super::{
    super::doubts::doubt_window_of_one,
    common::{Counting, choice, requests_and_window},
};
use crate::{
    algorithm::{Algorithm, Calendar, Period, Schedule, SlidingLog, Zone},
    limit::{Unit, Window},
    rules::{
        semantics::Semantics,
        yaml::{Field, Fields, Report, quoted},
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
    let is_calendar = fields.flag("calendar", report);
    let (aligned, time_zone) = (fields.take("aligned"), fields.take("time_zone"));
    let (limit, window) = requests_and_window(fields, semantics, report)?;
    let schedule = if is_calendar {
        if let Some(aligned) = aligned {
            aligned.reject(report, "windows of the calendar begin with it; remove this or `calendar`");
        }
        calendar(fields, window, time_zone, report).map(Schedule::Calendar)?
    } else {
        if let Some(time_zone) = time_zone
            && fields.take("schedule").is_none()
        {
            let message =
                "only a calendar or a schedule has a time zone; add `calendar: true` or remove this";
            time_zone.reject(report, message);
        }
        match is_from_first_hit(aligned.as_ref(), report) {
            true => Schedule::FirstHit(window),
            false => Schedule::Clock(window),
        }
    };
    Some(Counting { requests: limit, window, algorithm: Algorithm::fixed_window(limit, schedule) })
}

fn calendar(
    fields: &mut Fields<'_>,
    window: Window,
    time_zone: Option<Field<'_>>,
    report: &mut Report<'_>,
) -> Option<Calendar> {
    let zone = match &time_zone {
        None => Some(Zone::UTC),
        Some(field) => zone(field, report),
    };
    // A calendar applies to named units only: seven days are not a calendar week, and thirty days not a month.
    let is_named = fields.take("unit").is_some() && fields.take("unit_multiplier").is_none();
    let unit = Unit::of_window(window).filter(|_| is_named);
    let period = match unit {
        Some(Unit::Day) => Period::Day,
        Some(Unit::Week) => Period::Week,
        Some(Unit::Month) => Period::Month,
        Some(Unit::Year) => Period::Year,
        Some(Unit::Second | Unit::Minute | Unit::Hour) | None => {
            let message =
                "the calendar has days, weeks, months and years; write `unit: day` (or week, month, year)";
            if let Some(field) = fields.take("calendar") {
                field.reject(report, message);
            }
            return None;
        }
    };
    zone.map(|zone| Calendar::new(period, zone))
}

/// The time zone of this name.
pub(in super::super) fn zone(field: &Field<'_>, report: &mut Report<'_>) -> Option<Zone> {
    let name = field.text(report)?;
    let zone = Zone::named(name);
    if zone.is_none() {
        let remedy = "write one of the IANA database, such as Europe/Berlin";
        field.reject(report, format!("{} is not a time zone; {remedy}", quoted(name)));
    }
    zone
}
