//! What the algorithms promise, as naively as it can be said: a list of every hit that counts, read anew for every
//! question, and a wait found by trying moments. Slow, and so plain that it can be believed.
//!
//! It imports nothing of what it judges.

/// The months of 2024 in Berlin, as GNU date has them: the moments at which they end.
pub const BERLIN_MONTHS: [u64; 14] = {
    let mut ends = [
        1_704_063_600,
        1_706_742_000,
        1_709_247_600,
        1_711_922_400,
        1_714_514_400,
        1_717_192_800,
        1_719_784_800,
        1_722_463_200,
        1_725_141_600,
        1_727_733_600,
        1_730_415_600,
        1_733_007_600,
        1_735_686_000,
        1_738_364_400,
    ];
    let mut index = 0;
    while index < ends.len() {
        ends[index] *= 1_000_000_000;
        index += 1;
    }
    ends
};

/// One rule's numbers. Times are in nanoseconds.
#[derive(Clone, PartialEq, Debug)]
pub enum Model {
    SlidingWindow {
        limit: u64,
        window: u64,
        precision: u64,
    },
    SlidingLog {
        limit: u64,
        window: u64,
    },
    /// Windows end at multiples of their length.
    FixedWindow {
        limit: u64,
        window: u64,
    },
    /// Windows end their length after their first hit.
    FirstHitWindow {
        limit: u64,
        window: u64,
    },
    /// Windows end at these moments, in ascending order.
    CalendarWindow {
        limit: u64,
        ends: &'static [u64],
    },
    /// Tokens come back evenly.
    GreedyBucket {
        size: u64,
        tokens: u64,
        interval: u64,
    },
    /// Tokens come back at multiples of the interval.
    IntervalBucket {
        size: u64,
        tokens: u64,
        interval: u64,
    },
    LeakyBucket {
        burst: u64,
        hits: u64,
        per: u64,
    },
}

/// Hits taken at a moment; below zero if they were given back.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Hits {
    at: u64,
    count: i128,
}

/// One counter.
#[derive(Clone, Debug)]
pub struct Oracle {
    model: Model,
    /// In the order in which they came, those that count no more left out.
    list: Vec<Hits>,
    /// The moment of the last change.
    changed: u64,
}

impl Oracle {
    pub fn new(model: Model) -> Self {
        Self { model, list: Vec::new(), changed: 0 }
    }

    /// The most that an empty counter admits.
    pub fn limit(&self) -> u64 {
        match self.model {
            Model::SlidingWindow { limit, .. }
            | Model::SlidingLog { limit, .. }
            | Model::FixedWindow { limit, .. }
            | Model::FirstHitWindow { limit, .. }
            | Model::CalendarWindow { limit, .. } => limit,
            Model::GreedyBucket { size, .. } | Model::IntervalBucket { size, .. } => size,
            Model::LeakyBucket { burst, .. } => burst,
        }
    }

    pub fn used(&self, now: u64) -> u64 {
        let now = self.not_before_the_state(now);
        let used = match self.model {
            Model::SlidingWindow { limit, window, precision } => self.estimate(limit, window, precision, now),
            Model::SlidingLog { window, .. } => self.count(|hit| hit.at + window > now),
            Model::FixedWindow { window, .. } => self.count(|hit| hit.at / window == now / window),
            Model::FirstHitWindow { window, .. } => {
                let first = self.list.first().map_or(0, |hit| hit.at);
                self.count(|_| now < first + window)
            }
            Model::CalendarWindow { ends, .. } => {
                let passed = |at| ends.iter().filter(|&&end| end <= at).count();
                self.count(|hit| passed(hit.at) == passed(now))
            }
            Model::GreedyBucket { tokens, interval, .. } => self.draining(tokens, interval, now),
            Model::LeakyBucket { hits, per, .. } => self.draining(hits, per, now),
            Model::IntervalBucket { tokens, interval, .. } => self.missing(tokens, interval, now),
        };
        u64::try_from(used).expect("no more is counted than was taken")
    }

    pub fn remaining(&self, now: u64) -> u64 {
        self.limit().saturating_sub(self.used(now))
    }

    /// The wait until `hits` are admitted, found by halving; none if they never are.
    pub fn until_admits(&self, hits: u64, now: u64) -> Option<u64> {
        (hits <= self.limit()).then(|| first(now, |at| self.remaining(at) >= hits) - now)
    }

    pub fn until_full(&self, now: u64) -> u64 {
        first(now, |at| self.used(at) == 0) - now
    }

    /// Of a fixed window, how long it still lasts, whatever is in it; none of the others.
    pub fn until_window_ends(&self, now: u64) -> Option<u64> {
        let opened = self.list.first().filter(|_| self.used(now) > 0).map(|hit| hit.at);
        let inside = opened.map_or(now, |_| self.not_before_the_state(now));
        let end = match self.model {
            Model::FixedWindow { window, .. } => (inside / window + 1) * window,
            Model::FirstHitWindow { window, .. } => opened.unwrap_or(now) + window,
            Model::CalendarWindow { ends, .. } => *ends.iter().find(|&&end| end > inside)?,
            _ => return None,
        };
        Some(end - now)
    }

    /// From when on it counts nothing any more, whatever the clock does.
    pub fn expires(&self) -> u64 {
        let (Some(first), Some(newest)) = (self.list.first(), self.list.last()) else { return 0 };
        match self.model {
            Model::SlidingWindow { window, precision, .. } => {
                let length = window.div_ceil(precision);
                (self.changed / length + precision + 1) * length
            }
            Model::SlidingLog { window, .. } => newest.at + window,
            Model::FixedWindow { window, .. } => (newest.at / window + 1) * window,
            Model::FirstHitWindow { window, .. } => first.at + window,
            Model::CalendarWindow { ends, .. } => {
                ends.iter().copied().find(|&end| end > newest.at).unwrap_or(u64::MAX)
            }
            Model::GreedyBucket { .. } | Model::IntervalBucket { .. } | Model::LeakyBucket { .. } => {
                self.changed + self.until_full(self.changed)
            }
        }
    }

    /// Goes on after a restart at `start`. If the clock was set back since it was written `at` that moment, what was used
    /// then counts as taken now.
    pub fn restart(&mut self, at: u64, start: u64) {
        if at > start {
            let used = self.used(at);
            self.list.clear();
            self.changed = start;
            if used > 0 {
                self.take(used, start);
            }
        }
    }

    pub fn take(&mut self, hits: u64, now: u64) {
        self.change(now, i128::from(hits));
        if let Model::SlidingLog { limit, .. } = self.model {
            self.join_beyond(limit);
        }
    }

    /// Takes back the newest hits of those that still count.
    pub fn give_back(&mut self, hits: u64, now: u64) {
        if matches!(
            self.model,
            Model::GreedyBucket { .. } | Model::LeakyBucket { .. } | Model::IntervalBucket { .. }
        ) {
            return self.change(now, -i128::from(hits));
        }
        self.change(now, 0);
        let mut left = i128::from(hits);
        for hit in self.list.iter_mut().rev() {
            let taken = left.min(hit.count);
            hit.count -= taken;
            left -= taken;
        }
        self.list.retain(|hit| hit.count > 0);
    }

    /// Goes on under another rule. What was used stays used, as if taken now; if only the number admitted differs, the
    /// list stays as it is.
    pub fn change_rule(&mut self, model: Model, now: u64) {
        use Model::*;
        let same = match (&self.model, &model) {
            (SlidingWindow { window: a, precision: b, .. }, SlidingWindow { window, precision, .. }) => {
                (a, b) == (window, precision)
            }
            (SlidingLog { window: a, .. }, SlidingLog { window, .. })
            | (FixedWindow { window: a, .. }, FixedWindow { window, .. })
            | (FirstHitWindow { window: a, .. }, FirstHitWindow { window, .. }) => a == window,
            (CalendarWindow { ends: a, .. }, CalendarWindow { ends, .. }) => a == ends,
            (GreedyBucket { tokens: a, interval: b, .. }, GreedyBucket { tokens, interval, .. }) => {
                u128::from(*a) * u128::from(*interval) == u128::from(*tokens) * u128::from(*b)
            }
            (LeakyBucket { hits: a, per: b, .. }, LeakyBucket { hits, per, .. }) => {
                u128::from(*a) * u128::from(*per) == u128::from(*hits) * u128::from(*b)
            }
            (IntervalBucket { tokens: a, interval: b, .. }, IntervalBucket { tokens, interval, .. }) => {
                (a, b) == (tokens, interval)
            }
            _ => false,
        };
        let used = self.used(now);
        self.model = model;
        if !same {
            self.list.clear();
            self.take(used, now);
        }
    }

    /// A counter is read no earlier than at the latest time that it remembers: the newest hit; of windows that are
    /// buckets of hits, only the bucket of the last change. Buckets that drain remember none.
    fn not_before_the_state(&self, now: u64) -> u64 {
        let Some(newest) = self.list.last() else {
            return now;
        };
        match self.model {
            Model::SlidingWindow { window, precision, .. } => {
                let length = window.div_ceil(precision);
                now.max(self.changed / length * length)
            }
            Model::IntervalBucket { interval, .. } => now.max(self.changed / interval * interval),
            Model::GreedyBucket { .. } | Model::LeakyBucket { .. } => now,
            _ => now.max(newest.at),
        }
    }

    /// Forgets what counts no more and notes a change.
    fn change(&mut self, now: u64, count: i128) {
        let now = self.not_before_the_state(now);
        self.forget_all_if_empty(now);
        self.list.retain(|hit| match self.model {
            Model::SlidingWindow { window, precision, .. } => {
                let length = window.div_ceil(precision);
                hit.at / length + precision >= now / length
            }
            Model::SlidingLog { window, .. } => hit.at + window > now,
            _ => true,
        });
        if count != 0 {
            self.list.push(Hits { at: now, count });
        }
        self.changed = now;
        self.forget_all_if_empty(now);
    }

    /// Of a sliding window, what is rounded down to nothing may still be there.
    fn forget_all_if_empty(&mut self, now: u64) {
        if self.used(now) == 0 && !matches!(self.model, Model::SlidingWindow { .. }) {
            self.list.clear();
        }
    }

    fn count(&self, counts: impl Fn(&Hits) -> bool) -> i128 {
        self.list.iter().filter(|hit| counts(hit)).map(|hit| hit.count).sum()
    }

    /// Hits in the newest sub-windows, and the share of those in the sub-window that the window is leaving.
    fn estimate(&self, limit: u64, window: u64, precision: u64, now: u64) -> i128 {
        let length = window.div_ceil(precision);
        let current = now / length;
        let newer = self.count(|hit| hit.at / length + precision > current);
        let leaving = self.count(|hit| hit.at / length + precision == current);
        let inside = i128::from(length - now % length);
        let by_share = leaving * inside / i128::from(length);
        // With one sub-window this is all of the limit, and the published rule.
        let most_taken_off = if precision == 1 { leaving } else { i128::from(limit / precision) };
        newer + by_share.max(leaving - most_taken_off)
    }

    /// Each hit takes `interval / tokens` to drain, one after the other. Counted in parts of `1 / tokens` nanoseconds.
    fn draining(&self, tokens: u64, interval: u64, now: u64) -> i128 {
        let parts = |at: u64| i128::from(at) * i128::from(tokens);
        let dry = self.list.iter().fold(0, |dry, hit| {
            let dry = parts(hit.at).max(dry) + hit.count * i128::from(interval);
            parts(hit.at).max(dry)
        });
        let level = (dry - parts(now)).max(0);
        (level + i128::from(interval) - 1) / i128::from(interval)
    }

    /// Tokens missing, interval by interval.
    fn missing(&self, tokens: u64, interval: u64, now: u64) -> i128 {
        let (mut missing, mut number) = (0, 0);
        for hit in self.list.iter().copied().chain([Hits { at: now, count: 0 }]) {
            let came_back = i128::from((hit.at / interval).saturating_sub(number)) * i128::from(tokens);
            number = number.max(hit.at / interval);
            missing = ((missing - came_back).max(0) + hit.count).max(0);
        }
        missing
    }

    /// The log keeps the newest `limit` hits one by one; older ones are dated as the newest of them.
    fn join_beyond(&mut self, limit: u64) {
        let (mut newer, mut joined) = (0, None);
        for hit in self.list.iter_mut().rev() {
            newer += hit.count;
            if joined.is_none() && newer > i128::from(limit) {
                joined = Some(hit.at);
            }
            hit.at = joined.unwrap_or(hit.at);
        }
    }
}

/// The first moment from `now` on at which it is so; once it is so, it must stay so.
fn first(now: u64, is_so: impl Fn(u64) -> bool) -> u64 {
    if is_so(now) {
        return now;
    }
    // A debt can be so large that it is not paid before time, as counters keep it, ends.
    if !is_so(u64::MAX) {
        return u64::MAX;
    }
    let (mut not_yet, mut so, mut step) = (now, u64::MAX, 1);
    while let Some(at) = now.checked_add(step) {
        if is_so(at) {
            so = at;
            break;
        }
        (not_yet, step) = (at, step * 2);
    }
    while so - not_yet > 1 {
        let middle = not_yet + (so - not_yet) / 2;
        if is_so(middle) {
            so = middle;
        } else {
            not_yet = middle;
        }
    }
    so
}
