//! The schedule of requests.
//!
//! In an open loop, each request has an intended time, independent of the server. A request that is sent late keeps its intended time, so
//! that its latency includes the delay (no coordinated omission). In a closed loop, the intended time is now.

/// End of a run.
#[derive(Clone, Copy, Debug)]
pub enum Length {
    /// This many nanoseconds after the warm-up.
    Nanos(u64),
    /// This many requests after the warm-up.
    Requests(u64),
}

/// The schedule of one run.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// Start of the measurement: the end of the warm-up.
    measured_from: u64,
    start: u64,
    length: Length,
    /// Nanoseconds between requests of an open loop.
    interval: Option<f64>,
    issued: u64,
    issued_measured: u64,
}

impl Pace {
    /// A schedule that starts at `start` with `warm_up` nanoseconds. `rate` is the requests per second of an open loop.
    pub(crate) fn new(start: u64, warm_up: u64, length: Length, rate: Option<f64>) -> Self {
        let interval = rate.map(|rate| 1e9 / rate);
        let measured_from = start.saturating_add(warm_up);
        Self { measured_from, start, length, interval, issued: 0, issued_measured: 0 }
    }

    /// The intended time of the next request, if it is due.
    pub(crate) fn next(&mut self, now: u64) -> Option<u64> {
        let intended = self.upcoming(now);
        if intended > now || self.is_beyond_the_end(intended) {
            return None;
        }
        self.issued += 1;
        self.issued_measured += u64::from(self.counts(intended));
        Some(intended)
    }

    /// Whether a request with this intended time is measured.
    pub(crate) fn counts(&self, intended: u64) -> bool {
        intended >= self.measured_from
    }

    /// Ends the schedule: no more requests become due.
    pub(crate) fn stop(&mut self, now: u64) {
        let until_now = Length::Nanos(now.saturating_sub(self.measured_from));
        self.length = if self.is_over(now) { self.length } else { until_now };
    }

    /// Start of the measurement.
    pub(crate) fn measured_from(&self) -> u64 {
        self.measured_from
    }

    /// Latest intended time, if the length of the run is a time.
    pub(crate) fn deadline(&self) -> Option<u64> {
        match self.length {
            Length::Nanos(length) => Some(self.measured_from.saturating_add(length)),
            Length::Requests(_) => None,
        }
    }

    /// Whether no more requests will become due.
    pub(crate) fn is_over(&self, now: u64) -> bool {
        self.is_beyond_the_end(self.upcoming(now))
    }

    /// Completed share of the run, from 0 to 1.
    pub(crate) fn progress(&self, now: u64) -> f64 {
        match self.length {
            Length::Nanos(length) => {
                let whole = (self.measured_from - self.start).saturating_add(length);
                now.saturating_sub(self.start) as f64 / whole.max(1) as f64
            }
            Length::Requests(count) => self.issued_measured as f64 / count.max(1) as f64,
        }
        .min(1.0)
    }

    /// Number of measured requests due by `now` that were never sent.
    pub(crate) fn overdue(&self, now: u64) -> u64 {
        let mut rest = self.clone();
        match self.interval {
            Some(_) => {
                std::iter::from_fn(|| rest.next(now)).filter(|&intended| self.counts(intended)).count() as u64
            }
            None => 0,
        }
    }

    fn upcoming(&self, now: u64) -> u64 {
        match self.interval {
            // Computed from the start: summing intervals would accumulate rounding errors.
            Some(interval) => self.start.saturating_add((self.issued as f64 * interval) as u64),
            None => now,
        }
    }

    fn is_beyond_the_end(&self, intended: u64) -> bool {
        match self.length {
            Length::Nanos(length) => intended >= self.measured_from.saturating_add(length),
            Length::Requests(count) => self.issued_measured >= count,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(pace: &mut Pace, now: u64) -> Vec<u64> {
        std::iter::from_fn(|| pace.next(now)).collect()
    }

    #[test]
    fn late_requests_of_an_open_loop_keep_their_intended_times() {
        let mut pace = Pace::new(1_000, 0, Length::Nanos(1_000), Some(1e7));
        assert_eq!(due(&mut pace, 1_250), [1_000, 1_100, 1_200]);
        assert!(due(&mut pace, 1_299).is_empty());
        assert_eq!(due(&mut pace, 9_999), [1_300, 1_400, 1_500, 1_600, 1_700, 1_800, 1_900]);
        assert!(pace.is_over(9_999));
    }

    #[test]
    fn an_open_loop_has_exactly_its_rate() {
        let mut pace = Pace::new(0, 0, Length::Nanos(10_000_000_000), Some(30_000.0));
        assert_eq!(due(&mut pace, u64::MAX).len(), 300_000);
    }

    #[test]
    fn a_closed_loop_is_always_due_until_it_ends() {
        let mut pace = Pace::new(100, 50, Length::Nanos(50), None);
        assert_eq!(
            [pace.next(100), pace.next(100), pace.next(199), pace.next(200)],
            [Some(100), Some(100), Some(199), None]
        );
        assert!(pace.is_over(200) && !pace.is_over(199));
    }

    #[test]
    fn requests_of_the_warm_up_do_not_count() {
        let mut pace = Pace::new(100, 50, Length::Requests(2), None);
        assert_eq!(pace.next(149), Some(149));
        assert!(!pace.counts(149) && pace.counts(150));
        assert_eq!([pace.next(150), pace.next(151), pace.next(152)], [Some(150), Some(151), None]);
    }

    #[test]
    fn requests_that_were_due_and_never_sent_are_counted() {
        let mut pace = Pace::new(0, 200, Length::Nanos(800), Some(1e7));
        assert_eq!(pace.next(0), Some(0));
        assert_eq!(pace.overdue(5_000), 8, "from 200 to 900; that of 100 belongs to the warm-up");
        assert_eq!(
            Pace::new(0, 0, Length::Nanos(800), None).overdue(300),
            0,
            "nothing is late in a closed loop"
        );
    }
}
