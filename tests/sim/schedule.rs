//! Schedules: the numbers that apply at times of the week, by the clocks of a place, moment by moment.

use crate::{oracle::Model, rng::Rng};
use std::fmt::Write;

const MINUTE: u64 = 60_000_000_000;
const DAY_MINUTES: u64 = 1_440;

/// A place: its name, and by how many minutes its clocks are ahead of UTC from which second on.
#[derive(Debug)]
struct Zone {
    name: &'static str,
    offsets: &'static [(u64, i64)],
}

/// Changes of the clocks in 2024 and in the spring of 2025, by the time zone database.
const ZONES: [Zone; 4] = [
    Zone { name: "UTC", offsets: &[(0, 0)] },
    Zone {
        name: "Europe/Berlin",
        offsets: &[(0, 60), (1_711_846_800, 120), (1_729_990_800, 60), (1_743_296_400, 120)],
    },
    Zone {
        name: "America/New_York",
        offsets: &[(0, -300), (1_710_054_000, -240), (1_730_613_600, -300), (1_741_503_600, -240)],
    },
    // The clocks change by half an hour each time.
    Zone {
        name: "Australia/Lord_Howe",
        offsets: &[(0, 660), (1_712_415_600, 630), (1_728_142_200, 660), (1_743_865_200, 630)],
    },
];

/// Index of the zone of calendars.
const BERLIN: usize = 1;

/// Hours of some days, and the number that applies then.
#[derive(Clone, PartialEq, Debug)]
struct Item {
    /// From Monday on.
    days: [bool; 7],
    /// Minutes of the day. If the end is not after the beginning, it is on the next day.
    from: u64,
    to: u64,
    requests: u64,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Schedule {
    /// Index of its zone.
    zone: usize,
    items: Vec<Item>,
}

/// The number of an unlimited item.
const UNLIMITED: u64 = u32::MAX as u64;

impl Schedule {
    /// A random schedule, in the zone of the calendar if the limit has one. A log is never unlimited.
    pub fn random(rng: &mut Rng, model: &Model) -> Self {
        let may_be_unlimited = !matches!(model, Model::SlidingLog { .. });
        let item = |rng: &mut Rng| {
            let mut days = [false; 7];
            for _ in 0..rng.between(1, 7) {
                days[rng.below(7) as usize] = true;
            }
            // Mostly whole hours, and often hours in which clocks change.
            let from = rng.pick(&[0, 1, 2, 3, 8, 18, 23]) * 60 + rng.pick(&[0, 0, 0, 30, 59]);
            let length = rng.pick(&[60, 30, 1, 120, 600, DAY_MINUTES]);
            // The whole day lasts from its beginning to its end.
            let (from, to) =
                if length == DAY_MINUTES { (0, length) } else { (from, (from + length) % DAY_MINUTES) };
            let requests = match may_be_unlimited && rng.once_in(8) {
                true => UNLIMITED,
                false => rng.pick(&[0, 1, 2, 3, 5, 8, 20]),
            };
            Item { days, from, to, requests }
        };
        let zone = match model {
            Model::CalendarWindow { .. } => BERLIN,
            _ => rng.below(ZONES.len() as u64) as usize,
        };
        Self { zone, items: (0..rng.between(1, 3)).map(|_| item(rng)).collect() }
    }

    /// The name of its zone.
    pub fn zone(&self) -> &'static str {
        ZONES[self.zone].name
    }

    /// The key of a limit.
    pub fn yaml(&self) -> String {
        let mut text = String::from("schedule: [");
        for Item { days, from, to, requests } in &self.items {
            let names = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
            let names: Vec<&str> =
                names.into_iter().zip(days).filter(|(_, on)| **on).map(|(name, _)| name).collect();
            let number = match *requests {
                UNLIMITED => "unlimited: true".to_owned(),
                requests => format!("requests_per_unit: {requests}"),
            };
            let time = |minute: u64| format!("{:02}:{:02}", minute / 60, minute % 60);
            let _ = write!(
                text,
                "{{days: [{}], hours: \"{}-{}\", {number}}}, ",
                names.join(", "),
                time(*from),
                time(*to)
            );
        }
        text + "]"
    }

    /// The number that applies at a moment, unless it is the limit's own number.
    pub fn requests_at(&self, now: u64) -> Option<u64> {
        let minute = self.clock(now) / MINUTE;
        // The epoch was on a Thursday.
        let (day, of_day) = ((minute / DAY_MINUTES + 3) as usize, minute % DAY_MINUTES);
        let applies = |item: &&Item| {
            let (today, yesterday) = (item.days[day % 7], item.days[(day + 6) % 7]);
            match item.from < item.to {
                true => today && item.from <= of_day && of_day < item.to,
                false => today && item.from <= of_day || yesterday && of_day < item.to,
            }
        };
        self.items.iter().find(applies).map(|item| item.requests)
    }

    /// The greatest number that ever applies, unless the limit's own number is greater.
    pub fn most(&self) -> u64 {
        self.items.iter().map(|item| item.requests).max().unwrap_or(0)
    }

    /// Moments after `now`, in no order, up to two days later: they include all moments at which another number begins to apply.
    pub fn changes(&self, now: u64) -> Vec<u64> {
        let zone = &ZONES[self.zone];
        let day = self.clock(now) / MINUTE / DAY_MINUTES;
        let minutes = self.items.iter().flat_map(|item| [item.from, item.to]).chain([0]);
        let at_days =
            minutes.flat_map(|minute| (day - 1..day + 4).map(move |day| day * DAY_MINUTES + minute));
        // The moments as clocks with either offset show them.
        let by_clocks = at_days.flat_map(|minute| {
            zone.offsets.iter().map(move |(_, ahead)| minute.saturating_add_signed(-ahead) * MINUTE)
        });
        let of_clocks = zone.offsets.iter().map(|(second, _)| second * 1_000_000_000);
        let moments = by_clocks.chain(of_clocks);
        moments.filter(|&moment| now < moment && moment <= now + 2 * DAY_MINUTES * MINUTE).collect()
    }

    /// The time that a clock in the place shows, as nanoseconds since it showed the epoch.
    fn clock(&self, now: u64) -> u64 {
        let offsets = ZONES[self.zone].offsets;
        let ahead =
            offsets.iter().rfind(|(since, _)| since * 1_000_000_000 <= now).map_or(0, |(_, ahead)| *ahead);
        now.saturating_add_signed(ahead * MINUTE as i64)
    }
}

/// Whether the model counts in windows: only those have other numbers at other times.
pub fn is_window(model: &Model) -> bool {
    use Model::*;
    !matches!(model, GreedyBucket { .. } | IntervalBucket { .. } | LeakyBucket { .. } | Ban { .. })
}

/// The same windows with another number.
pub fn with_limit(model: &Model, requests: u64) -> Model {
    let mut other = model.clone();
    match &mut other {
        Model::SlidingWindow { limit, .. }
        | Model::SlidingLog { limit, .. }
        | Model::FixedWindow { limit, .. }
        | Model::FirstHitWindow { limit, .. }
        | Model::CalendarWindow { limit, .. } => *limit = requests,
        Model::GreedyBucket { .. }
        | Model::IntervalBucket { .. }
        | Model::LeakyBucket { .. }
        | Model::Ban { .. } => unreachable!("no window"),
    }
    other
}
