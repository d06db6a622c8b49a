//! Times of the week in a place, and which of several counts at a moment.
//!
//! Times are those that clocks in the place show: hours that a change of the clocks skips do not occur, and hours that it repeats
//! occur twice. Between two changes of the clocks every week is alike, so that one week is enough to compute any moment.

use super::{Zone, anchor::DAY_NAMES};
use crate::limit::Timestamp;
use std::fmt;

const MINUTES_PER_DAY: u16 = 24 * 60;
const MINUTES_PER_WEEK: u16 = 7 * MINUTES_PER_DAY;
const MINUTE_NANOS: i128 = 60 * 1_000_000_000;
const WEEK_NANOS: i128 = MINUTES_PER_WEEK as i128 * MINUTE_NANOS;

/// The epoch was on a Thursday; weeks begin on Monday.
const EPOCH_IN_WEEK_NANOS: i128 = 3 * MINUTES_PER_DAY as i128 * MINUTE_NANOS;

/// Clocks of a place change a few times a year. More changes than these within two weeks are not searched.
const CHANGES_MAX: usize = 16;

/// Hours of some days of the week.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Hours {
    /// The days on which they begin: one bit each, from Monday on.
    days: u8,
    /// The minute of the day at which they begin.
    from: u16,
    /// The minute of the day at which they end: of the next day, if it is not after the beginning.
    to: u16,
}

impl Hours {
    /// From one minute of the day to another, at most 1440, on the days of these bits, from Monday on. None if that is no time at all.
    pub fn new(days: u8, from: u16, to: u16) -> Option<Self> {
        let is_valid = days & 0x7f == days && days != 0 && from < MINUTES_PER_DAY && to <= MINUTES_PER_DAY;
        (is_valid && from != to).then_some(Self { days, from, to })
    }

    /// The minutes of the week that they consist of.
    fn minutes(self) -> impl Iterator<Item = u16> {
        let length =
            if self.to > self.from { self.to - self.from } else { self.to + MINUTES_PER_DAY - self.from };
        let days = (0..7).filter(move |day| self.days & 1 << day != 0);
        days.flat_map(move |day| {
            let begin = day * MINUTES_PER_DAY + self.from;
            (begin..begin + length).map(|minute| minute % MINUTES_PER_WEEK)
        })
    }
}

/// As a rule file has them: `mon-fri 08:00-18:00`.
impl fmt::Display for Hours {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let has = |day: usize| self.days & 1 << day != 0;
        let mut day = 0;
        while day < 7 {
            let end = (day..7).find(|&day| !has(day)).unwrap_or(7);
            let separator = if self.days & ((1 << day) - 1) == 0 { "" } else { "," };
            match end - day {
                0 => {}
                1 => write!(f, "{separator}{}", DAY_NAMES[day])?,
                _ => write!(f, "{separator}{}-{}", DAY_NAMES[day], DAY_NAMES[end - 1])?,
            }
            day = end + 1;
        }
        let [from, to] = [self.from, self.to].map(|minute| (minute / 60, minute % 60));
        write!(f, " {:02}:{:02}-{:02}:{:02}", from.0, from.1, to.0, to.1)
    }
}

/// Several hours in a place. Where some overlap, the first count.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timetable {
    zone: Zone,
    hours: Box<[Hours]>,
    /// The parts of a week: the minute at which each begins, and the index of the hours that count. The first begins with the week.
    parts: Box<[(u16, Option<u8>)]>,
}

/// Hours that overlap others before them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overlap {
    /// Their index.
    pub hours: usize,
    /// The index of the first hours that they overlap.
    pub first: usize,
    /// Whether all of them are within hours before them, so that they never count.
    pub is_whole: bool,
}

impl Timetable {
    /// The most hours of a timetable.
    pub const HOURS_MAX: usize = 32;

    /// These hours, as clocks in the place show them; further hours than [`Self::HOURS_MAX`] do not count.
    pub fn new(zone: Zone, hours: impl IntoIterator<Item = Hours>) -> Self {
        let hours: Box<[Hours]> = hours.into_iter().take(Self::HOURS_MAX).collect();
        let mut week = [None; MINUTES_PER_WEEK as usize];
        for (hours, index) in hours.iter().zip(0..) {
            hours.minutes().for_each(|minute| _ = week[usize::from(minute)].get_or_insert(index));
        }
        let numbered = (0..).zip(week);
        let mut parts: Vec<(u16, Option<u8>)> = numbered.collect();
        parts.dedup_by_key(|(_, index)| *index);
        Self { zone, hours, parts: parts.into() }
    }

    /// The place.
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// The hours.
    pub fn hours(&self) -> &[Hours] {
        &self.hours
    }

    /// The index of the hours that count at a moment.
    #[inline]
    pub fn at(&self, now: Timestamp) -> Option<usize> {
        let minute = (self.in_week(now) / MINUTE_NANOS) as u16;
        let part = self.parts.partition_point(|(begin, _)| *begin <= minute) - 1;
        self.parts[part].1.map(usize::from)
    }

    /// The first moment from `from` on at which these hours count, or none do; none if there is no such moment.
    pub fn first_at(&self, hours: Option<usize>, from: Timestamp) -> Option<Timestamp> {
        let mut from = from;
        for _ in 0..CHANGES_MAX {
            if self.at(from) == hours {
                return Some(from);
            }
            let in_week = self.in_week(from);
            let begins = self.parts.iter().filter(|(_, index)| index.map(usize::from) == hours);
            let waits =
                begins.map(|(begin, _)| (i128::from(*begin) * MINUTE_NANOS - in_week).rem_euclid(WEEK_NANOS));
            let wait = u64::try_from(waits.min()?).expect("a week");
            // Past the end of time nothing begins.
            let begin = Timestamp::from_nanos(from.as_nanos().checked_add(wait)?);
            match self.zone.next_change(from) {
                Some(change) if change <= begin => from = change,
                _ => return Some(begin),
            }
        }
        None
    }

    /// The hours that overlap others before them.
    pub fn overlaps(&self) -> Vec<Overlap> {
        let counts = |index: usize| self.parts.iter().any(|(_, part)| *part == u8::try_from(index).ok());
        let overlap = |(index, hours): (usize, &Hours)| {
            let minutes: Vec<u16> = hours.minutes().collect();
            let overlaps = |other: &&Hours| other.minutes().any(|minute| minutes.contains(&minute));
            let first = self.hours[..index].iter().position(|other| overlaps(&other))?;
            Some(Overlap { hours: index, first, is_whole: !counts(index) })
        };
        self.hours.iter().enumerate().filter_map(overlap).collect()
    }

    /// Nanoseconds since the week began, as clocks in the place show it.
    fn in_week(&self, now: Timestamp) -> i128 {
        let local = i128::from(now.as_nanos()) + self.zone.offset_nanos(now);
        (local + EPOCH_IN_WEEK_NANOS).rem_euclid(WEEK_NANOS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    const MON_FRI: u8 = 0b001_1111;
    const SUN: u8 = 0b100_0000;

    fn at(text: &str) -> Timestamp {
        let instant: jiff::Timestamp = text.parse().unwrap();
        Timestamp::from_nanos(u64::try_from(instant.as_nanosecond()).unwrap())
    }

    fn text(time: Option<Timestamp>) -> String {
        let instant = |time: Timestamp| jiff::Timestamp::from_nanosecond(time.as_nanos().into()).unwrap();
        time.map_or("never".to_owned(), |time| instant(time).to_string())
    }

    fn hours(days: u8, from: u16, to: u16) -> Hours {
        Hours::new(days, from * 60, to * 60).unwrap()
    }

    fn in_zone(zone: &str, hours: &[Hours]) -> Timetable {
        Timetable::new(Zone::named(zone).unwrap(), hours.iter().copied())
    }

    #[test]
    fn office_hours_begin_and_end_with_the_clocks_of_the_place() {
        let office = in_zone("Europe/Berlin", &[hours(MON_FRI, 8, 18)]);
        // A Friday in winter, an hour ahead of UTC.
        assert_eq!(office.at(at("2024-02-09T06:59:59.999999999Z")), None);
        assert_eq!(office.at(at("2024-02-09T07:00:00Z")), Some(0));
        assert_eq!(office.at(at("2024-02-09T16:59:59.999999999Z")), Some(0));
        assert_eq!(office.at(at("2024-02-09T17:00:00Z")), None);
        assert_eq!(text(office.first_at(Some(0), at("2024-02-09T17:00:00Z"))), "2024-02-12T07:00:00Z");
        assert_eq!(text(office.first_at(None, at("2024-02-12T08:00:00Z"))), "2024-02-12T17:00:00Z");
        // Over the weekend in which summer time begins.
        assert_eq!(text(office.first_at(Some(0), at("2024-03-29T17:00:00Z"))), "2024-04-01T06:00:00Z");
    }

    #[test]
    fn hours_past_midnight_belong_to_the_day_on_which_they_begin() {
        let night = in_zone("UTC", &[hours(SUN, 22, 6)]);
        assert_eq!(night.at(at("2024-02-25T21:59:00Z")), None);
        assert_eq!(night.at(at("2024-02-25T22:00:00Z")), Some(0));
        assert_eq!(night.at(at("2024-02-26T05:59:00Z")), Some(0), "on Monday, as the week begins");
        assert_eq!(night.at(at("2024-02-26T06:00:00Z")), None);
        assert_eq!(night.at(at("2024-02-25T05:00:00Z")), None, "began on Saturday");
    }

    #[test]
    fn a_leap_day_is_a_day_of_its_week() {
        let thursdays = in_zone("UTC", &[hours(0b1000, 0, 24)]);
        assert_eq!(text(thursdays.first_at(Some(0), at("2024-02-23T00:00:00Z"))), "2024-02-29T00:00:00Z");
        assert_eq!(text(thursdays.first_at(None, at("2024-02-29T00:00:00Z"))), "2024-03-01T00:00:00Z");
    }

    #[test]
    fn hours_that_clocks_skip_do_not_occur_and_repeated_ones_occur_twice() {
        let night = in_zone("Europe/Berlin", &[hours(SUN, 2, 3)]);
        assert_eq!(
            text(night.first_at(Some(0), at("2024-03-25T00:00:00Z"))),
            "2024-04-07T00:00:00Z",
            "skipped"
        );
        let repeated = at("2024-10-27T00:00:00Z");
        assert_eq!(text(night.first_at(None, repeated)), "2024-10-27T02:00:00Z", "two hours long");
        let evening = in_zone("America/St_Johns", &[hours(0x7f, 0, 1)]);
        // Clocks were set back from 00:01 to 23:01 the day before.
        assert_eq!(text(evening.first_at(None, at("2010-11-07T02:30:00Z"))), "2010-11-07T02:31:00Z");
        assert_eq!(text(evening.first_at(Some(0), at("2010-11-07T02:31:00Z"))), "2010-11-07T03:30:00Z");
    }

    #[test]
    fn the_first_of_overlapping_hours_counts_and_overlaps_are_found() {
        let all = [hours(MON_FRI, 8, 12), hours(MON_FRI, 10, 18), hours(0b1, 9, 11), hours(SUN, 0, 24)];
        let table = in_zone("UTC", &all);
        assert_eq!(table.at(at("2024-02-26T11:00:00Z")), Some(0));
        assert_eq!(table.at(at("2024-02-26T12:00:00Z")), Some(1));
        let overlap = |hours, is_whole| Overlap { hours, first: 0, is_whole };
        assert_eq!(table.overlaps(), [overlap(1, false), overlap(2, true)]);
        assert_eq!(table.first_at(Some(2), at("2024-02-26T11:00:00Z")), None);
        assert_eq!(in_zone("UTC", &[hours(0x7f, 0, 24)]).first_at(None, at("2024-02-26T11:00:00Z")), None);
    }

    #[test]
    fn hours_are_shown_as_a_rule_file_has_them() {
        assert_eq!(hours(MON_FRI, 8, 18).to_string(), "mon-fri 08:00-18:00");
        assert_eq!(hours(0b110_0101, 22, 24).to_string(), "mon,wed,sat-sun 22:00-24:00");
        assert!(
            Hours::new(0, 1, 2).is_none()
                && Hours::new(1, 2, 2).is_none()
                && Hours::new(1, 1440, 2).is_none()
        );
    }

    #[test]
    fn the_end_of_time_is_in_a_week_too() {
        let table = in_zone("Europe/Berlin", &[hours(MON_FRI, 8, 18)]);
        let end = Timestamp::from_nanos(u64::MAX);
        let now = table.at(end);
        let other = if now.is_none() { Some(0) } else { None };
        assert_eq!(table.first_at(other, end), None);
    }

    /// The index of the first hours that have the day and minute that clocks in the place show.
    fn naive(zone: &str, all: &[Hours], now: Timestamp) -> Option<usize> {
        let instant = jiff::Timestamp::from_nanosecond(now.as_nanos().into()).unwrap();
        let local = instant.in_tz(zone).unwrap();
        let day = local.weekday().to_monday_zero_offset();
        let minute = local.hour() as u16 * 60 + local.minute() as u16;
        let on = |hours: &Hours, day: i8| hours.days & 1 << day.rem_euclid(7) != 0;
        all.iter().position(|hours| match hours.from < hours.to {
            true => on(hours, day) && (hours.from..hours.to).contains(&minute),
            false => (on(hours, day) && hours.from <= minute) || (on(hours, day - 1) && minute < hours.to),
        })
    }

    proptest! {
        /// Around changes of the clocks and around a leap day, in zones with whole, half and quarter hours.
        #[test]
        fn hours_count_when_clocks_in_the_place_show_them(
            drawn in vec((1..0x80_u8, 0..1440_u16, 0..=1440_u16), 1..5),
            zone in prop::sample::select(&["UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu", "Africa/Casablanca"]),
            begin in prop::sample::select(&["2024-02-27T00:00:00Z", "2024-03-30T12:00:00Z", "2024-04-05T12:00:00Z", "2024-10-26T12:00:00Z", "2024-03-09T00:00:00Z"]),
            minutes in 0..3 * 1440_u64,
        ) {
            let all: Vec<Hours> = drawn.into_iter().filter_map(|(days, from, to)| Hours::new(days, from, to)).collect();
            let table = in_zone(zone, &all);
            let now = at(begin).saturating_add_nanos(minutes * MINUTE_NANOS as u64);
            prop_assert_eq!(table.at(now), naive(zone, &all, now));
            for wanted in (0..all.len()).map(Some).chain([None]) {
                let first = table.first_at(wanted, now);
                let minute = |after: u64| now.saturating_add_nanos(after * MINUTE_NANOS as u64);
                // Changes happen on whole minutes, and so do all beginnings.
                let searched = (0..3 * 1440).map(minute).find(|&time| naive(zone, &all, time) == wanted);
                let end = minute(3 * 1440);
                prop_assert_eq!(first.filter(|&first| first < end), searched);
            }
        }
    }
}
