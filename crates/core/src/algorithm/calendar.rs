//! The days, weeks, months and years of a place.
//!
//! A period begins at its [`Anchor`]: by default at midnight of its first day. It begins at the first moment when the clocks of the place
//! show that time or a later time: if clocks are set forward past it, at the change; if they show it twice, at the first of the two. It
//! ends where the next period begins: each moment is in exactly one period.
//!
//! The binary contains the IANA time zone database (of the `jiff` crate): two machines with the same binary agree on the end of
//! a month, whatever else is installed on them.

use super::{Anchor, Period};
use crate::limit::Timestamp;
use jiff::{
    ToSpan,
    civil::{Date, DateTime, Weekday},
    tz::{AmbiguousOffset, TimeZone},
};
use serde::{Deserialize, Serialize};
use std::{
    fmt,
    hash::{Hash, Hasher},
};

/// A time zone of the IANA database.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
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

    /// Nanoseconds by which clocks are ahead of UTC.
    pub(super) fn offset_nanos(&self, now: Timestamp) -> i128 {
        i128::from(self.0.to_offset(instant(now.as_nanos())).seconds()) * 1_000_000_000
    }

    /// The first moment at which clocks show `time` or a later time, in nanoseconds since the epoch.
    fn first_nanos(&self, time: DateTime) -> i128 {
        let first = match self.0.to_ambiguous_timestamp(time).offset() {
            AmbiguousOffset::Unambiguous { offset } | AmbiguousOffset::Fold { before: offset, .. } => {
                offset.to_timestamp(time)
            }
            // By the clock that runs after the change, the skipped time is before it.
            AmbiguousOffset::Gap { after, .. } => after
                .to_timestamp(time)
                .map(|before| self.0.following(before).next().map_or(before, |change| change.timestamp())),
        };
        first.expect(IN_RANGE).as_nanosecond()
    }

    /// The next moment after `now` at which clocks may be changed; none before the end of time.
    pub(super) fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let change = self.0.following(instant(now.as_nanos())).next()?;
        u64::try_from(change.timestamp().as_nanosecond()).ok().map(Timestamp::from_nanos)
    }
}

/// Reason why dates are representable: those of jiff end in the year 9999.
const IN_RANGE: &str = "the years before 2556 are representable";

fn instant(nanos: u64) -> jiff::Timestamp {
    jiff::Timestamp::from_nanosecond(i128::from(nanos))
        .expect("2^64 nanoseconds end in the year 2554, a timestamp in 9999")
}

impl Hash for Zone {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl From<Zone> for String {
    fn from(zone: Zone) -> Self {
        zone.name().to_owned()
    }
}

impl TryFrom<String> for Zone {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        Self::named(&name).ok_or_else(|| format!("there is no time zone {name:?}"))
    }
}

/// The periods of a place.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(into = "Parts", try_from = "Parts")]
pub struct Calendar {
    period: Period,
    anchor: Anchor,
    zone: Zone,
}

impl Calendar {
    /// The `period`s of `zone` that begin at midnight of their first day.
    pub const fn new(period: Period, zone: Zone) -> Self {
        Self::anchored(period, Anchor::FIRST, zone)
    }

    /// The `period`s of `zone` that begin at the anchor, which is one of these periods.
    pub const fn anchored(period: Period, anchor: Anchor, zone: Zone) -> Self {
        Self { period, anchor, zone }
    }

    /// The same periods from another anchor on.
    pub(crate) fn from(&self, anchor: Anchor) -> Self {
        Self { anchor, ..self.clone() }
    }

    /// Days, weeks, months or years.
    pub const fn period(&self) -> Period {
        self.period
    }

    /// The anchor at which they begin.
    pub const fn anchor(&self) -> Anchor {
        self.anchor
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
        let mut date = instant(now).to_zoned(self.zone.0.clone()).date();
        // The beginning before this date's is past. In hours that clocks repeat, this date's may be past too, and the next.
        loop {
            let begin = self.zone.first_nanos(self.beginning(date));
            if begin > i128::from(now) {
                return u64::try_from(begin - 1).unwrap_or(u64::MAX);
            }
            date = self.next(date);
        }
    }

    /// The time at which a period begins in the week, month or year of `date`, or on the day itself.
    fn beginning(&self, date: Date) -> DateTime {
        let (month, day) = (self.anchor.month(), self.anchor.day());
        let in_month = |first: Date| first.with().day(day.min(first.days_in_month())).build();
        let day = match self.period {
            Period::Day => Ok(date),
            Period::Week => date.checked_add((day - 1 - date.weekday().to_monday_zero_offset()).days()),
            Period::Month => in_month(date.first_of_month()),
            Period::Year => date.first_of_year().with().month(month).build().and_then(in_month),
        };
        let (hour, minute) = self.anchor.time();
        day.expect(IN_RANGE).at(hour, minute, 0, 0)
    }

    /// The first day of the week, month or year after that of `date`, or the next day.
    fn next(&self, date: Date) -> Date {
        let next = match self.period {
            Period::Day => date.tomorrow(),
            Period::Week => date.nth_weekday(1, Weekday::Monday),
            Period::Month => date.first_of_month().checked_add(1.month()),
            Period::Year => date.first_of_year().checked_add(1.year()),
        };
        next.expect(IN_RANGE)
    }
}

/// A calendar as it is written; its anchor is read by its period.
#[derive(Serialize, Deserialize)]
struct Parts {
    period: Period,
    zone: Zone,
    /// None for periods that begin with their first day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    anchor: Option<WrittenAnchor>,
}

/// An anchor: as rule files have it, or of an entry.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum WrittenAnchor {
    At(String),
    OfEntry,
}

impl From<Calendar> for Parts {
    fn from(Calendar { period, anchor, zone }: Calendar) -> Self {
        let anchor = match anchor {
            Anchor::FIRST => None,
            Anchor::OF_ENTRY => Some(WrittenAnchor::OfEntry),
            anchor => Some(WrittenAnchor::At(anchor.text(period).to_string())),
        };
        Self { period, zone, anchor }
    }
}

impl TryFrom<Parts> for Calendar {
    type Error = String;

    fn try_from(Parts { period, zone, anchor }: Parts) -> Result<Self, String> {
        let anchor = match anchor {
            None => Anchor::FIRST,
            Some(WrittenAnchor::OfEntry) => Anchor::OF_ENTRY,
            Some(WrittenAnchor::At(text)) => Anchor::parse(period, &text)
                .ok_or_else(|| format!("a {} does not begin at {text:?}", period.unit()))?,
        };
        Ok(Self::anchored(period, anchor, zone))
    }
}

/// `month in UTC`, `month from 17 06:00 in Europe/Berlin`.
impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.period.unit().name())?;
        if self.anchor != Anchor::FIRST {
            write!(f, " from {}", self.anchor.text(self.period))?;
        }
        write!(f, " in {}", self.zone.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The beginning of the period after that of `now`, both as RFC 3339 writes them.
    fn next(period: Period, zone: &str, now: &str) -> String {
        end(&Calendar::new(period, Zone::named(zone).unwrap()), now)
    }

    fn end(calendar: &Calendar, now: &str) -> String {
        let now: jiff::Timestamp = now.parse().unwrap();
        let last = calendar.last(now.as_nanosecond() as u64);
        jiff::Timestamp::from_nanosecond(i128::from(last) + 1).unwrap().to_string()
    }

    /// The beginnings of so many periods after `now`.
    fn beginnings<const N: usize>(period: Period, anchor: &str, zone: &str, now: &str) -> [String; N] {
        let anchor = Anchor::parse(period, anchor).unwrap();
        let calendar = Calendar::anchored(period, anchor, Zone::named(zone).unwrap());
        let mut now = now.to_owned();
        std::array::from_fn(|_| {
            now = end(&calendar, &now);
            now.clone()
        })
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
    fn a_day_whose_midnight_occurs_twice_begins_at_the_first_one() {
        // In St. John's clocks were set back from 00:01 on 2010-11-07 to 23:01 on the 6th.
        let zone = "America/St_Johns";
        assert_eq!(next(Period::Day, zone, "2010-11-07T02:00:00Z"), "2010-11-07T02:30:00Z");
        for now in ["2010-11-07T02:30:30Z", "2010-11-07T02:40:00Z", "2010-11-07T03:40:00Z"] {
            assert_eq!(next(Period::Day, zone, now), "2010-11-08T03:30:00Z");
        }
        // In Havana from 01:00 to 00:00.
        let zone = "America/Havana";
        assert_eq!(next(Period::Day, zone, "2024-11-03T03:59:59Z"), "2024-11-03T04:00:00Z");
        assert_eq!(next(Period::Day, zone, "2024-11-03T04:30:00Z"), "2024-11-04T05:00:00Z");
    }

    #[test]
    fn a_period_begins_at_its_anchor() {
        use Period::{Day, Month, Week, Year};
        let noon = "2024-02-10T12:00:00Z"; // a Saturday
        assert_eq!(beginnings(Day, "06:00", "UTC", noon), ["2024-02-11T06:00:00Z", "2024-02-12T06:00:00Z"]);
        assert_eq!(beginnings(Day, "13:00", "UTC", noon), ["2024-02-10T13:00:00Z", "2024-02-11T13:00:00Z"]);
        assert_eq!(
            beginnings(Week, "thursday 09:00", "Europe/Berlin", noon),
            ["2024-02-15T08:00:00Z", "2024-02-22T08:00:00Z"]
        );
        assert_eq!(
            beginnings(Week, "saturday 12:00", "UTC", noon),
            ["2024-02-17T12:00:00Z", "2024-02-24T12:00:00Z"],
            "begins on its first nanosecond"
        );
        assert_eq!(beginnings(Month, "17", "UTC", noon), ["2024-02-17T00:00:00Z", "2024-03-17T00:00:00Z"]);
        assert_eq!(
            beginnings(Year, "04-06", "Europe/London", noon),
            ["2024-04-05T23:00:00Z", "2025-04-05T23:00:00Z"]
        );
    }

    #[test]
    fn a_window_of_a_month_from_the_31st_begins_on_the_last_day_of_a_shorter_month() {
        assert_eq!(
            beginnings(Period::Month, "31 06:00", "UTC", "2024-01-10T00:00:00Z"),
            [
                "2024-01-31T06:00:00Z",
                "2024-02-29T06:00:00Z",
                "2024-03-31T06:00:00Z",
                "2024-04-30T06:00:00Z",
                "2024-05-31T06:00:00Z"
            ]
        );
        assert_eq!(
            beginnings(Period::Year, "02-29", "UTC", "2024-01-10T00:00:00Z"),
            ["2024-02-29T00:00:00Z", "2025-02-28T00:00:00Z", "2026-02-28T00:00:00Z"]
        );
    }

    #[test]
    fn an_anchor_that_clocks_skip_begins_with_the_change() {
        // In Berlin 01:59:59 was followed by 03:00 on 2024-03-31.
        assert_eq!(
            beginnings(Period::Day, "02:30", "Europe/Berlin", "2024-03-30T00:00:00Z"),
            ["2024-03-30T01:30:00Z", "2024-03-31T01:00:00Z", "2024-04-01T00:30:00Z"]
        );
        // Samoa had no 30 December 2011.
        assert_eq!(
            beginnings(Period::Day, "06:00", "Pacific/Apia", "2011-12-29T12:00:00Z"),
            ["2011-12-29T16:00:00Z", "2011-12-30T10:00:00Z", "2011-12-30T16:00:00Z"]
        );
    }

    #[test]
    fn an_anchor_that_clocks_show_twice_begins_at_the_first_time() {
        // In Berlin clocks were set back from 03:00 to 02:00 on 2024-10-27.
        let expected = ["2024-10-27T00:30:00Z", "2024-10-28T01:30:00Z"];
        assert_eq!(beginnings(Period::Day, "02:30", "Europe/Berlin", "2024-10-26T12:00:00Z"), expected);
        // In the repeated hour, before 02:30 occurs again.
        assert_eq!(
            beginnings(Period::Day, "02:30", "Europe/Berlin", "2024-10-27T01:10:00Z"),
            [expected[1].to_owned()]
        );
    }

    proptest! {
        /// Any two moments of one window have the same end, and the moment before a window is in another window.
        #[test]
        fn each_instant_is_in_exactly_one_window(
            kind in 0_usize..4,
            (month, day, minute) in (1_u8..=12, 1_u8..=31, 0_u16..1440),
            zone in 0_usize..8,
            change in 0_usize..2_000,
            around in -200_000_i64..200_000,
            part in 0.0_f64..1.0,
        ) {
            let zones = ["UTC", "Europe/Berlin", "America/Havana", "America/St_Johns", "Pacific/Apia", "Asia/Beirut", "Australia/Lord_Howe", "Africa/Cairo"];
            let (period, zone) = (Period::ALL[kind], Zone::named(zones[zone]).unwrap());
            let time = format!("{:02}:{:02}", minute / 60, minute % 60);
            let text = match period {
                Period::Day => time,
                Period::Week => format!("{} {time}", super::super::DAY_NAMES[usize::from(day % 7)]),
                Period::Month => format!("{day} {time}"),
                Period::Year => format!("{month:02}-{:02} {time}", day.min(29)),
            };
            let calendar = Calendar::anchored(period, Anchor::parse(period, &text).unwrap(), zone);
            // Some hours from a change of the clocks, or anywhere.
            let anywhere = change as u64 * 800_000;
            let mut at = Timestamp::from_millis(anywhere * 1_000);
            if change % 4 > 0 && let Some(change) = calendar.zone().next_change(at) {
                at = change;
            }
            let now = at.as_nanos().saturating_add_signed(around * 1_000_000_000);
            let last = calendar.last(now);
            prop_assert!(last >= now);
            let between = now + ((last - now) as f64 * part) as u64;
            prop_assert_eq!(calendar.last(between.min(last)), last, "one window");
            prop_assert_eq!(calendar.last(last), last);
            prop_assert!(calendar.last(last + 1) > last, "the reset is the first instant of the next window");
            let longest = match period { Period::Day => 50, Period::Week => 8 * 24, Period::Month => 33 * 24, Period::Year => 368 * 24 };
            prop_assert!(last - now < longest * 3_600_000_000_000);
        }
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
