//! The days, weeks, months and years of a place.
//!
//! The binary contains the IANA time zone database (of the `jiff` crate): two machines with the same binary agree on the end of
//! a month, whatever else is installed on them.

use crate::limit::{Timestamp, Unit};
use jiff::{
    ToSpan,
    civil::{Date, Time, Weekday},
    tz::TimeZone,
};
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};

/// A period of the calendar.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Period {
    /// From midnight to midnight: 23 or 25 hours long when the clocks change.
    Day,
    /// From Monday to Monday, as ISO 8601 has it.
    Week,
    /// From the first to the first.
    Month,
    /// From January the first.
    Year,
}

impl Period {
    /// The unit that a rule file has for it.
    pub const fn unit(self) -> Unit {
        match self {
            Self::Day => Unit::Day,
            Self::Week => Unit::Week,
            Self::Month => Unit::Month,
            Self::Year => Unit::Year,
        }
    }

    /// Its letter in a shared store.
    pub(super) const fn letter(self) -> u8 {
        match self {
            Self::Day => b'd',
            Self::Week => b'w',
            Self::Month => b'm',
            Self::Year => b'y',
        }
    }

    /// The period of this letter.
    pub(super) fn of_letter(letter: u8) -> Option<Self> {
        [Self::Day, Self::Week, Self::Month, Self::Year].into_iter().find(|period| period.letter() == letter)
    }
}

/// A period as format 1 of snapshots has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PeriodRecord {
    Day,
    Week,
    Month,
    Year,
}

impl From<Period> for PeriodRecord {
    fn from(period: Period) -> Self {
        match period {
            Period::Day => Self::Day,
            Period::Week => Self::Week,
            Period::Month => Self::Month,
            Period::Year => Self::Year,
        }
    }
}

impl From<PeriodRecord> for Period {
    fn from(record: PeriodRecord) -> Self {
        match record {
            PeriodRecord::Day => Self::Day,
            PeriodRecord::Week => Self::Week,
            PeriodRecord::Month => Self::Month,
            PeriodRecord::Year => Self::Year,
        }
    }
}

/// A time zone of the IANA database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Zone(TimeZone);

impl Zone {
    /// Coordinated universal time.
    pub const UTC: Self = Self(TimeZone::UTC);

    /// The zone of that name, such as `Europe/Berlin`, in any case.
    pub fn named(name: &str) -> Option<Self> {
        TimeZone::get(name).ok().filter(|zone| zone.iana_name().is_some()).map(Self)
    }

    /// The name in the IANA database.
    pub fn name(&self) -> &str {
        self.0.iana_name().expect("a zone is made from its name only")
    }

    /// What clocks are ahead of UTC.
    pub(super) fn offset_nanos(&self, now: Timestamp) -> i128 {
        i128::from(self.0.to_offset(instant(now.as_nanos())).seconds()) * 1_000_000_000
    }

    /// The next moment after `now` at which clocks may be changed; none before the end of time.
    pub(super) fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let change = self.0.following(instant(now.as_nanos())).next()?;
        u64::try_from(change.timestamp().as_nanosecond()).ok().map(Timestamp::from_nanos)
    }
}

fn instant(nanos: u64) -> jiff::Timestamp {
    jiff::Timestamp::from_nanosecond(i128::from(nanos))
        .expect("2^64 nanoseconds end in the year 2554, a timestamp in 9999")
}

impl Hash for Zone {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

/// A period in a place.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Calendar {
    period: Period,
    zone: Zone,
}

impl Calendar {
    /// The `period`s of `zone`.
    pub const fn new(period: Period, zone: Zone) -> Self {
        Self { period, zone }
    }

    /// Days, weeks, months or years.
    pub const fn period(&self) -> Period {
        self.period
    }

    /// The time zone.
    pub const fn zone(&self) -> &Zone {
        &self.zone
    }

    /// The first moment after the period that `now` lies in.
    pub fn end(&self, now: Timestamp) -> Timestamp {
        Timestamp::from_nanos(self.last(now.as_nanos()).saturating_add(1))
    }

    /// The last nanosecond of the period that `now`, in nanoseconds since the epoch, lies in; never before `now`.
    pub(super) fn last(&self, now: u64) -> u64 {
        let next = self.next(instant(now).to_zoned(self.zone.0.clone()).date()).to_datetime(Time::midnight());
        // If clocks are set back just after midnight, a day begins twice. In the repeated hour before the second
        // beginning, the first one is past.
        let beginnings = self.zone.0.to_ambiguous_zoned(next);
        [beginnings.clone().compatible().and_then(|midnight| midnight.start_of_day()), beginnings.later()]
            .into_iter()
            .map(|beginning| {
                beginning.expect("the years before 2555 are representable").timestamp().as_nanosecond()
            })
            .map(|beginning| u64::try_from(beginning - 1).unwrap_or(u64::MAX))
            .find(|&last| last >= now)
            .unwrap_or(now)
    }

    /// The first day of the period after that of `date`.
    fn next(&self, date: Date) -> Date {
        let next = match self.period {
            Period::Day => date.tomorrow(),
            Period::Week => date.nth_weekday(1, Weekday::Monday),
            Period::Month => date.first_of_month().checked_add(1.month()),
            Period::Year => date.first_of_year().checked_add(1.year()),
        };
        next.expect("the years before 2555 are representable")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The beginning of the period after the one `now` is in, both as RFC 3339 writes them.
    fn next(period: Period, zone: &str, now: &str) -> String {
        let now: jiff::Timestamp = now.parse().unwrap();
        let calendar = Calendar::new(period, Zone::named(zone).unwrap());
        let last = calendar.last(now.as_nanosecond() as u64);
        jiff::Timestamp::from_nanosecond(i128::from(last) + 1).unwrap().to_string()
    }

    #[test]
    fn periods_end_with_the_days_of_the_place() {
        use Period::{Day, Month, Week, Year};
        let noon = "2024-02-10T12:00:00Z"; // a Saturday
        assert_eq!(next(Day, "UTC", noon), "2024-02-11T00:00:00Z");
        assert_eq!(next(Week, "UTC", noon), "2024-02-12T00:00:00Z");
        assert_eq!(next(Month, "UTC", noon), "2024-03-01T00:00:00Z");
        assert_eq!(next(Year, "UTC", noon), "2025-01-01T00:00:00Z");
        assert_eq!(next(Day, "Asia/Kolkata", noon), "2024-02-10T18:30:00Z");
        assert_eq!(next(Month, "Pacific/Auckland", noon), "2024-02-29T11:00:00Z");
    }

    #[test]
    fn a_period_begins_on_its_first_nanosecond() {
        assert_eq!(next(Period::Week, "UTC", "2024-02-12T00:00:00Z"), "2024-02-19T00:00:00Z");
        assert_eq!(next(Period::Month, "UTC", "2024-01-31T23:59:59.999999999Z"), "2024-02-01T00:00:00Z");
        assert_eq!(next(Period::Month, "UTC", "2024-02-01T00:00:00Z"), "2024-03-01T00:00:00Z");
    }

    #[test]
    fn a_day_on_which_clocks_change_is_an_hour_shorter_or_longer() {
        assert_eq!(next(Period::Day, "Europe/Berlin", "2024-03-30T23:00:00Z"), "2024-03-31T22:00:00Z");
        assert_eq!(next(Period::Day, "Europe/Berlin", "2024-10-26T22:00:00Z"), "2024-10-27T23:00:00Z");
    }

    #[test]
    fn a_day_without_midnight_begins_at_the_clock_change() {
        // In Cairo 23:59:59 was followed by 01:00 on 2024-04-26.
        assert_eq!(next(Period::Day, "Africa/Cairo", "2024-04-25T20:00:00Z"), "2024-04-25T22:00:00Z");
    }

    #[test]
    fn a_day_that_begins_twice_does_not_end_in_the_past() {
        // In St. John's clocks were set back from 00:01 on 2010-11-07 to 23:01 on the 6th.
        let zone = "America/St_Johns";
        assert_eq!(next(Period::Day, zone, "2010-11-07T02:00:00Z"), "2010-11-07T02:30:00Z");
        assert_eq!(next(Period::Day, zone, "2010-11-07T02:40:00Z"), "2010-11-07T03:30:00Z");
        assert_eq!(next(Period::Day, zone, "2010-11-07T03:40:00Z"), "2010-11-08T03:30:00Z");
    }

    #[test]
    fn the_end_of_time_is_in_a_period_too() {
        let calendar = Calendar::new(Period::Year, Zone::UTC);
        assert_eq!(calendar.last(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_zone_has_a_name_of_the_database() {
        assert_eq!(Zone::named("europe/berlin").unwrap().name(), "Europe/Berlin");
        assert_eq!(Zone::UTC.name(), "UTC");
        assert!(Zone::named("Middle/Earth").is_none());
    }
}
