//! Algorithms of limits: from the keys of a `rate_limit` to an [`Algorithm`].
//!
//! To add an algorithm, write the function that reads its keys and give it a row in [`ALGORITHMS`].

use super::window;
use crate::{
    algorithm::{
        Algorithm, Calendar, Concurrency, FixedWindow, LeakyBucket, Period, Queue, Rate, Schedule,
        SlidingLog, SlidingWindow, SubWindows, TokenBucket, Zone,
    },
    limit::{Unit, Window},
    rules::{
        semantics::Semantics,
        yaml::{Field, Fields, Report, nearest, quoted},
    },
};
use std::{num::NonZeroU32, time::Duration};

/// An algorithm, with the numbers that statuses report of its limit.
pub(super) struct Counting {
    pub(super) requests: u32,
    pub(super) window: Window,
    pub(super) algorithm: Algorithm,
}

/// Reads the keys of one algorithm; none if they are invalid, which is reported.
type Read = fn(&mut Fields<'_>, Semantics, &mut Report<'_>) -> Option<Counting>;

/// The first [`WITH_WINDOWS`] read the same keys: any of them can be the default.
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

    /// The algorithm of this name.
    pub fn named(name: &str) -> Option<Self> {
        let index = Self::NAMES.iter().position(|known| *known == name)?;
        Some(Self { index })
    }
}

/// The largest limit of a sliding log: it remembers every hit that counts, in up to nine bytes.
pub(in crate::rules) const LOG_LIMIT_MAX: u32 = 1_000_000;

/// The most requests in flight: each has a slot in the memory of its counter, and a release searches them.
pub(in crate::rules) const IN_FLIGHT_MAX: u32 = 10_000;

/// The longest time that a slot is held.
const HOLD_MAX: Duration = Duration::from_secs(86_400);

/// The longest time that a slot is held, by default.
const HOLD_DEFAULT_SECS: u64 = 60;

/// The longest wait of a queued request. Its stream stays open meanwhile.
const WAIT_MAX: Duration = Duration::from_secs(3_600);

/// The maximum number of hits queued in one bucket.
const QUEUE_MAX: u32 = 10_000;

/// The default maximum number of hits queued in one bucket.
const QUEUE_DEFAULT: u32 = 100;

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
    report: &mut Report<'_>,
) -> Option<Counting> {
    let default: Read = match (default, semantics) {
        (Some(default), _) => ALGORITHMS[default.index].1,
        (None, Semantics::Exact) => sliding_window,
        (None, Semantics::Reference) => fixed_window,
    };
    let Some(field) = fields.take("algorithm") else {
        return default(fields, semantics, report);
    };
    choice(&field, report, "an algorithm", &ALGORITHMS).unwrap_or(default)(fields, semantics, report)
}

/// The choice of this name; reports the valid names if it is none of them.
fn choice<T: Copy>(
    field: &Field<'_>,
    report: &mut Report<'_>,
    what: &str,
    choices: &[(&'static str, T)],
) -> Option<T> {
    let name = field.text(report)?;
    let chosen = choices.iter().find(|(known, _)| *known == name);
    if chosen.is_none() {
        let known: Vec<_> = choices.iter().map(|(known, _)| *known).collect();
        let remedy = match nearest(name, &known) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("write one of {}", known.join(", ")),
        };
        field.reject(report, format!("{} is not {what}; {remedy}", quoted(name)));
    }
    chosen.map(|(_, chosen)| *chosen)
}

fn sliding_window(
    fields: &mut Fields<'_>,
    semantics: Semantics,
    report: &mut Report<'_>,
) -> Option<Counting> {
    let precision = fields.take("precision").and_then(|field| {
        let precision = u8::try_from(field.whole(report)?).ok().filter(|&precision| precision > 0);
        if precision.is_none() {
            field.reject(report, "a window has 1 to 255 sub-windows; write a number from that range");
        }
        precision
    });
    let (limit, window) = requests_and_window(fields, semantics, report)?;
    let algorithm = match precision {
        None | Some(1) => Algorithm::SlidingWindow(SlidingWindow { limit, window }),
        Some(precision) => Algorithm::SubWindows(SubWindows::new(limit, window, precision)),
    };
    Some(Counting { requests: limit, window, algorithm })
}

fn sliding_log(fields: &mut Fields<'_>, semantics: Semantics, report: &mut Report<'_>) -> Option<Counting> {
    let (limit, window) = requests_and_window(fields, semantics, report)?;
    if let Some(field) = fields.take("requests_per_unit").filter(|_| limit > LOG_LIMIT_MAX) {
        let message = format!(
            "a log of {limit} hits is too large (at most {LOG_LIMIT_MAX}); \
             write `algorithm: sliding_window` and `precision: 60`"
        );
        field.reject(report, message);
        return None;
    }
    Some(Counting { requests: limit, window, algorithm: Algorithm::SlidingLog(SlidingLog { limit, window }) })
}

fn fixed_window(fields: &mut Fields<'_>, semantics: Semantics, report: &mut Report<'_>) -> Option<Counting> {
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
        let alignments = [("clock", Schedule::Clock as fn(_) -> _), ("first_hit", Schedule::FirstHit)];
        let aligned = aligned.and_then(|field| choice(&field, report, "an alignment", &alignments));
        aligned.unwrap_or(Schedule::Clock)(window)
    };
    Some(Counting {
        requests: limit,
        window,
        algorithm: Algorithm::FixedWindow(FixedWindow { limit, schedule }),
    })
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
pub(super) fn zone(field: &Field<'_>, report: &mut Report<'_>) -> Option<Zone> {
    let name = field.text(report)?;
    let zone = Zone::named(name);
    if zone.is_none() {
        let remedy = "write one of the IANA database, such as Europe/Berlin";
        field.reject(report, format!("{} is not a time zone; {remedy}", quoted(name)));
    }
    zone
}

fn token_bucket(fields: &mut Fields<'_>, semantics: Semantics, report: &mut Report<'_>) -> Option<Counting> {
    type Make = fn(u32, NonZeroU32, Window) -> TokenBucket;
    let refills: [(_, Make); 2] = [("greedy", TokenBucket::greedy), ("intervals", TokenBucket::by_intervals)];
    let refill = fields.take("refill").and_then(|field| choice(&field, report, "a way to refill", &refills));
    let Bucket { requests, window, size, rate } = bucket("size", fields, semantics, report)?;
    let algorithm = Algorithm::TokenBucket(refill.unwrap_or(TokenBucket::greedy)(size, rate, window));
    Some(Counting { requests, window, algorithm })
}

fn leaky_bucket(fields: &mut Fields<'_>, semantics: Semantics, report: &mut Report<'_>) -> Option<Counting> {
    let queue = queue(fields, None, report);
    let Bucket { requests, window, size, rate } = bucket("burst", fields, semantics, report)?;
    let bucket = LeakyBucket { burst: size, rate: Rate::new(rate, window), queue };
    Some(Counting { requests, window, algorithm: Algorithm::LeakyBucket(bucket) })
}

fn concurrency(fields: &mut Fields<'_>, _: Semantics, report: &mut Report<'_>) -> Option<Counting> {
    let mut has_number = false;
    for (name, remedy) in [
        ("requests_per_unit", "write the number in `requests_in_flight`"),
        ("unit", "remove it; `max_hold` bounds how long a request is in flight"),
        ("unit_multiplier", "remove it; `max_hold` bounds how long a request is in flight"),
        ("per", "remove it; `max_hold` bounds how long a request is in flight"),
    ] {
        if let Some(field) = fields.take(name) {
            has_number |= name == "requests_per_unit";
            field.reject(report, format!("requests in flight have no window; {remedy}"));
        }
    }
    if let Some(charge) = fields.take("charge")
        && charge.text(report).is_some_and(|charge| charge != "admitted")
    {
        charge.reject(report, "only admitted requests are in flight; remove it");
    }
    let max_hold = match fields.take("max_hold") {
        None => Window::from_secs(HOLD_DEFAULT_SECS).ok(),
        Some(field) => hold(&field, report),
    };
    let queue = queue(fields, Some(Concurrency::WAIT_DEFAULT), report);
    let Some(field) = fields.take("requests_in_flight") else {
        if !has_number {
            let message = "is missing; write how many requests may be in flight at once (0 denies all)";
            report.at(fields.place(), fields.path_of("requests_in_flight"), message);
        }
        return None;
    };
    let limit = field.whole(report).filter(|limit| {
        let fits = *limit <= IN_FLIGHT_MAX;
        if !fits {
            field.reject(
                report,
                format!("at most {IN_FLIGHT_MAX} requests are in flight; write a number up to that"),
            );
        }
        fits
    });
    let (limit, max_hold) = limit.zip(max_hold)?;
    let algorithm = Algorithm::Concurrency(Concurrency { limit, max_hold, queue });
    Some(Counting { requests: limit, window: max_hold, algorithm })
}

/// The longest time that a request is in flight; none if it is not valid, which is reported.
pub(super) fn hold(field: &Field<'_>, report: &mut Report<'_>) -> Option<Window> {
    window::of_length(field, report).filter(|hold| {
        let fits = hold.duration() <= HOLD_MAX;
        if !fits {
            field.reject(report, "a request is in flight for at most 24h; write 24h or less");
        }
        fits
    })
}

/// The queue for hits that do not fit, if `max_wait` is set or has a default; `0s` is none, where there is one.
fn queue(fields: &mut Fields<'_>, default: Option<Duration>, report: &mut Report<'_>) -> Option<Queue> {
    let (max_wait, max_queue) = (fields.take("max_wait"), fields.take("max_queue"));
    let hits_max = match &max_queue {
        None => Some(QUEUE_DEFAULT),
        Some(field) => field.whole(report).and_then(|hits| {
            let fits = (1..=QUEUE_MAX).contains(&hits);
            if !fits {
                field.reject(
                    report,
                    format!("a queue has room for 1 to {QUEUE_MAX} hits; write a number from that range"),
                );
            }
            fits.then_some(hits)
        }),
    };
    let Some(max_wait) = max_wait else {
        if let Some(wait_max) = default {
            return Some(Queue { wait_max, hits_max: hits_max? });
        }
        if let Some(max_queue) = max_queue {
            max_queue
                .reject(report, "has no effect without `max_wait`; write that too, such as `max_wait: 1s`");
        }
        return None;
    };
    if default.is_some() && max_wait.text(report) == Some("0s") {
        if let Some(max_queue) = max_queue {
            max_queue.reject(report, "has no effect with `max_wait: 0s`; write a longer wait, or remove it");
        }
        return None;
    }
    let wait_max = window::of_length(&max_wait, report)?.duration();
    if wait_max > WAIT_MAX {
        max_wait.reject(report, "a request is queued for at most 1h; write 1h or less");
        return None;
    }
    Some(Queue { wait_max, hits_max: hits_max? })
}

/// The parameters of both buckets: a rate, and a size.
struct Bucket {
    requests: u32,
    window: Window,
    size: u32,
    rate: NonZeroU32,
}

/// Reads a bucket with the size in key `name`, by default the requests of one unit.
fn bucket(
    name: &'static str,
    fields: &mut Fields<'_>,
    semantics: Semantics,
    report: &mut Report<'_>,
) -> Option<Bucket> {
    let size = fields.take(name).map(|field| (field.whole(report), field));
    let (requests, window) = requests_and_window(fields, semantics, report)?;
    if let (0, Some((Some(1..), field))) = (requests, &size) {
        field.reject(
            report,
            "a bucket with 0 per unit is never refilled; write 1 or more in `requests_per_unit`, or 0 here",
        );
        return None;
    }
    let size = match size {
        None => requests,
        Some((size, _)) => size?,
    };
    // A bucket without room admits nothing, at whatever rate.
    let rate = NonZeroU32::new(requests).unwrap_or(NonZeroU32::MIN);
    Some(Bucket { requests, window, size, rate })
}

/// Number of requests and window. Both are read before returning, so that errors in both are reported.
fn requests_and_window(
    fields: &mut Fields<'_>,
    semantics: Semantics,
    report: &mut Report<'_>,
) -> Option<(u32, Window)> {
    let requests = match (fields.take("requests_per_unit"), semantics) {
        (Some(field), _) => field.whole(report),
        // The reference server reads a missing number as 0.
        (None, Semantics::Reference) => Some(0),
        (None, Semantics::Exact) => {
            let message = "is missing; write how many requests are admitted (0 denies all)";
            report.at(fields.place(), fields.path_of("requests_per_unit"), message);
            None
        }
    };
    let window = window::window(fields, report);
    requests.zip(window)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{LoadOptions, RuleSet, Source};

    /// The algorithm of a limit of 10 a minute with these keys, or 10 of another unit if they name one.
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
        assert_eq!(schedule("unit: month, calendar: true, time_zone: europe/berlin"), month_in(berlin));
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
