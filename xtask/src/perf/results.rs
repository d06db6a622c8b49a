//! Measurements and their statistics.

use super::machine::Machine;
use std::{collections::BTreeMap, fmt::Write as _};

/// Kind of a measured number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Figure {
    PerSecond,
    CpuMicros,
    /// CPU time of the store of shared counters.
    StoreMicros,
    /// Time of the store in scripts, by its own statistics.
    ScriptMicros,
    P50Micros,
    P99Micros,
    P999Micros,
    ResidentMib,
    Disturbance,
    ScrapeMillis,
    Nanos,
    Bytes,
    Ratio,
    /// Calls of the store of shared counters per decision.
    StoreCalls,
}

impl Figure {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::PerSecond => "requests_per_second",
            Self::CpuMicros => "server_cpu_us",
            Self::StoreMicros => "store_cpu_us",
            Self::ScriptMicros => "script_us",
            Self::P50Micros => "p50_us",
            Self::P99Micros => "p99_us",
            Self::P999Micros => "p99.9_us",
            Self::ResidentMib => "resident_mib",
            Self::Disturbance => "core_share_of_others",
            Self::ScrapeMillis => "scrape_ms",
            Self::Nanos => "ns",
            Self::Bytes => "bytes",
            Self::Ratio => "ratio",
            Self::StoreCalls => "store_calls",
        }
    }
}

struct Sample {
    round: u32,
    scenario: &'static str,
    server: &'static str,
    figure: Figure,
    value: f64,
}

/// Samples of all rounds. Some scenarios have several periods in a round, and so several samples.
#[derive(Default)]
pub(super) struct Results(Vec<Sample>);

/// Median and range over rounds.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Spread {
    pub(super) least: f64,
    pub(super) median: f64,
    pub(super) most: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (&least, &most) = (values.first()?, values.last()?);
        let (before, after) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { least, median: f64::midpoint(before, after), most })
    }
}

impl Results {
    pub(super) fn add(
        &mut self,
        round: u32,
        scenario: &'static str,
        server: &'static str,
        figures: &[(Figure, f64)],
    ) {
        self.0.extend(figures.iter().map(|&(figure, value)| Sample {
            round,
            scenario,
            server,
            figure,
            value,
        }));
    }

    /// The figure of each round: of several periods the lower quartile. Other guests of the machine add to a latency and never take from
    /// it, so that the calmer periods show the server; work beside the load is in all of them.
    fn values(&self, scenario: &str, server: &str, figure: Figure) -> impl Iterator<Item = (u32, f64)> {
        let mut rounds: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for sample in &self.0 {
            if sample.scenario == scenario && sample.server == server && sample.figure == figure {
                rounds.entry(sample.round).or_default().push(sample.value);
            }
        }
        rounds.into_iter().map(|(round, mut periods)| {
            periods.sort_by(f64::total_cmp);
            (round, periods[periods.len() / 4])
        })
    }

    pub(super) fn spread(&self, scenario: &str, server: &str, figure: Figure) -> Option<Spread> {
        Spread::of(self.values(scenario, server, figure).map(|(_, value)| value))
    }

    pub(super) fn median(&self, scenario: &str, server: &str, figure: Figure) -> Option<f64> {
        self.spread(scenario, server, figure).map(|spread| spread.median)
    }

    /// Ratio of two figures, round by round.
    pub(super) fn ratio(
        &self,
        scenario: (&str, &str),
        other: (&str, &str),
        figure: Figure,
    ) -> Option<Spread> {
        self.compare(scenario, other, figure, |value, other| value / other)
    }

    /// Difference of two figures, round by round.
    pub(super) fn difference(
        &self,
        scenario: (&str, &str),
        other: (&str, &str),
        figure: Figure,
    ) -> Option<Spread> {
        self.compare(scenario, other, figure, |value, other| value - other)
    }

    fn compare(
        &self,
        (scenario, server): (&str, &str),
        (other_scenario, other_server): (&str, &str),
        figure: Figure,
        compare: fn(f64, f64) -> f64,
    ) -> Option<Spread> {
        Spread::of(self.values(scenario, server, figure).filter_map(|(round, value)| {
            let mut others = self.values(other_scenario, other_server, figure);
            others.find(|&(other_round, _)| other_round == round).map(|(_, other)| compare(value, other))
        }))
    }

    /// One line per number, with machine, date and commit.
    pub(super) fn to_csv(&self, machine: &Machine) -> String {
        let mut csv = "date,commit,cpu,cores,kernel,round,scenario,server,figure,value\n".to_owned();
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        for Sample { round, scenario, server, figure, value } in &self.0 {
            let Machine { date, commit, cpu, cores, kernel } = machine;
            let (cpu, scenario, figure) = (quoted(cpu), quoted(scenario), figure.name());
            writeln!(
                csv,
                "{date},{commit},{cpu},{cores},{kernel},{round},{scenario},{server},{figure},{value:.4}"
            )
            .expect("writing to a string cannot fail");
        }
        csv
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_taken_within_a_round() {
        let mut results = Results::default();
        for (round, ours, theirs) in [(1, 10.0, 10.0), (2, 20.0, 40.0), (3, 30.0, 10.0)] {
            results.add(round, "s", "ours", &[(Figure::CpuMicros, ours)]);
            results.add(round, "s", "theirs", &[(Figure::CpuMicros, theirs)]);
        }
        let ratio = results.ratio(("s", "ours"), ("s", "theirs"), Figure::CpuMicros);
        assert_eq!(ratio, Spread::of([0.5, 1.0, 3.0].into_iter()));
        assert_eq!(results.median("s", "ours", Figure::CpuMicros), Some(20.0));
        assert_eq!(results.ratio(("s", "ours"), ("t", "theirs"), Figure::CpuMicros), None);
    }

    #[test]
    fn the_median_of_two_is_between_them() {
        let expected = Spread { least: 1.0, median: 2.5, most: 4.0 };
        assert_eq!(Spread::of([4.0, 1.0].into_iter()), Some(expected));
    }

    #[test]
    fn of_the_periods_of_a_round_the_lower_quartile_counts() {
        let mut results = Results::default();
        for (round, periods) in [(1, &[900.0, 70.0, 60.0, 80.0, 5_000.0, 90.0][..]), (2, &[100.0])] {
            for &period in periods {
                results.add(round, "s", "ours", &[(Figure::P99Micros, period)]);
            }
        }
        let spread = results.spread("s", "ours", Figure::P99Micros);
        assert_eq!(spread, Some(Spread { least: 70.0, median: 85.0, most: 100.0 }));
    }
}
