//! Algorithms of limits: from the keys of a `rate_limit` to an [`Algorithm`].
//!
//! To add an algorithm, write the function that reads its keys and give it a row in [`ALGORITHMS`].

mod buckets;
mod calendar;
mod common;
mod in_flight;
mod queue;
mod windows;

pub(super) use calendar::zone;
pub(super) use common::{Counting, choice_or};
pub(super) use in_flight::hold;
pub(super) use windows::{is_from_first_hit, precision};

use crate::{
    algorithm::{Algorithm, Schedule, SlidingLog},
    limit::Window,
    rules::{semantics::Semantics, yaml::Fields},
};
use buckets::{leaky_bucket, token_bucket};
use common::choice;
use in_flight::concurrency;
use windows::{fixed_window, sliding_log, sliding_window};

/// Reads the keys of one algorithm; none if they are invalid, which is reported.
type Read = fn(&mut Fields<'_>, Semantics) -> Option<Counting>;

/// The algorithm of a limit without other keys, from its number, its window and, for a bucket, its size.
type Plain = fn(u32, Window, u32) -> Algorithm;

/// Algorithms with the same keys: any of them can be the default.
const PLAIN: [Plain; WITH_WINDOWS] = [
    |limit, window, _| Algorithm::sliding_window(limit, window, 1),
    |limit, window, _| Algorithm::SlidingLog(SlidingLog { limit, window }),
    |limit, window, _| Algorithm::fixed_window(limit, Schedule::Clock(window)),
    |limit, window, size| Algorithm::token_bucket(size, limit, window),
    |limit, window, size| Algorithm::leaky_bucket(size, limit, window, None),
];

/// The first [`WITH_WINDOWS`] are in the order of [`PLAIN`].
const ALGORITHMS: [(&str, Read); 6] = [
    ("sliding_window", sliding_window),
    ("sliding_log", sliding_log),
    ("fixed_window", fixed_window),
    ("token_bucket", token_bucket),
    ("leaky_bucket", leaky_bucket),
    ("concurrency", concurrency),
];

/// Number of algorithms with a window.
const WITH_WINDOWS: usize = ALGORITHMS.len() - 1;

/// The algorithm of limits that name none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DefaultAlgorithm {
    /// In [`ALGORITHMS`].
    index: usize,
}

impl DefaultAlgorithm {
    /// Names of the algorithms with a window, as in rule files.
    pub const NAMES: [&str; WITH_WINDOWS] = {
        let (mut names, mut index) = ([""; WITH_WINDOWS], 0);
        while index < names.len() {
            names[index] = ALGORITHMS[index].0;
            index += 1;
        }
        names
    };

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMES[self.index]
    }

    /// The algorithm of a limit that states only its number, its window and, for a bucket, its size.
    pub(in crate::rules) fn of(self, requests: u32, window: Window, size: u32) -> Algorithm {
        PLAIN[self.index](requests, window, size)
    }

    /// The algorithm of this name.
    pub fn named(name: &str) -> Option<Self> {
        let index = Self::NAMES.iter().position(|known| *known == name)?;
        Some(Self { index })
    }
}

/// The algorithm that a key belongs to, for an error where it is used with another.
pub(super) fn home(key: &str) -> Option<&'static str> {
    match key {
        "precision" => Some("it belongs to `algorithm: sliding_window`"),
        "aligned" | "calendar" => Some("it belongs to `algorithm: fixed_window`"),
        "time_zone" => Some("it belongs to a `calendar` or a `schedule`"),
        "size" | "refill" => Some("it belongs to `algorithm: token_bucket`"),
        "burst" => Some("it belongs to `algorithm: leaky_bucket`"),
        "max_wait" | "max_queue" => Some("it belongs to `algorithm: leaky_bucket` or `concurrency`"),
        "requests_in_flight" => Some("it belongs to `algorithm: concurrency`"),
        "max_hold" => Some("it belongs to `algorithm: concurrency`, or to a limit with `reserve`"),
        "on_lost_end" => Some("it belongs to a limit with `reserve`"),
        _ => None,
    }
}

/// Reads `algorithm` and the keys that belong to it. Without it the algorithm is the default, or that of the semantics.
pub(super) fn counting(
    fields: &mut Fields<'_>,
    semantics: Semantics,
    default: Option<DefaultAlgorithm>,
) -> Option<Counting> {
    let default: Read = match (default, semantics) {
        (Some(default), _) => ALGORITHMS[default.index].1,
        (None, Semantics::Exact) => sliding_window,
        (None, Semantics::Reference) => fixed_window,
    };
    let Some(field) = fields.take("algorithm") else {
        return default(fields, semantics);
    };
    choice(&field, "an algorithm", &ALGORITHMS).unwrap_or(default)(fields, semantics)
}

#[cfg(test)]
mod tests {
    use crate::{
        algorithm::{
            Algorithm, Anchor, Calendar, Concurrency, LeakyBucket, Period, Queue, Rate, Schedule,
            SlidingWindow, SubWindows, TokenBucket, Zone,
        },
        limit::{Unit, Window},
        rules::{LoadOptions, RuleSet, Source},
    };
    use std::{num::NonZeroU32, time::Duration};

    /// The algorithm of a limit of 10 a minute with these keys, or 10 of another unit if they name it.
    fn algorithm(keys: &str) -> Algorithm {
        let unit = if keys.contains("unit:") { "" } else { "unit: minute, " };
        let text = format!(
            "domain: d\ndescriptors: [{{key: k, rate_limit: {{requests_per_unit: 10, {unit}{keys}}}}}]"
        );
        let source = Source::file("test.yaml", text);
        let rules = RuleSet::parse(&[source], &LoadOptions::default()).unwrap_or_else(|e| panic!("{e}"));
        rules.domain("d").unwrap().rules()[0].limits[0].algorithm.clone()
    }

    fn minute() -> Window {
        Unit::Minute.window()
    }

    #[test]
    fn a_sliding_window_has_one_sub_window_by_default() {
        let plain = Algorithm::SlidingWindow(SlidingWindow { limit: 10, window: minute() });
        for keys in ["", "algorithm: sliding_window", "precision: 1"] {
            assert_eq!(algorithm(keys), plain);
        }
        assert_eq!(algorithm("precision: 60"), Algorithm::SubWindows(SubWindows::new(10, minute(), 60)));
    }

    #[test]
    fn fixed_windows_begin_with_the_clock_the_first_hit_or_the_calendar() {
        let schedule = |keys: &str| match algorithm(&format!("algorithm: fixed_window, {keys}")) {
            Algorithm::FixedWindow(fixed) => fixed.schedule,
            other => panic!("{other:?}"),
        };
        assert_eq!(schedule(""), Schedule::Clock(minute()));
        assert_eq!(schedule("aligned: clock"), Schedule::Clock(minute()));
        assert_eq!(schedule("aligned: first_hit"), Schedule::FirstHit(minute()));
        assert_eq!(schedule("unit: month"), Schedule::Clock(Unit::Month.window()));
        let month_in = |zone| Schedule::Calendar(Calendar::new(Period::Month, zone));
        assert_eq!(schedule("unit: MONTH, calendar: true"), month_in(Zone::UTC));
        let berlin = Zone::named("Europe/Berlin").unwrap();
        assert_eq!(
            schedule("unit: month, calendar: true, time_zone: europe/berlin"),
            month_in(berlin.clone())
        );
        let anchored = |period, text, zone| {
            Schedule::Calendar(Calendar::anchored(period, Anchor::parse(period, text).unwrap(), zone))
        };
        assert_eq!(schedule("unit: month, calendar: {month: 17}"), anchored(Period::Month, "17", Zone::UTC));
        let (text, zone) = ("thursday 09:00", "time_zone: Europe/Berlin");
        let thursdays = schedule(&format!("unit: week, calendar: {{week: {text}}}, {zone}"));
        assert_eq!(thursdays, anchored(Period::Week, text, berlin));
        assert_eq!(schedule("unit: month, calendar: {month: 1}"), month_in(Zone::UTC));
    }

    #[test]
    fn a_bucket_is_as_large_as_its_rate_by_default() {
        let ten = NonZeroU32::new(10).unwrap();
        let (greedy, by_intervals) = (TokenBucket::greedy, TokenBucket::by_intervals);
        let tokens = |bucket: fn(_, _, _) -> _, size| Algorithm::TokenBucket(bucket(size, ten, minute()));
        assert_eq!(algorithm("algorithm: token_bucket"), tokens(greedy, 10));
        assert_eq!(algorithm("algorithm: token_bucket, refill: greedy, size: 50"), tokens(greedy, 50));
        assert_eq!(algorithm("algorithm: token_bucket, refill: intervals"), tokens(by_intervals, 10));
        let leaky = |burst| {
            Algorithm::LeakyBucket(LeakyBucket { burst, rate: Rate::new(ten, minute()), queue: None })
        };
        assert_eq!(algorithm("algorithm: leaky_bucket"), leaky(10));
        assert_eq!(algorithm("algorithm: leaky_bucket, burst: 1"), leaky(1));
    }

    /// The keys of a limit of requests in flight, which has no unit.
    fn in_flight(keys: &str) -> Algorithm {
        let text =
            format!("domain: d\ndescriptors: [{{key: k, rate_limit: {{algorithm: concurrency, {keys}}}}}]");
        let rules = RuleSet::parse(&[Source::file("test.yaml", text)], &LoadOptions::default());
        let rules = rules.unwrap_or_else(|errors| panic!("{errors}"));
        let limit = &rules.domain("d").unwrap().rules()[0].limits[0];
        assert_eq!(limit.unit, None, "in no unit");
        limit.algorithm.clone()
    }

    #[test]
    fn requests_in_flight_are_held_for_a_minute_unless_max_hold_is_set() {
        let held = |limit, secs| {
            Algorithm::Concurrency(Concurrency {
                limit,
                max_hold: Window::from_secs(secs).unwrap(),
                queue: Some(Queue { wait_max: Duration::from_millis(10), hits_max: 100 }),
            })
        };
        assert_eq!(in_flight("requests_in_flight: 20"), held(20, 60));
        assert_eq!(in_flight("requests_in_flight: 0, max_hold: 24h, charge: admitted"), held(0, 86_400));
    }

    #[test]
    fn requests_wait_ten_milliseconds_for_a_slot_unless_max_wait_is_set() {
        let queue = |keys: &str| match in_flight(&format!("requests_in_flight: 2{keys}")) {
            Algorithm::Concurrency(slots) => slots.queue,
            other => panic!("{other:?}"),
        };
        let of = |millis, hits_max| Some(Queue { wait_max: Duration::from_millis(millis), hits_max });
        assert_eq!(queue(""), of(10, 100));
        assert_eq!(queue(", max_queue: 7"), of(10, 7));
        assert_eq!(queue(", max_wait: 2s, max_queue: 7"), of(2_000, 7));
        assert_eq!(queue(", max_wait: 0s"), None);
    }

    #[test]
    fn a_leaky_bucket_has_a_queue_if_max_wait_is_set() {
        let queue = |keys: &str| match algorithm(&format!("algorithm: leaky_bucket, {keys}")) {
            Algorithm::LeakyBucket(bucket) => bucket.queue,
            other => panic!("{other:?}"),
        };
        assert_eq!(queue("burst: 1"), None);
        let wait_max = Duration::from_millis(1_500);
        assert_eq!(queue("max_wait: 1s500ms"), Some(Queue { wait_max, hits_max: 100 }));
        assert_eq!(queue("max_wait: 1500ms, max_queue: 7"), Some(Queue { wait_max, hits_max: 7 }));
    }
}
