//! Requests and denials over time, in a bounded number of intervals.

use super::time_format::time;
use serde::Serialize;
use tidegate_core::limit::{Code, Timestamp};

/// The most intervals of a series. If time exceeds them, each two are merged into one of twice the length.
const POINTS_MAX: usize = 240;

/// Nanoseconds of the shortest interval.
const SECOND: u64 = 1_000_000_000;

/// Counts in consecutive intervals of equal length.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Series {
    /// Start of the first interval; none without requests.
    #[serde(serialize_with = "time")]
    pub start: Option<Timestamp>,
    /// Nanoseconds of an interval.
    #[serde(rename = "interval_ns")]
    pub interval: u64,
    /// Counts by interval. The last interval may be incomplete.
    pub points: Vec<Point>,
}

/// Counts in one interval.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Point {
    /// Requests.
    pub requests: u64,
    /// Requests that the proposed rules deny.
    pub denied_proposed: u64,
    /// Requests that the current rules deny, or that are denied in the log.
    pub denied_current: u64,
}

impl Default for Series {
    fn default() -> Self {
        Self { start: None, interval: SECOND, points: Vec::new() }
    }
}

impl Series {
    /// Counts a request; time never runs backwards.
    pub(super) fn add(&mut self, now: Timestamp, proposed: Code, current: Code) {
        let first = Timestamp::from_nanos(now.as_nanos() / SECOND * SECOND);
        let since = now.as_nanos() - self.start.get_or_insert(first).as_nanos();
        while since / self.interval >= POINTS_MAX as u64 {
            self.double_interval();
        }
        let at = (since / self.interval) as usize;
        if self.points.len() <= at {
            self.points.resize(at + 1, Point::default());
        }
        let point = &mut self.points[at];
        point.requests += 1;
        point.denied_proposed += u64::from(proposed == Code::OverLimit);
        point.denied_current += u64::from(current == Code::OverLimit);
    }

    fn double_interval(&mut self) {
        self.interval *= 2;
        let sum = |pair: &[Point]| {
            pair.iter().fold(Point::default(), |sum, point| Point {
                requests: sum.requests + point.requests,
                denied_proposed: sum.denied_proposed + point.denied_proposed,
                denied_current: sum.denied_current + point.denied_current,
            })
        };
        self.points = self.points.chunks(2).map(sum).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_grow_with_the_log_and_no_request_is_lost() {
        let mut series = Series::default();
        let start = 1_000 * SECOND + 7;
        for second in 0..1_000 {
            let code = if second % 4 == 0 { Code::OverLimit } else { Code::Ok };
            series.add(Timestamp::from_nanos(start + second * SECOND), code, Code::Ok);
        }
        assert_eq!(series.start, Some(Timestamp::from_nanos(1_000 * SECOND)));
        assert_eq!((series.interval, series.points.len()), (8 * SECOND, 125));
        assert!(series.points.iter().all(|point| (point.requests, point.denied_proposed) == (8, 2)));
    }

    #[test]
    fn a_gap_of_centuries_takes_no_more_memory() {
        let mut series = Series::default();
        for now in [0, u64::MAX] {
            series.add(Timestamp::from_nanos(now), Code::Ok, Code::OverLimit);
        }
        assert!(series.points.len() <= POINTS_MAX, "{}", series.points.len());
        assert_eq!(series.points.iter().map(|point| point.denied_current).sum::<u64>(), 2);
    }
}
