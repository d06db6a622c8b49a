//! `calendar` of a fixed window: days, weeks, months or years of a place, from an anchor on.

use super::common::{Counting, requests};
use crate::{
    algorithm::{Algorithm, Anchor, Calendar, Period, Schedule, Zone},
    limit::Unit,
    rules::{
        grammar::window,
        semantics::Semantics,
        yaml::{Field, Fields, quoted},
    },
};

/// Reads `calendar: true`, whose period is the unit, or a period with its anchor, which needs no unit beside it.
pub(super) fn calendar_window(
    fields: &mut Fields<'_>,
    field: &Field<'_>,
    semantics: Semantics,
) -> Option<Counting> {
    if let Some(aligned) = fields.take("aligned") {
        aligned.reject("windows of the calendar begin with it; remove this or `calendar`");
    }
    let zone = zone(fields);
    let requests = requests(fields, semantics);
    let (period, anchor) = match field.is_map() {
        true => anchored(fields, field),
        false => unit(fields, field).map(|period| (period, Anchor::FIRST)),
    }?;
    let (requests, zone) = requests.zip(zone)?;
    let schedule = Schedule::Calendar(Calendar::anchored(period, anchor, zone));
    let algorithm = Algorithm::fixed_window(requests, schedule);
    Some(Counting { requests, window: period.unit().window(), algorithm })
}

/// The period of `unit`.
fn unit(fields: &mut Fields<'_>, field: &Field<'_>) -> Option<Period> {
    let window = window::window(fields)?;
    // A calendar applies to named units only: seven days are not a calendar week, and thirty days not a month.
    let is_named = fields.take("unit").is_some() && fields.take("unit_multiplier").is_none();
    let unit = Unit::of_window(window).filter(|_| is_named);
    let period = Period::ALL.into_iter().find(|period| Some(period.unit()) == unit);
    period.or_else(|| {
        field.refuse(
            "the calendar has days, weeks, months and years; write `unit: day` (or week, month, year)",
        )
    })
}

/// `month: 17`, and `unit` or `per` if they are there.
fn anchored(fields: &mut Fields<'_>, field: &Field<'_>) -> Option<(Period, Anchor)> {
    let beside = ["unit", "unit_multiplier", "per"].map(|name| fields.take(name));
    let mut periods = field.fields()?;
    let given = [
        (Period::Day, periods.take("day")),
        (Period::Week, periods.take("week")),
        (Period::Month, periods.take("month")),
        (Period::Year, periods.take("year")),
    ];
    periods.finish(|_| None);
    let mut given = given.into_iter().filter_map(|(period, anchor)| Some((period, anchor?)));
    let Some((period, anchor)) = given.next() else {
        return field.refuse("has no period; write `month: 17`, or day, week or year and where it begins");
    };
    if let Some((_, second)) = given.next() {
        return second.refuse("is a second period; keep one of the two");
    }
    for beside in beside.into_iter().flatten() {
        let unit = period.unit();
        if Unit::from_name(beside.as_text().unwrap_or_default()) != Some(unit) {
            beside.reject(format!("is not the period of `calendar`, which is one {unit}; remove this"));
        }
    }
    if anchor.is_map() {
        return of_entry(period, &anchor);
    }
    let text = anchor.text()?;
    let parsed = Anchor::parse(period, text).or_else(|| {
        let example = match period {
            Period::Day => "a time of the day such as 06:00",
            Period::Week => "a day of the week such as thursday, or \"thursday 09:00\"",
            Period::Month => "a day from 1 to 31 such as 17, or \"17 06:00\"",
            Period::Year => "a month and a day such as 04-06, or \"04-06 06:00\"",
        };
        anchor.refuse(format!("{} is not where a {} begins; write {example}", quoted(text), period.unit()))
    });
    parsed.map(|anchor| (period, anchor))
}

/// `{entry: billing_day}`. Only its form is checked here: see [`Walk::anchor`](super::super::walk::Walk::anchor).
fn of_entry(period: Period, anchor: &Field<'_>) -> Option<(Period, Anchor)> {
    if period == Period::Day {
        return anchor.refuse("a day begins at the same time for all keys; write it, such as 06:00");
    }
    let mut keys = anchor.fields()?;
    let missing = || anchor.refuse("names no entry; write `entry:` and the key whose value is the day");
    let entry = keys.take("entry").or_else(missing);
    keys.finish(|_| None);
    entry.map(|_| (period, Anchor::OF_ENTRY))
}

/// `time_zone`, or UTC.
pub(in super::super) fn zone(fields: &mut Fields<'_>) -> Option<Zone> {
    let Some(field) = fields.take("time_zone") else { return Some(Zone::UTC) };
    let name = field.text()?;
    Zone::named(name).or_else(|| {
        let remedy = "write one of the IANA database, such as Europe/Berlin";
        field.refuse(format!("{} is not a time zone; {remedy}", quoted(name)))
    })
}
