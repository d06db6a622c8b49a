//! `schedule` of a limit: other numbers at times of the week.

use super::{
    algorithm::{Counting, zone},
    walk::Walk,
};
use crate::{
    algorithm::{Hours, Timetable, minute_of_day, weekday},
    rules::{
        rule_limit::LimitSchedule,
        yaml::{Field, Fields, quoted},
    },
};

/// A schedule whose limit has no number yet.
pub(super) struct DeclaredSchedule {
    pub(super) timetable: Timetable,
    /// Hits per window, by the hours of the timetable.
    pub(super) requests: Vec<u32>,
}

const EVERY_DAY: u8 = 0x7f;
const MINUTES_PER_DAY: u16 = 24 * 60;

impl Walk<'_> {
    /// Reads the schedule of a limit, and its time zone.
    pub(super) fn schedule(&self, fields: &mut Fields<'_>, counting: &Counting) -> Option<DeclaredSchedule> {
        let field = fields.take("schedule")?;
        let time_zone = zone(fields);
        if !counting.algorithm.has_window() {
            let message = "is for limits of windows: the level of a bucket is counted in units of its rate; remove it, or write `algorithm: sliding_window` (or sliding_log, fixed_window)";
            return field.refuse(message);
        }
        if self.is_shared {
            let message = "cannot be counted in a shared store: a limit there has one number at all times; remove it, or write \
                           `counters: local` beside `domain`";
            return field.refuse(message);
        }
        let items = field.list()?;
        if items.is_empty() || items.len() > Timetable::HOURS_MAX {
            return field.refuse(format!("has {} items; write 1 to {}", items.len(), Timetable::HOURS_MAX));
        }
        let most = counting.algorithm.limit_max();
        let entries: Vec<_> = items.iter().map(|item| entry(item, most)).collect();
        let (hours, requests): (Vec<_>, _) =
            entries.into_iter().collect::<Option<Vec<_>>>()?.into_iter().unzip();
        Some(DeclaredSchedule { timetable: Timetable::new(time_zone?, hours), requests })
    }
}

/// Reads one item.
fn entry(item: &Field<'_>, most: u32) -> Option<(Hours, u32)> {
    let mut fields = item.fields()?;
    let days_field = fields.take_narrowing("days", "write days such as mon-fri").ok()?;
    let hours_field = fields.take_narrowing("hours", "write hours such as \"08:00-18:00\"").ok()?;
    if days_field.is_none() && hours_field.is_none() {
        item.reject("has no times; write `days: mon-fri` or `hours: \"08:00-18:00\"`, or both");
    }
    let days = days_field.as_ref().map_or(Some(EVERY_DAY), days);
    let minutes = hours_field.as_ref().map_or(Some((0, MINUTES_PER_DAY)), minutes);
    let requests = requests(&mut fields, most);
    fields.finish(|name| match name {
        "time_zone" | "zone" => Some("write `time_zone` beside `schedule`, for all of its items"),
        "unit" | "unit_multiplier" | "per" | "algorithm" => Some(
            "it belongs to the whole limit, beside `schedule`: its items differ in `requests_per_unit` alone",
        ),
        _ => None,
    });
    let (from, to) = minutes?;
    // The days are some and the minutes differ.
    Some((Hours::new(days?, from, to)?, requests?))
}

/// `requests_per_unit` or `unlimited` of an item.
fn requests(fields: &mut Fields<'_>, most: u32) -> Option<u32> {
    let unlimited = fields.flag("unlimited");
    let Some(field) = fields.take("requests_per_unit") else {
        if !unlimited {
            let message = "is missing; write how many requests are admitted per window (0 denies all), or `unlimited: true`";
            return fields.refuse("requests_per_unit", message);
        }
        if most < LimitSchedule::UNLIMITED {
            let message = format!("a log of all hits is too large; write `requests_per_unit` up to {most}");
            return fields.refuse("unlimited", message);
        }
        return Some(LimitSchedule::UNLIMITED);
    };
    if unlimited {
        field.reject("has no effect in unlimited hours; remove this or `unlimited`");
    }
    let requests = field.whole()?;
    if requests > most {
        return field.refuse(format!("a log of {requests} hits is too large; write a number up to {most}"));
    }
    Some(requests)
}

/// `mon-fri`, `sat,sun`, `[mon, wed]`: one bit for each day, from Monday on.
fn days(field: &Field<'_>) -> Option<u8> {
    let mut days = 0;
    for item in &field.list_or_text()? {
        for part in item.text()?.split(',').map(str::trim) {
            days |= day_range(part).or_else(|| {
                item.refuse(format!("{} is no day; write days such as mon-fri or sat,sun", quoted(part)))
            })?;
        }
    }
    if days == 0 {
        return field.refuse("has no days; write days such as mon-fri, or remove it for every day");
    }
    Some(days)
}

/// `fri`, or `fri-mon`.
fn day_range(text: &str) -> Option<u8> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (weekday(first.trim())?, weekday(last.trim())?);
    let length = (last + 7 - first) % 7;
    Some((0..=length).fold(0, |days, after| days | 1 << ((first + after) % 7)))
}

/// `08:00-18:00`: two different minutes of the day.
fn minutes(field: &Field<'_>) -> Option<(u16, u16)> {
    let text = field.text()?;
    let parsed = text
        .split_once('-')
        .and_then(|(from, to)| Some((minute_of_day(from.trim())?, minute_of_day(to.trim())?)));
    field.refuse(match parsed {
        Some((from, to)) if from == to => "is no time at all; write 00:00-24:00 for the whole day".to_owned(),
        Some((MINUTES_PER_DAY, _)) => "begins with the next day; write 00:00 and the day after".to_owned(),
        Some(both) => return Some(both),
        None => format!("{} is not a time of the day; write hours such as 08:00-18:00", quoted(text)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{LoadOptions, RuleSet, Source};

    #[test]
    fn days_are_names_ranges_and_lists() {
        assert_eq!(day_range("mon-fri"), Some(0b001_1111));
        assert_eq!(day_range("Fri-Mon"), Some(0b111_0001));
        assert_eq!(day_range("sunday"), Some(0b100_0000));
        assert_eq!(day_range("mon-mon"), Some(1));
        assert_eq!((day_range("mo"), day_range(""), day_range("mon-")), (None, None, None));
    }

    #[test]
    fn a_schedule_is_shown_as_it_was_written() {
        let text = "
domain: d
descriptors:
  - key: k
    rate_limit:
      unit: minute
      requests_per_unit: 10
      time_zone: europe/berlin
      schedule:
        - {days: mon-fri, hours: 08:00-18:00, requests_per_unit: 50}
        - {days: [sat, Sunday], unlimited: true}
        - {hours: '22:00-06:00', requests_per_unit: 0}
";
        let rules = RuleSet::parse(&[Source::file("r", text)], &LoadOptions::default());
        let rules = rules.unwrap_or_else(|errors| panic!("{errors}"));
        let limit = &rules.domain("d").unwrap().rules()[0].limits[0];
        let entries: Vec<String> =
            limit.schedule.as_ref().unwrap().entries().map(|entry| entry.to_string()).collect();
        let expected = [
            "50 mon-fri 08:00-18:00 Europe/Berlin",
            "unlimited sat-sun 00:00-24:00 Europe/Berlin",
            "0 mon-sun 22:00-06:00 Europe/Berlin",
        ];
        assert_eq!(entries, expected);
    }
}
