//! Beginnings of the periods of a calendar: a billing day, a day of the week, a time of the day.

use super::{Period, StoredBytes, StoredNumbers};
use std::fmt;

const MINUTES_PER_DAY: u16 = 24 * 60;

/// Names of the days of the week, from Monday on.
pub const DAY_NAMES: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];

/// Days of each month in a leap year.
const MONTH_DAYS: [u8; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

const WEEKDAYS: [&str; 7] = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"];

/// The day and the time of the day at which periods begin. A day that a month lacks is its last day.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Anchor {
    /// From 1, for periods of a year; else 1.
    month: u8,
    /// From 1: of the week, from Monday on, or of the month. 1 for periods of a day. 0 if entries of requests state the day.
    day: u8,
    /// Of the day.
    minute: u16,
}

impl Anchor {
    /// Midnight of the first day: of Monday, of the first of the month, of January the first.
    pub const FIRST: Self = Self { month: 1, day: 1, minute: 0 };

    /// The day that an entry of each descriptor states; the first where no day is known.
    pub const OF_ENTRY: Self = Self { day: 0, ..Self::FIRST };

    /// The days on which periods can begin, at midnight, in the order of [`Self::day_index`].
    pub(crate) fn days(period: Period) -> impl Iterator<Item = Self> {
        let (months, days) = match period {
            Period::Day => (1, 1),
            Period::Week => (1, 7),
            Period::Month => (1, 31),
            Period::Year => (12, 31),
        };
        (1..=months).flat_map(move |month| (1..=days).map(move |day| Self { month, day, minute: 0 }))
    }

    /// The index of the day among [`Self::days`].
    pub(crate) fn day_index(self) -> usize {
        (usize::from(self.month) - 1) * 31 + usize::from(self.day.max(1)) - 1
    }

    /// `thursday 09:00`, `17`, `04-06 09:00`: a day of the period, and a time if it is not midnight. For periods of a day, `06:00`.
    pub fn parse(period: Period, text: &str) -> Option<Self> {
        let (day, time) = match (period, text.split_once(' ')) {
            (Period::Day, _) => return time_of_day(text).map(|minute| Self { minute, ..Self::FIRST }),
            (_, Some((day, time))) => (day, time_of_day(time.trim_start())?),
            (_, None) => (text, 0),
        };
        Some(Self { minute: time, ..Self::parse_day(period, day)? })
    }

    /// `thursday`, `17`, `04-06`: a day of the period, at its midnight.
    pub(crate) fn parse_day(period: Period, text: &str) -> Option<Self> {
        let (month, day) = match period {
            Period::Day => return None,
            Period::Week => (1, weekday(text)? as u8 + 1),
            Period::Month => (1, number(text)?),
            Period::Year => {
                text.split_once('-').and_then(|(month, day)| Some((number(month)?, number(day)?)))?
            }
        };
        Self::valid(period, month, day, 0)
    }

    fn valid(period: Period, month: u8, day: u8, minute: u16) -> Option<Self> {
        let days = match period {
            Period::Day => 1,
            Period::Week => 7,
            Period::Month => 31,
            Period::Year => *MONTH_DAYS.get(usize::from(month).checked_sub(1)?)?,
        };
        let is_valid =
            (month == 1 || period == Period::Year) && (1..=days).contains(&day) && minute < MINUTES_PER_DAY;
        is_valid.then_some(Self { month, day, minute })
    }

    /// From 1; 1 for periods that are no years.
    pub(super) fn month(self) -> i8 {
        self.month as i8
    }

    /// From 1, of the week or of the month.
    pub(super) fn day(self) -> i8 {
        self.day.max(1) as i8
    }

    /// The hour and the minute of the day.
    pub(super) fn time(self) -> (i8, i8) {
        ((self.minute / 60) as i8, (self.minute % 60) as i8)
    }

    /// Appends its bytes in a shared store.
    pub(super) fn write(self, out: &mut StoredBytes) {
        out.extend([self.month, self.day]);
        out.extend(self.minute.to_le_bytes());
    }

    /// Reads what [`Self::write`] appended.
    pub(super) fn read(period: Period, numbers: &mut StoredNumbers<'_>) -> Option<Self> {
        let [month, day, low, high] = [numbers.byte()?, numbers.byte()?, numbers.byte()?, numbers.byte()?];
        let minute = u16::from_le_bytes([low, high]);
        let of_entry = (month, day, minute) == (1, 0, 0);
        if of_entry { Some(Self::OF_ENTRY) } else { Self::valid(period, month, day, minute) }
    }

    /// The anchor as rule files have it.
    pub fn text(self, period: Period) -> impl fmt::Display {
        fmt::from_fn(move |f| {
            let (hour, minute) = self.time();
            match period {
                _ if self == Self::OF_ENTRY => return f.write_str("an entry"),
                Period::Day => return write!(f, "{hour:02}:{minute:02}"),
                Period::Week => f.write_str(WEEKDAYS[usize::from(self.day) - 1])?,
                Period::Month => write!(f, "{}", self.day)?,
                Period::Year => write!(f, "{:02}-{:02}", self.month, self.day)?,
            }
            if self.minute > 0 { write!(f, " {hour:02}:{minute:02}") } else { Ok(()) }
        })
    }
}

/// A number of one or two digits.
fn number(text: &str) -> Option<u8> {
    let is_number = matches!(text.len(), 1 | 2) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

/// A time before the end of the day.
fn time_of_day(text: &str) -> Option<u16> {
    minute_of_day(text).filter(|minute| *minute < MINUTES_PER_DAY)
}

/// `08:30`, up to `24:00`.
pub(crate) fn minute_of_day(text: &str) -> Option<u16> {
    let (hours, minutes) = text.split_once(':')?;
    let (hours, minutes) = (number(hours)?, number(minutes).filter(|_| minutes.len() == 2)?);
    let minute = u16::from(hours) * 60 + u16::from(minutes);
    (minutes < 60 && minute <= MINUTES_PER_DAY).then_some(minute)
}

/// The day of the week of this name, or of its first three letters, from Monday on.
pub(crate) fn weekday(name: &str) -> Option<usize> {
    let is_name = |known: &&str| name.eq_ignore_ascii_case(known);
    DAY_NAMES.iter().position(is_name).or_else(|| WEEKDAYS.iter().position(is_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_anchor_is_written_as_it_is_read() {
        use Period::{Day, Month, Week, Year};
        for (period, text, written) in [
            (Day, "6:00", "06:00"),
            (Day, "00:00", "00:00"),
            (Week, "Thu 09:00", "thursday 09:00"),
            (Week, "sunday", "sunday"),
            (Month, "17", "17"),
            (Month, "31  06:30", "31 06:30"),
            (Year, "04-06", "04-06"),
            (Year, "2-29 23:59", "02-29 23:59"),
        ] {
            let anchor = Anchor::parse(period, text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(anchor.text(period).to_string(), written);
            assert_eq!(Anchor::parse(period, written), Some(anchor));
        }
    }

    #[test]
    fn what_is_no_day_of_the_period_is_refused() {
        use Period::{Day, Month, Week, Year};
        for (period, text) in [
            (Day, ""),
            (Day, "24:00"),
            (Day, "6"),
            (Day, "17 06:00"),
            (Week, "8"),
            (Week, "thursday 25:00"),
            (Week, "thursday 09:00 10:00"),
            (Month, "0"),
            (Month, "32"),
            (Month, "-1"),
            (Month, "+1"),
            (Month, "017"),
            (Month, "17 "),
            (Month, "seventeen"),
            (Month, "04-06"),
            (Year, "02-30"),
            (Year, "13-01"),
            (Year, "00-01"),
            (Year, "04"),
        ] {
            assert_eq!(Anchor::parse(period, text), None, "{period:?} {text:?}");
        }
    }

    #[test]
    fn minutes_are_those_of_one_day() {
        assert_eq!(minute_of_day("00:00"), Some(0));
        assert_eq!(minute_of_day("8:05"), Some(485));
        assert_eq!(minute_of_day("24:00"), Some(1440));
        for text in ["24:01", "25:00", "8", "8:5", "08:60", "+8:00", "8:+5", "99999:00", ":", ""] {
            assert_eq!(minute_of_day(text), None, "{text}");
        }
    }

    #[test]
    fn every_day_has_its_index_and_its_bytes() {
        for period in [Period::Week, Period::Month, Period::Year] {
            for (index, day) in Anchor::days(period).enumerate() {
                assert_eq!(day.day_index(), index);
                let is_day = Anchor::parse(period, &day.text(period).to_string()) == Some(day);
                let mut bytes = StoredBytes::new();
                day.write(&mut bytes);
                assert_eq!(Anchor::read(period, &mut StoredNumbers(&bytes)), is_day.then_some(day));
            }
        }
    }
}
