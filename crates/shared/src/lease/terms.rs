//! Terms of leases on one counter: what its algorithm permits, and how often nodes must report.

use super::message::less_drift;
use std::time::Duration;
use tidegate_core::{
    algorithm::{Algorithm, State},
    limit::Timestamp,
};

/// Parameters of all leases; the same on every node of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Length of a lease.
    pub length: Duration,
    /// The smallest lease that is worthwhile, in hits.
    pub grant_min: u64,
    /// The smallest limit that is worth leasing, in hits that an empty counter admits.
    pub limit_min: u64,
    /// The shortest time for which a node keeps a denial of a counter in high demand. Meanwhile it has one call for the counter in the
    /// store. Zero keeps denials for exactly as long as they certainly hold.
    pub hold_min: Duration,
}

/// The admissions of a smaller limit cost the store at most one call each, and a server keeps its denials. Leases would save few of these
/// calls, and would hold back a good part of the limit.
const LIMIT_MIN: u64 = 500;

impl Default for Settings {
    fn default() -> Self {
        let (length, hold_min) = (Duration::from_millis(200), Duration::from_millis(2));
        Self { length, grant_min: 1, limit_min: LIMIT_MIN, hold_min }
    }
}

impl Settings {
    /// Settings that lease nothing: nodes keep denials.
    pub fn denials_only() -> Self {
        let length = Duration::from_nanos(LENGTH_NANOS_MIN);
        Self { length, grant_min: u64::MAX, limit_min: u64::MAX, hold_min: Duration::ZERO }
    }

    /// Length of a lease in nanoseconds.
    pub fn length_nanos(&self) -> u64 {
        u64::try_from(self.length.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Reciprocal of the part of a window after which a node reports if credits are scarce. The hits of a sliding window count for that much
/// longer than they should. At 256, and a demand of four times the limit, 97 % of the limit is admitted (`simulation`).
const WINDOW_PER_REPORT: u64 = 256;

/// Number of requests for a denied counter of which the store decides one.
const REQUESTS_PER_HOLD: u64 = 40;

/// Reciprocal of the longest part of a window for which a denial is held. Hits that become free meanwhile are admitted that much later.
const WINDOW_PER_HOLD: u64 = 128;

/// The shortest time between two reports of a node about a counter: several round trips.
pub(super) const REPORT_NANOS_MIN: u64 = 2_000_000;

const MICRO: u64 = 1_000;

/// In comparisons of demand with the limit, hits count for ten years at most.
const SPAN_MICROS_MAX: u64 = 10 * 366 * 86_400 * 1_000_000;

/// The shortest lease: several times the shortest time between two reports.
const LENGTH_NANOS_MIN: u64 = 5 * REPORT_NANOS_MIN;

/// The numbers of a counter's terms from which the store computes grants. Times are microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TermsNumbers {
    /// Length of a lease.
    pub length: u64,
    /// See [`Settings::grant_min`].
    pub grant_min: u64,
    /// Hits that an empty counter admits.
    pub limit: u64,
    /// Time for which a hit counts.
    pub span: u64,
    /// The shortest time between two reports of a node.
    pub report_min: u64,
    /// The shortest time for which credits are granted.
    pub horizon_min: u64,
    /// Hits that become free between two reports, if all are used.
    pub freed_per_report: u64,
}

impl TermsNumbers {
    /// Time for which nodes are granted credits, if together they demand `demand` hits in one lease length.
    ///
    /// Unspent credits, and hits that are reported late, are missing from a sliding window or a bucket. They take half of the hits that the
    /// demand leaves free, but at least the hits of two reports. A fixed window forgets late hits at its end.
    pub(super) fn horizon(&self, demand: u64) -> u64 {
        let (demand, length) = (u128::from(demand.max(1)), u128::from(self.length));
        let used = demand * u128::from(self.span) / length.max(1);
        let horizon = u128::from(self.limit).saturating_sub(used) * length / (2 * demand);
        u64::try_from(horizon).unwrap_or(u64::MAX).clamp(self.horizon_min, self.length)
    }

    /// Time after which a node with credits for `horizon` reports again. A lease has the full length only if hits are ample: late reports
    /// then take nothing from other nodes, and fewer requests cost less.
    pub(super) fn report_after(&self, horizon: u64) -> u64 {
        if horizon == self.length { horizon / 4 * 3 } else { horizon / 2 }
    }

    /// The part of a demand per lease length that falls into `micros` microseconds.
    pub(super) fn part(&self, demand: u64, micros: u64) -> u64 {
        (u128::from(demand) * u128::from(micros) / u128::from(self.length.max(1))) as u64
    }
}

/// The numbers of a counter that a node needs to hold its credits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HolderTerms {
    /// The settings.
    pub settings: Settings,
    /// Hits that an empty counter admits.
    pub limit: u64,
    /// Microseconds for which a hit counts.
    pub span: u64,
}

impl HolderTerms {
    /// Whether the limit is too small for leases: nodes keep denials, and the store makes all other decisions.
    pub fn is_small(&self) -> bool {
        self.limit < self.settings.limit_min
    }

    /// The shortest time between two reports of a node.
    pub fn report_nanos_min(&self) -> u64 {
        self.report_micros_min() * MICRO
    }

    fn report_micros_min(&self) -> u64 {
        let longest = (self.settings.length_nanos() / MICRO / 2).max(1);
        (self.span / WINDOW_PER_REPORT).max(REPORT_NANOS_MIN / MICRO).min(longest)
    }

    /// The shortest time for which a denial is kept if `demand` hits are demanded in a lease length. Zero if requests are rarer than one in
    /// `hold_min`: a client that waits for the reset is then admitted.
    pub(super) fn hold_nanos(&self, demand: u64) -> u64 {
        let least = u64::try_from(self.settings.hold_min.as_nanos()).unwrap_or(u64::MAX);
        let length = self.settings.length_nanos();
        if demand.saturating_mul(least) <= length {
            return 0;
        }
        let longest = (self.span.saturating_mul(MICRO) / WINDOW_PER_HOLD).max(least);
        (length.saturating_mul(REQUESTS_PER_HOLD) / demand.max(1)).clamp(least, longest)
    }
}

/// The algorithm of a counter, with the settings.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// The algorithm.
    pub algorithm: &'a Algorithm,
    /// The settings.
    pub settings: Settings,
}

impl<'a> Terms<'a> {
    /// Terms for counters of the algorithm; none if they are not leased.
    pub fn of(algorithm: &'a Algorithm, settings: Settings) -> Option<Self> {
        let terms = Self { algorithm, settings };
        let is_leased = terms.settings.length > Duration::ZERO
            && algorithm.queueing().is_none()
            && algorithm.span_nanos() >= settings.length_nanos()
            && settings.length_nanos() >= LENGTH_NANOS_MIN;
        is_leased.then_some(terms)
    }

    /// The numbers from which the store computes grants.
    pub fn numbers(&self) -> TermsNumbers {
        let HolderTerms { limit, span, .. } = self.for_holder();
        let (length, report_min) =
            (self.settings.length_nanos() / MICRO, self.for_holder().report_micros_min());
        let is_fixed = self.algorithm.fixed().is_some();
        let reports = 2 * report_min;
        let horizon_min = if is_fixed { reports.max(length / 4) } else { reports }.min(length);
        let freed_per_report = (u128::from(limit) * u128::from(report_min) / u128::from(span.max(1))) as u64;
        let grant_min = self.settings.grant_min;
        TermsNumbers { length, grant_min, limit, span, report_min, horizon_min, freed_per_report }
    }

    /// The end of a lease that is granted now. In a fixed window, at most the last microsecond of the window, which hits dated at the end
    /// still belong to. None if nothing can be granted: only an exact decision opens a window from the first hit.
    pub(super) fn end(&self, state: &State, now: Timestamp) -> Option<Timestamp> {
        let end = now.saturating_add_nanos(self.settings.length_nanos());
        let Some(fixed) = self.algorithm.fixed() else { return Some(end) };
        let is_open = self.algorithm.used(state, now) > 0;
        if self.algorithm.is_from_first_hit() && !is_open {
            return None;
        }
        let window_end = now.saturating_add(fixed.until_window_ends(state, now)).as_nanos();
        Some(end.min(Timestamp::from_nanos(window_end - MICRO))).filter(|&end| end > now)
    }

    /// The date of hits that a node reports now, if it spent the last of them `spent_ago` nanoseconds before.
    ///
    /// The request arrives after it is sent, so that the date is not before the last hit. Hits of a bucket are dated at the report: if hits
    /// had been given back meanwhile, the bucket would have drained by both.
    pub(super) fn spent_at(&self, spent_ago: u64, now: Timestamp) -> Timestamp {
        if self.algorithm.is_bucket() {
            return now;
        }
        // In whole microseconds, as the store counts: rounded to the later one.
        Timestamp::from_nanos(now.as_nanos().saturating_sub(less_drift(spent_ago) / MICRO * MICRO))
    }

    /// See [`HolderTerms::is_small`].
    pub fn is_small(&self) -> bool {
        self.limit() < self.settings.limit_min
    }

    /// The numbers that a node needs.
    pub fn for_holder(&self) -> HolderTerms {
        let span = (self.algorithm.span_nanos() / MICRO).min(SPAN_MICROS_MAX);
        HolderTerms { settings: self.settings, limit: self.limit(), span }
    }

    /// Hits that an empty counter admits.
    fn limit(&self) -> u64 {
        self.algorithm.remaining(&State::EMPTY, Timestamp::EPOCH)
    }
}
