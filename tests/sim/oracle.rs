//! A naive implementation of every algorithm: a list of all hits that count, read in full for every result, and waits
//! found by bisection. Slow, and simple enough to be checked by reading.
//!
//! It imports nothing from the code under test.

#[path = "model.rs"]
mod model;

pub use model::{BERLIN_BILLING, BERLIN_MONTHS, Model};

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
    /// In the order of arrival, without hits that no longer count.
    list: Vec<Hits>,
    /// Time of the last change.
    changed: u64,
    /// For denials: the end of the last ban; 0 if none began.
    banned_until: u64,
}

impl Oracle {
    pub fn new(model: Model) -> Self {
        Self { model, list: Vec::new(), changed: 0, banned_until: 0 }
    }

    pub fn model(&self) -> &Model {
        &self.model
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
            Model::Ban { after, .. } => after,
        }
    }

    pub fn used(&self, now: u64) -> u64 {
        let (raw, now) = (now, self.not_before_the_state(now));
        let used = match self.model {
            Model::SlidingWindow { limit, window, precision } => self.estimate(limit, window, precision, now),
            Model::SlidingLog { window, .. } => self.count(|hit| hit.at + window > now),
            Model::FixedWindow { window, .. } => self.count(|hit| hit.at / window == now / window),
            Model::FirstHitWindow { window, .. } => {
                let first = self.list.first().map_or(0, |hit| hit.at);
                self.count(|_| now < first + window)
            }
            Model::CalendarWindow { ends, .. } => self.count(|hit| passed(ends, hit.at) == passed(ends, now)),
            Model::GreedyBucket { tokens, interval, .. } => self.draining(tokens, interval, now),
            Model::LeakyBucket { hits, per, .. } => self.draining(hits, per, now),
            Model::IntervalBucket { tokens, interval, .. } => self.missing(tokens, interval, now),
            Model::Ban { after, .. } if self.is_banned(raw) => after.into(),
            Model::Ban { within, .. } => self.count(|denial| denial.at + within > now),
        };
        u64::try_from(used).expect("no more is counted than was taken")
    }

    /// Whether a ban is in force.
    pub fn is_banned(&self, now: u64) -> bool {
        now < self.banned_until
    }

    pub fn remaining(&self, now: u64) -> u64 {
        if let Model::Ban { .. } = self.model {
            return if self.is_banned(now) { 0 } else { u64::MAX };
        }
        self.limit().saturating_sub(self.used(now))
    }

    /// The wait until `hits` are admitted if `given` hits are given back at the same time, found by bisection; none if
    /// they never are.
    pub fn until_admits(&self, given: u64, hits: u64, now: u64) -> Option<u64> {
        if let Model::Ban { .. } = self.model {
            return Some(self.banned_until.saturating_sub(now));
        }
        let admits = |at| {
            let mut then = self.clone();
            then.give_back(given, at);
            then.remaining(at) >= hits
        };
        (hits <= self.limit()).then(|| first(now, admits) - now)
    }

    pub fn until_full(&self, now: u64) -> u64 {
        first(now, |at| self.used(at) == 0) - now
    }

    /// Time until a fixed window ends, regardless of its hits; none for other algorithms.
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

    /// Time from which it counts nothing, even if the clock is set back.
    pub fn expires(&self) -> u64 {
        if self.banned_until > 0 {
            return self.banned_until;
        }
        let (Some(first), Some(newest)) = (self.list.first(), self.list.last()) else { return 0 };
        match self.model {
            Model::SlidingWindow { window, precision, .. } => {
                let length = window.div_ceil(precision);
                (self.changed / length + precision + 1) * length
            }
            Model::SlidingLog { window, .. } | Model::Ban { within: window, .. } => newest.at + window,
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

    /// Restarts at `start` a counter that was written at `at`. If the clock was set back in between, hits used at `at` count as taken at
    /// `start`, and a ban lasts as long as it had left.
    pub fn restart(&mut self, at: u64, start: u64) {
        if at > start {
            if self.is_banned(at) {
                self.banned_until = start + (self.banned_until - at);
                return;
            }
            let used = self.used(at);
            self.list.clear();
            (self.changed, self.banned_until) = (start, 0);
            if used > 0 {
                self.take(used, start);
            }
        }
    }

    pub fn take(&mut self, hits: u64, now: u64) {
        if let Model::Ban { after, lasts, .. } = self.model {
            return self.deny(hits, after, lasts, now);
        }
        self.change(now, i128::from(hits));
        if let Model::SlidingLog { limit, .. } = self.model {
            self.join_beyond(limit);
        }
    }

    /// Counts denials, unless a ban is in force. A ban that begins after a number of denials begins with the last of them.
    fn deny(&mut self, denials: u64, after: u64, lasts: u64, now: u64) {
        if self.is_banned(now) {
            return;
        }
        self.banned_until = 0;
        self.change(now, denials.into());
        if self.used(now) >= after {
            self.list.clear();
            self.banned_until = now + lasts;
        }
    }

    /// Gives back the newest of the hits that still count. Denials are not given back.
    pub fn give_back(&mut self, hits: u64, now: u64) {
        if let Model::Ban { .. } = self.model {
            return;
        }
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

    /// Changes the rule. Used hits stay used, as if taken now; if only the admitted number differs, the list stays as it is.
    pub fn change_rule(&mut self, model: Model, now: u64) {
        self.change_rule_within(u64::MAX, model, now);
    }

    /// The same, with at most `most` used hits.
    pub fn change_rule_within(&mut self, most: u64, model: Model, now: u64) {
        let (used, same) = (self.used(now), self.model.counts_as(&model));
        self.model = model;
        if !same || self.used(now) > most {
            self.list.clear();
            self.take(used.min(most), now);
        }
    }

    /// Of `hits` taken at `taken`, the number that certainly still counts: the hits that would count if no others had been taken, while the
    /// window in which they were taken is open. A hit that has begun to drain does not count here.
    pub fn left(&self, hits: u64, taken: u64, now: u64) -> u64 {
        let mut alone = Self::new(self.model.clone());
        alone.take(hits, taken);
        if self.lasts_since(taken, now) { alone.whole(now).min(hits) } else { 0 }
    }

    /// Hits of a bucket that count if as many hits as a part of it has were given back.
    pub fn used_without(&self, part: &Self, given: u64, now: u64) -> u64 {
        let of_draining = |tokens, interval: u64| {
            let given = part.level(tokens, interval, now).min(i128::from(given) * i128::from(interval));
            (self.level(tokens, interval, now) - given + i128::from(interval) - 1) / i128::from(interval)
        };
        let used = match self.model {
            Model::GreedyBucket { tokens, interval, .. } => of_draining(tokens, interval),
            Model::LeakyBucket { hits, per, .. } => of_draining(hits, per),
            Model::IntervalBucket { tokens, interval, .. } => {
                let missing = |of: &Self| of.missing(tokens, interval, of.not_before_the_state(now));
                missing(self) - missing(part).min(given.into())
            }
            _ => unreachable!("no bucket"),
        };
        u64::try_from(used).expect("no more is given back than was taken")
    }

    /// Hits that count in full: none of them has begun to drain.
    pub fn whole(&self, now: u64) -> u64 {
        let whole = match self.model {
            Model::GreedyBucket { tokens, interval, .. } => {
                self.level(tokens, interval, now) / i128::from(interval)
            }
            Model::LeakyBucket { hits, per, .. } => self.level(hits, per, now) / i128::from(per),
            _ => return self.used(now),
        };
        u64::try_from(whole).expect("no more is counted than was taken")
    }

    /// Whether the window that was open at `taken`, if the algorithm has windows, is still open.
    fn lasts_since(&self, taken: u64, now: u64) -> bool {
        let (Some(first), Some(newest)) = (self.list.first(), self.list.last()) else { return false };
        match self.model {
            Model::FixedWindow { window, .. } => self.used(now) > 0 && newest.at / window == taken / window,
            Model::FirstHitWindow { .. } => self.used(now) > 0 && first.at <= taken,
            Model::CalendarWindow { ends, .. } => {
                self.used(now) > 0 && passed(ends, newest.at) == passed(ends, taken)
            }
            _ => true,
        }
    }

    /// A counter is read no earlier than at the latest time in its state: the time of the newest hit, or, if windows are made of
    /// sub-windows or intervals, the start of the last one that changed. Buckets that drain evenly have no such time.
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

    /// Drops hits that no longer count, and adds the change.
    fn change(&mut self, now: u64, count: i128) {
        let now = self.not_before_the_state(now);
        self.forget_all_if_empty(now);
        self.list.retain(|hit| match self.model {
            Model::SlidingWindow { window, precision, .. } => {
                let length = window.div_ceil(precision);
                hit.at / length + precision >= now / length
            }
            Model::SlidingLog { window, .. } | Model::Ban { within: window, .. } => hit.at + window > now,
            _ => true,
        });
        if count != 0 {
            self.list.push(Hits { at: now, count });
        }
        self.changed = now;
        self.forget_all_if_empty(now);
    }

    /// The hits of a sliding window may count again after they were rounded down to zero.
    fn forget_all_if_empty(&mut self, now: u64) {
        if self.used(now) == 0 && !matches!(self.model, Model::SlidingWindow { .. }) {
            self.list.clear();
        }
    }

    fn count(&self, counts: impl Fn(&Hits) -> bool) -> i128 {
        self.list.iter().filter(|hit| counts(hit)).map(|hit| hit.count).sum()
    }

    /// Hits in the newest sub-windows, and the share of the hits in the sub-window that the window is leaving.
    fn estimate(&self, limit: u64, window: u64, precision: u64, now: u64) -> i128 {
        let length = window.div_ceil(precision);
        let current = now / length;
        let newer = self.count(|hit| hit.at / length + precision > current);
        let leaving = self.count(|hit| hit.at / length + precision == current);
        let inside = i128::from(length - now % length);
        let by_share = leaving * inside / i128::from(length);
        // With one sub-window all of it may be taken off: the published rule.
        let most_taken_off = if precision == 1 { leaving } else { i128::from(limit / precision) };
        newer + by_share.max(leaving - most_taken_off)
    }

    /// Hits that have not drained; a hit that has partly drained counts.
    fn draining(&self, tokens: u64, interval: u64, now: u64) -> i128 {
        (self.level(tokens, interval, now) + i128::from(interval) - 1) / i128::from(interval)
    }

    /// The level that has not drained, in units of `1 / tokens` nanoseconds. Hits drain one after another, and each takes `interval /
    /// tokens` nanoseconds, which is `interval` units.
    fn level(&self, tokens: u64, interval: u64, now: u64) -> i128 {
        let parts = |at: u64| i128::from(at) * i128::from(tokens);
        let dry = self.list.iter().fold(0, |dry, hit| {
            let dry = parts(hit.at).max(dry) + hit.count * i128::from(interval);
            parts(hit.at).max(dry)
        });
        (dry - parts(now)).max(0)
    }

    /// Missing tokens, interval by interval.
    fn missing(&self, tokens: u64, interval: u64, now: u64) -> i128 {
        let (mut missing, mut number) = (0, 0);
        for hit in self.list.iter().copied().chain([Hits { at: now, count: 0 }]) {
            let refilled = i128::from((hit.at / interval).saturating_sub(number)) * i128::from(tokens);
            number = number.max(hit.at / interval);
            missing = ((missing - refilled).max(0) + hit.count).max(0);
        }
        missing
    }

    /// The log keeps the newest `limit` hits one by one; older hits are dated as the newest of the older hits.
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

/// Number of the windows, given by their ends, that are over at `at`.
fn passed(ends: &[u64], at: u64) -> usize {
    ends.iter().filter(|&&end| end <= at).count()
}

/// The first time from `now` on at which `holds` is true; once true, it must stay true.
pub fn first(now: u64, holds: impl Fn(u64) -> bool) -> u64 {
    if holds(now) {
        return now;
    }
    // A debt can be too large to be paid before the end of representable time.
    if !holds(u64::MAX) {
        return u64::MAX;
    }
    let (mut not_yet, mut so, mut step) = (now, u64::MAX, 1);
    while let Some(at) = now.checked_add(step) {
        if holds(at) {
            so = at;
            break;
        }
        (not_yet, step) = (at, step.saturating_mul(2));
    }
    while so - not_yet > 1 {
        let middle = not_yet + (so - not_yet) / 2;
        if holds(middle) {
            so = middle;
        } else {
            not_yet = middle;
        }
    }
    so
}
