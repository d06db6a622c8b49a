//! Limits as the snapshot format writes them: in records, and in the exported file.
//!
//! The names and types here are format 1. They are separate from the types that count, so that renaming a field there
//! cannot change the format. Every value is checked on the way back: a limit read from a file is as valid as one from a
//! rule file.

use serde::{Deserialize, Serialize};
use std::{
    num::{NonZeroU32, NonZeroU64},
    time::Duration,
};
use tidegate_core::{
    algorithm::{
        Algorithm, Ban, Calendar, Concurrency, FixedWindow, LeakyBucket, Period, Queue, Rate, Refill,
        Schedule, SlidingLog, SlidingWindow, SubWindows, TokenBucket, Zone,
    },
    limit::Window,
    rules::{LimitIdentity, LimitInfo},
};

/// A limit that counters refer to by its index among all limits of the snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct LimitRecord {
    domain: String,
    /// The rule's path through the file.
    path: String,
    /// Distinguishes the limits of one rule.
    tag: u32,
    algorithm: AlgorithmRecord,
}

/// Windows and lengths are in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AlgorithmRecord {
    SlidingWindow {
        limit: u32,
        window: u64,
    },
    SubWindows {
        limit: u32,
        precision: u8,
        length: u64,
    },
    SlidingLog {
        limit: u32,
        window: u64,
    },
    FixedWindow {
        limit: u32,
        schedule: ScheduleRecord,
    },
    TokenBucket {
        size: u32,
        refill: RefillRecord,
    },
    LeakyBucket {
        burst: u32,
        rate: RateRecord,
        queue: Option<QueueRecord>,
    },
    Concurrency {
        limit: u32,
        max_hold: u64,
        #[serde(default)]
        queue: Option<QueueRecord>,
    },
    Ban {
        after: u32,
        within: u64,
        lasts: u64,
        #[serde(default, skip_serializing_if = "is_zero")]
        epoch: u32,
    },
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ScheduleRecord {
    Clock(u64),
    FirstHit(u64),
    Calendar { period: PeriodRecord, zone: String },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum PeriodRecord {
    Day,
    Week,
    Month,
    Year,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RefillRecord {
    Greedy(RateRecord),
    Intervals { tokens: NonZeroU32, interval: u64 },
}

/// `hits` in every `nanos` nanoseconds, in lowest terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct RateRecord {
    hits: u64,
    nanos: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct QueueRecord {
    wait_max: DurationRecord,
    hits_max: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct DurationRecord {
    secs: u64,
    nanos: u32,
}

impl From<&LimitInfo> for LimitRecord {
    fn from(info: &LimitInfo) -> Self {
        let LimitIdentity { domain, path, tag } = &info.identity;
        Self {
            domain: (**domain).into(),
            path: (**path).into(),
            tag: *tag,
            algorithm: (&info.algorithm).into(),
        }
    }
}

impl TryFrom<LimitRecord> for LimitInfo {
    type Error = String;

    fn try_from(record: LimitRecord) -> Result<Self, String> {
        let LimitRecord { domain, path, tag, algorithm } = record;
        let algorithm = algorithm
            .decode()
            .map_err(|problem| format!("the limit {path} of domain {domain}: {problem}"))?;
        let identity = LimitIdentity { domain: domain.into(), path: path.into(), tag };
        Ok(Self { identity, algorithm })
    }
}

impl From<&Algorithm> for AlgorithmRecord {
    fn from(algorithm: &Algorithm) -> Self {
        match algorithm {
            Algorithm::SlidingWindow(SlidingWindow { limit, window }) => {
                Self::SlidingWindow { limit: *limit, window: (*window).into() }
            }
            Algorithm::SubWindows(sub) => Self::SubWindows {
                limit: sub.limit,
                precision: sub.precision(),
                length: sub.length_nanos().get(),
            },
            Algorithm::SlidingLog(SlidingLog { limit, window }) => {
                Self::SlidingLog { limit: *limit, window: (*window).into() }
            }
            Algorithm::FixedWindow(FixedWindow { limit, schedule }) => {
                Self::FixedWindow { limit: *limit, schedule: schedule.into() }
            }
            Algorithm::TokenBucket(TokenBucket { size, refill }) => {
                Self::TokenBucket { size: *size, refill: refill.into() }
            }
            Algorithm::LeakyBucket(LeakyBucket { burst, rate, queue }) => {
                Self::LeakyBucket { burst: *burst, rate: rate.into(), queue: queue.map(QueueRecord::from) }
            }
            Algorithm::Concurrency(Concurrency { limit, max_hold, queue }) => Self::Concurrency {
                limit: *limit,
                max_hold: (*max_hold).into(),
                queue: queue.map(QueueRecord::from),
            },
            Algorithm::Ban(Ban { after, within, lasts, epoch }) => {
                Self::Ban { after: *after, within: (*within).into(), lasts: (*lasts).into(), epoch: *epoch }
            }
        }
    }
}

fn is_zero(epoch: &u32) -> bool {
    *epoch == 0
}

impl AlgorithmRecord {
    /// The algorithm, if every parameter is within the bounds of rule files.
    fn decode(self) -> Result<Algorithm, String> {
        Ok(match self {
            Self::SlidingWindow { limit, window } => {
                Algorithm::SlidingWindow(SlidingWindow { limit, window: decode_window(window)? })
            }
            Self::SubWindows { limit, precision, length } => {
                let sub = NonZeroU64::new(length)
                    .and_then(|length| SubWindows::from_parts(limit, precision, length))
                    .ok_or_else(|| format!("{precision} sub-windows of {length} ns are out of bounds"))?;
                Algorithm::SubWindows(sub)
            }
            Self::SlidingLog { limit, window } => {
                Algorithm::SlidingLog(SlidingLog { limit, window: decode_window(window)? })
            }
            Self::FixedWindow { limit, schedule } => {
                Algorithm::FixedWindow(FixedWindow { limit, schedule: schedule.decode()? })
            }
            Self::TokenBucket { size, refill } => {
                Algorithm::TokenBucket(TokenBucket { size, refill: refill.decode()? })
            }
            Self::LeakyBucket { burst, rate, queue } => Algorithm::LeakyBucket(LeakyBucket {
                burst,
                rate: rate.decode()?,
                queue: queue.map(QueueRecord::decode).transpose()?,
            }),
            Self::Concurrency { limit, max_hold, queue } => Algorithm::Concurrency(Concurrency {
                limit,
                max_hold: decode_window(max_hold)?,
                queue: queue.map(QueueRecord::decode).transpose()?,
            }),
            Self::Ban { after, within, lasts, epoch } => {
                if !(1..=Ban::AFTER_MAX).contains(&after) {
                    return Err(format!("a ban after {after} denials is out of bounds"));
                }
                let (within, lasts) = (decode_window(within)?, decode_window(lasts)?);
                Algorithm::Ban(Ban { after, within, lasts, epoch })
            }
        })
    }
}

impl From<&Schedule> for ScheduleRecord {
    fn from(schedule: &Schedule) -> Self {
        match schedule {
            Schedule::Clock(window) => Self::Clock((*window).into()),
            Schedule::FirstHit(window) => Self::FirstHit((*window).into()),
            Schedule::Calendar(calendar) => {
                let period = match calendar.period() {
                    Period::Day => PeriodRecord::Day,
                    Period::Week => PeriodRecord::Week,
                    Period::Month => PeriodRecord::Month,
                    Period::Year => PeriodRecord::Year,
                };
                Self::Calendar { period, zone: calendar.zone().name().into() }
            }
        }
    }
}

impl ScheduleRecord {
    fn decode(self) -> Result<Schedule, String> {
        Ok(match self {
            Self::Clock(window) => Schedule::Clock(decode_window(window)?),
            Self::FirstHit(window) => Schedule::FirstHit(decode_window(window)?),
            Self::Calendar { period, zone } => {
                let period = match period {
                    PeriodRecord::Day => Period::Day,
                    PeriodRecord::Week => Period::Week,
                    PeriodRecord::Month => Period::Month,
                    PeriodRecord::Year => Period::Year,
                };
                let zone = Zone::named(&zone).ok_or_else(|| format!("there is no time zone {zone:?}"))?;
                Schedule::Calendar(Calendar::new(period, zone))
            }
        })
    }
}

impl From<&Refill> for RefillRecord {
    fn from(refill: &Refill) -> Self {
        match refill {
            Refill::Greedy(rate) => Self::Greedy(rate.into()),
            Refill::Intervals { tokens, interval } => {
                Self::Intervals { tokens: *tokens, interval: (*interval).into() }
            }
        }
    }
}

impl RefillRecord {
    fn decode(self) -> Result<Refill, String> {
        Ok(match self {
            Self::Greedy(rate) => Refill::Greedy(rate.decode()?),
            Self::Intervals { tokens, interval } => {
                Refill::Intervals { tokens, interval: decode_window(interval)? }
            }
        })
    }
}

impl From<&Rate> for RateRecord {
    fn from(rate: &Rate) -> Self {
        let (hits, nanos) = rate.to_parts();
        Self { hits, nanos }
    }
}

impl RateRecord {
    fn decode(self) -> Result<Rate, String> {
        let Self { hits, nanos } = self;
        Rate::from_parts(hits, nanos)
            .ok_or_else(|| format!("a rate of {hits} hits in {nanos} ns is out of bounds"))
    }
}

impl From<Queue> for QueueRecord {
    fn from(Queue { wait_max, hits_max }: Queue) -> Self {
        let wait_max = DurationRecord { secs: wait_max.as_secs(), nanos: wait_max.subsec_nanos() };
        Self { wait_max, hits_max }
    }
}

impl QueueRecord {
    fn decode(self) -> Result<Queue, String> {
        let Self { wait_max: DurationRecord { secs, nanos }, hits_max } = self;
        if nanos >= 1_000_000_000 {
            return Err(format!("{nanos} ns are a second or more"));
        }
        Ok(Queue { wait_max: Duration::new(secs, nanos), hits_max })
    }
}

fn decode_window(nanos: u64) -> Result<Window, String> {
    Window::from_nanos(nanos).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every algorithm and every variant of its parameters, as format 1 writes it. These lines never change: a change
    /// here makes existing snapshots unreadable.
    const FORMAT_1: [&str; 14] = [
        r#"{"sliding_window":{"limit":100,"window":60000000000}}"#,
        r#"{"sub_windows":{"limit":100,"precision":4,"length":15000000000}}"#,
        r#"{"sliding_log":{"limit":100,"window":60000000000}}"#,
        r#"{"fixed_window":{"limit":100,"schedule":{"clock":60000000000}}}"#,
        r#"{"fixed_window":{"limit":100,"schedule":{"first_hit":60000000000}}}"#,
        r#"{"fixed_window":{"limit":100,"schedule":{"calendar":{"period":"day","zone":"UTC"}}}}"#,
        r#"{"fixed_window":{"limit":100,"schedule":{"calendar":{"period":"week","zone":"Europe/Berlin"}}}}"#,
        r#"{"fixed_window":{"limit":100,"schedule":{"calendar":{"period":"month","zone":"UTC"}}}}"#,
        r#"{"fixed_window":{"limit":100,"schedule":{"calendar":{"period":"year","zone":"UTC"}}}}"#,
        r#"{"token_bucket":{"size":100,"refill":{"greedy":{"hits":1,"nanos":600000000}}}}"#,
        r#"{"token_bucket":{"size":100,"refill":{"intervals":{"tokens":7,"interval":60000000000}}}}"#,
        r#"{"leaky_bucket":{"burst":100,"rate":{"hits":1,"nanos":600000000},"queue":null}}"#,
        r#"{"leaky_bucket":{"burst":1,"rate":{"hits":1,"nanos":600000000},"queue":{"wait_max":{"secs":2,"nanos":500000000},"hits_max":8}}}"#,
        r#"{"ban":{"after":100,"within":60000000000,"lasts":60000000000}}"#,
    ];

    fn algorithms() -> Vec<Algorithm> {
        let (limit, window) = (100, Window::from_secs(60).unwrap());
        let (hundred, seven) = (NonZeroU32::new(100).unwrap(), NonZeroU32::new(7).unwrap());
        let calendar = |period, zone: &str| {
            let schedule = Schedule::Calendar(Calendar::new(period, Zone::named(zone).unwrap()));
            Algorithm::FixedWindow(FixedWindow { limit, schedule })
        };
        let rate = Rate::new(hundred, window);
        let queue = Queue { wait_max: Duration::from_millis(2500), hits_max: 8 };
        vec![
            Algorithm::SlidingWindow(SlidingWindow { limit, window }),
            Algorithm::SubWindows(SubWindows::new(limit, window, 4)),
            Algorithm::SlidingLog(SlidingLog { limit, window }),
            Algorithm::FixedWindow(FixedWindow::on_the_clock(limit, window)),
            Algorithm::FixedWindow(FixedWindow { limit, schedule: Schedule::FirstHit(window) }),
            calendar(Period::Day, "UTC"),
            calendar(Period::Week, "Europe/Berlin"),
            calendar(Period::Month, "UTC"),
            calendar(Period::Year, "UTC"),
            Algorithm::TokenBucket(TokenBucket::greedy(limit, hundred, window)),
            Algorithm::TokenBucket(TokenBucket::by_intervals(limit, seven, window)),
            Algorithm::LeakyBucket(LeakyBucket { burst: limit, rate, queue: None }),
            Algorithm::LeakyBucket(LeakyBucket { burst: 1, rate, queue: Some(queue) }),
            Algorithm::Ban(Ban { after: limit, within: window, lasts: window, epoch: 0 }),
            Algorithm::Ban(Ban { after: limit, within: window, lasts: window, epoch: 3 }),
        ]
    }

    #[test]
    fn format_1_of_every_algorithm_is_written_and_read_unchanged() {
        for (algorithm, text) in algorithms().into_iter().zip(FORMAT_1) {
            let record = AlgorithmRecord::from(&algorithm);
            assert_eq!(serde_json::to_string(&record).unwrap(), text);
            let read: AlgorithmRecord = serde_json::from_str(text).unwrap();
            assert_eq!(read.decode(), Ok(algorithm));
        }
    }

    #[test]
    fn parameters_out_of_bounds_are_refused() {
        for (index, from, to, problem) in [
            (0, "60000000000", "0", "a window is at least 1ms long"),
            (1, r#""precision":4"#, r#""precision":0"#, "0 sub-windows of 15000000000 ns are out of bounds"),
            (5, "UTC", "Mars", "there is no time zone \"Mars\""),
            (9, r#""hits":1"#, r#""hits":0"#, "a rate of 0 hits in 600000000 ns is out of bounds"),
            (12, "500000000}", "1000000000}", "1000000000 ns are a second or more"),
            (13, r#""after":100"#, r#""after":0"#, "a ban after 0 denials is out of bounds"),
        ] {
            let text = FORMAT_1[index].replace(from, to);
            let read: AlgorithmRecord = serde_json::from_str(&text).unwrap();
            assert_eq!(read.decode(), Err(problem.to_owned()), "{text}");
        }
    }
}
