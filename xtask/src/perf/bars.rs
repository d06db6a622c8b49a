//! Bars: figures and their bounds.

use super::{
    in_process::{
        DECIDE_1_M_KEYS, DECIDE_1000_KEYS, LIMITER, QUOTAS, QUOTAS_OF_ALL, QUOTAS_OF_ONE, QUOTAS_OF_TEN,
        TWO_THREADS,
    },
    results::{Figure, Results, Spread},
    scenario::{
        CONTROL, DECISION_LOG, EQUALITY, EVALUATED, FEW_KEYS, FOUR_DESCRIPTORS, HALF_HANDSHAKES,
        HUNDRED_THOUSAND_RULES, MANY_KEYS, MANY_RULES, MANY_SERIES, METRICS, OPEN, OPEN_FEWER_RULES,
        OPEN_RULES, OPEN_SCRAPES, OPEN_SERIES, OPEN_TLS, RELOADS, SATURATED, SERIES, THOUSAND_LIMITS, TLS,
        TRACEPARENT, UNLOADED,
    },
};
use std::fmt;

/// A figure and its bound.
pub(super) struct Bar {
    pub(super) about: &'static str,
    pub(super) measure: Measure,
    pub(super) bound: Bound,
}

pub(super) enum Measure {
    /// Tidegate's figure in the first scenario over that of the server in the second.
    Ratio(&'static str, (&'static str, &'static str), Figure),
    /// Tidegate's figure in the first scenario over that in the second, which alternate.
    PairedRatio(&'static str, &'static str, Figure),
    /// Tidegate's figure in the first scenario less that in the second, which alternate.
    PairedDifference(&'static str, &'static str, Figure),
    /// A figure itself.
    Value(&'static str, &'static str, Figure),
}

pub(super) enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

const OURS: &str = "tidegate";
const CONTROL_SERVER: &str = "tonic";
const LIMITADOR: &str = "limitador";

pub(super) const BARS: &[Bar] = &[
    Bar {
        about: "CPU of a decision, against tonic",
        measure: Measure::Ratio(SATURATED, (SATURATED, "tonic"), Figure::CpuMicros),
        bound: Bound::AtMost(0.75),
    },
    Bar {
        about: "CPU of a decision, against hyper",
        measure: Measure::Ratio(SATURATED, (SATURATED, "hyper"), Figure::CpuMicros),
        bound: Bound::AtMost(1.25),
    },
    Bar {
        about: "CPU of a decision with TLS, against without",
        measure: Measure::Ratio(TLS, (SATURATED, OURS), Figure::CpuMicros),
        bound: Bound::AtMost(1.6),
    },
    Bar {
        about: "CPU of a decision with TLS, against tonic with TLS",
        measure: Measure::Ratio(TLS, (TLS, "tonic"), Figure::CpuMicros),
        bound: Bound::AtMost(0.35),
    },
    Bar {
        about: "round trip unloaded, p50, against tonic",
        measure: Measure::Ratio(UNLOADED, (UNLOADED, "tonic"), Figure::P50Micros),
        bound: Bound::AtMost(1.0),
    },
    Bar {
        about: "open loop at 20,000/s, p99, against tonic",
        measure: Measure::Ratio(OPEN, (OPEN, "tonic"), Figure::P99Micros),
        bound: Bound::AtMost(1.1),
    },
    Bar {
        about: "CPU of four descriptors, against one",
        measure: Measure::Ratio(FOUR_DESCRIPTORS, (SATURATED, OURS), Figure::CpuMicros),
        bound: Bound::AtMost(1.25),
    },
    Bar {
        about: "CPU with 10,000 sibling rules, against 10",
        measure: Measure::Ratio(MANY_RULES, (SATURATED, OURS), Figure::CpuMicros),
        bound: Bound::AtMost(1.05),
    },
    Bar {
        about: "CPU with a traceparent that varies, unsampled, against none",
        measure: Measure::Ratio(TRACEPARENT, (SATURATED, OURS), Figure::CpuMicros),
        bound: Bound::AtMost(1.15),
    },
    Bar {
        about: "CPU with metrics of 1,000 limits, against none",
        measure: Measure::Ratio(METRICS, (THOUSAND_LIMITS, OURS), Figure::CpuMicros),
        bound: Bound::AtMost(1.03),
    },
    Bar {
        about: "scrape with 10,000 series under load, ms",
        measure: Measure::Value(SERIES, OURS, Figure::ScrapeMillis),
        bound: Bound::AtMost(50.0),
    },
    Bar {
        about: "scrape with 10,000 limits under load, ms",
        measure: Measure::Value(MANY_SERIES, OURS, Figure::ScrapeMillis),
        bound: Bound::AtMost(50.0),
    },
    Bar {
        about: "open loop beside scrapes of 10,000 series, p99, against none",
        measure: Measure::PairedRatio(OPEN_SERIES, OPEN_FEWER_RULES, Figure::P99Micros),
        bound: Bound::AtMost(1.1),
    },
    Bar {
        about: "open loop beside scrapes of 10,000 limits, p99, against none",
        measure: Measure::PairedRatio(OPEN_SCRAPES, OPEN_RULES, Figure::P99Micros),
        bound: Bound::AtMost(1.1),
    },
    Bar {
        about: "open loop with TLS beside 5,000 half handshakes, p99, against the same elsewhere",
        measure: Measure::PairedRatio(HALF_HANDSHAKES, OPEN_TLS, Figure::P99Micros),
        bound: Bound::AtMost(2.0),
    },
    Bar {
        about: "open loop beside reloads of 100,000 rules, p99.9, later than without by µs",
        measure: Measure::PairedDifference(RELOADS, HUNDRED_THOUSAND_RULES, Figure::P999Micros),
        bound: Bound::AtMost(1_000.0),
    },
    Bar {
        about: "CPU with a decision log of 1 %, against none",
        measure: Measure::Ratio(DECISION_LOG, (SATURATED, OURS), Figure::CpuMicros),
        bound: Bound::AtMost(1.1),
    },
    Bar {
        about: "CPU with the control API and no reader, against none",
        measure: Measure::Ratio(CONTROL, (SATURATED, OURS), Figure::CpuMicros),
        bound: Bound::AtMost(1.01),
    },
    Bar {
        about: "CPU of a decision by ten limits with equality, against Limitador",
        measure: Measure::Ratio(EQUALITY, (EQUALITY, LIMITADOR), Figure::CpuMicros),
        bound: Bound::AtMost(0.1),
    },
    Bar {
        about: "CPU of a decision by ten limits with evaluated conditions, against Limitador",
        measure: Measure::Ratio(EVALUATED, (EVALUATED, LIMITADOR), Figure::CpuMicros),
        bound: Bound::AtMost(0.33),
    },
    Bar {
        about: "CPU with 1 M live keys, against 1,000",
        measure: Measure::Ratio(MANY_KEYS, (FEW_KEYS, OURS), Figure::CpuMicros),
        bound: Bound::AtMost(1.25),
    },
    Bar {
        about: "limiter.decide, 1,000 hot keys, ns",
        measure: Measure::Value(DECIDE_1000_KEYS, LIMITER, Figure::Nanos),
        bound: Bound::AtMost(120.0),
    },
    Bar {
        about: "limiter.decide, 1 M keys, ns",
        measure: Measure::Value(DECIDE_1_M_KEYS, LIMITER, Figure::Nanos),
        bound: Bound::AtMost(300.0),
    },
    Bar {
        about: "resident memory at start, MiB",
        measure: Measure::Value(SATURATED, OURS, Figure::ResidentMib),
        bound: Bound::AtMost(15.0),
    },
    Bar {
        about: "decisions of two threads, against one",
        measure: Measure::Value(TWO_THREADS, LIMITER, Figure::Ratio),
        bound: Bound::AtLeast(1.8),
    },
    Bar {
        about: "quotas: report of 100 buckets that 10,000 streams share, µs",
        measure: Measure::Value(QUOTAS_OF_ALL, QUOTAS, Figure::CpuMicros),
        bound: Bound::AtMost(100.0),
    },
    Bar {
        about: "quotas: report of 100 buckets that ten streams share, µs",
        measure: Measure::Value(QUOTAS_OF_TEN, QUOTAS, Figure::CpuMicros),
        bound: Bound::AtMost(100.0),
    },
    Bar {
        about: "quotas: report of 100 buckets of one stream, µs",
        measure: Measure::Value(QUOTAS_OF_ONE, QUOTAS, Figure::CpuMicros),
        bound: Bound::AtMost(100.0),
    },
    Bar {
        about: "quotas: memory of a stream's bucket that 10,000 share, bytes",
        measure: Measure::Value(QUOTAS_OF_ALL, QUOTAS, Figure::Bytes),
        bound: Bound::AtMost(200.0),
    },
    Bar {
        about: "quotas: memory of a stream's bucket that ten share, bytes",
        measure: Measure::Value(QUOTAS_OF_TEN, QUOTAS, Figure::Bytes),
        bound: Bound::AtMost(200.0),
    },
];

impl Bar {
    pub(super) fn measured(&self, results: &Results) -> Option<Spread> {
        match self.measure {
            Measure::Ratio(scenario, other, figure) => results.ratio((scenario, OURS), other, figure),
            Measure::Value(scenario, server, figure) => results.spread(scenario, server, figure),
            Measure::PairedRatio(..) | Measure::PairedDifference(..) => self.of_pairs(OURS, results),
        }
    }

    /// The same of the server for which both scenarios of a pair are one.
    pub(super) fn control(&self, results: &Results) -> Option<Spread> {
        self.of_pairs(CONTROL_SERVER, results)
    }

    fn of_pairs(&self, server: &'static str, results: &Results) -> Option<Spread> {
        match self.measure {
            Measure::PairedRatio(with, without, figure) => {
                results.ratio((with, server), (without, server), figure)
            }
            Measure::PairedDifference(with, without, figure) => {
                results.difference((with, server), (without, server), figure)
            }
            Measure::Ratio(..) | Measure::Value(..) => None,
        }
    }

    /// Whether it is measured only where Limitador's server is.
    pub(super) fn needs_limitador(&self) -> bool {
        matches!(self.measure, Measure::Ratio(_, (_, LIMITADOR), _))
    }

    /// Whether the bar is missed, or was not measured.
    pub(super) fn is_missed(&self, results: &Results) -> bool {
        let median = self.measured(results).map(|spread| spread.median);
        !median.is_some_and(|median| match self.bound {
            Bound::AtMost(most) => median <= most,
            Bound::AtLeast(least) => median >= least,
        })
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "at most {most}"),
            Self::AtLeast(least) => write!(f, "at least {least}"),
        }
    }
}
