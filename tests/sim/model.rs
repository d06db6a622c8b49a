//! The numbers of a rule, in the form that the oracle uses.

/// Ends of the months of 2024 in Berlin, by GNU date.
pub const BERLIN_MONTHS: [u64; 14] = in_nanoseconds([
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
]);

/// Ends of the months of 2024 that begin in Berlin on the 31st at 02:30, by GNU date. In February they begin on the 29th, and on 31 March
/// clocks skip that time: they go from 02:00 to 03:00.
pub const BERLIN_BILLING: [u64; 15] = in_nanoseconds([
    1_703_986_200,
    1_706_664_600,
    1_709_170_200,
    1_711_846_800,
    1_714_437_000,
    1_717_115_400,
    1_719_707_400,
    1_722_385_800,
    1_725_064_200,
    1_727_656_200,
    1_730_338_200,
    1_732_930_200,
    1_735_608_600,
    1_738_287_000,
    1_740_706_200,
]);

const fn in_nanoseconds<const N: usize>(mut ends: [u64; N]) -> [u64; N] {
    let mut index = 0;
    while index < ends.len() {
        ends[index] *= 1_000_000_000;
        index += 1;
    }
    ends
}

/// The numbers of one rule. Times are in nanoseconds.
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
    /// Tokens are refilled evenly.
    GreedyBucket {
        size: u64,
        tokens: u64,
        interval: u64,
    },
    /// Tokens are refilled at multiples of the interval.
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
    /// Denials of another limit, and the bans that they begin.
    Ban {
        after: u64,
        within: u64,
        lasts: u64,
    },
}

impl Model {
    /// Whether a list of hits has the same meaning under both models: only the admitted numbers may differ.
    pub fn counts_as(&self, other: &Self) -> bool {
        use Model::*;
        match (self, other) {
            // Sub-windows have whole numbers of nanoseconds: windows that are almost the same may have the same sub-windows.
            (SlidingWindow { window: a, precision: b, .. }, SlidingWindow { window, precision, .. }) => {
                b == precision && a.div_ceil(*b) == window.div_ceil(*precision)
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
            // A ban in force keeps its end.
            (Ban { .. }, Ban { .. }) => true,
            _ => false,
        }
    }
}
