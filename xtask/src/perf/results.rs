//! Measurements, their statistics, and the bars that apply to them.

use super::machine::Machine;
use anyhow::{Context as _, Result};
use comfy_table::{Table, presets};
use serde::Deserialize;
use std::{collections::BTreeMap, fmt::Write as _};

/// Figures: name in files of results, title in tables, and digits there.
pub(super) const FIGURES: [(&str, &str, usize); 18] = [
    ("requests_per_second", "requests/s", 0),
    ("server_cpu_us", "server CPU µs", 2),
    ("envoy_cpu_us", "Envoy CPU µs", 1),
    // Figures of the store of shared counters.
    ("store_cpu_us", "store CPU µs", 2),
    // Time of the store in scripts, by its own statistics.
    ("script_us", "in the script µs", 2),
    // Calls of the store per decision.
    ("store_calls", "store calls", 4),
    ("p50_us", "p50 µs", 1),
    ("p99_us", "p99 µs", 0),
    ("p99.9_us", "p99.9 µs", 0),
    ("requests_per_envoy_core", "requests/s of an Envoy core", 0),
    // Figures of the server before the first request.
    ("resident_mib", "MiB at start", 1),
    // Share of the server's core that other processes used.
    (OTHERS, "others", 2),
    ("scrape_ms", "scrape ms", 1),
    ("ns", "ns", 0),
    ("bytes", "bytes", 0),
    ("ratio", "ratio", 2),
    ("m_events_per_cpu_s", "M events/s of CPU", 2),
    ("peak_mib", "peak MiB", 0),
];

pub(super) const OTHERS: &str = "core_share_of_others";

/// Name and value.
pub(super) type Figures = Vec<(&'static str, f64)>;

/// Scenario and server.
pub(super) type Series = (String, String);

/// A bound on a figure, or on the result of a formula in each round: `(of - less) / (over - over_less)`. Without a bound, only the figure
/// is reported.
#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bar {
    pub(super) about: String,
    pub(super) figure: String,
    /// By default the row's own series.
    pub(super) of: Option<Series>,
    pub(super) less: Option<Series>,
    pub(super) over: Option<Series>,
    pub(super) over_less: Option<Series>,
    pub(super) at_most: Option<f64>,
    pub(super) at_least: Option<f64>,
    /// Whether another server is measured in the same scenarios, without the work beside the load.
    #[serde(skip)]
    pub(super) has_control: bool,
}

/// The server of controls.
pub(super) const CONTROL: &str = "tonic";

/// The name of a figure.
pub(super) fn figure(name: &str) -> Result<&'static str> {
    let known = FIGURES.iter().find(|(figure, ..)| *figure == name);
    known.map(|(figure, ..)| *figure).with_context(|| format!("{name} is no figure"))
}

/// Lines `name=number` of an output.
pub(super) fn printed(output: &str) -> impl Iterator<Item = (&str, f64)> {
    output
        .lines()
        .filter_map(|line| line.split_once('='))
        .filter_map(|(name, number)| Some((name, number.parse().ok()?)))
}

struct Sample {
    round: u32,
    series: Series,
    figure: &'static str,
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
    fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (&least, &most) = (values.first()?, values.last()?);
        let (before, after) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
        Some(Self { least, median: f64::midpoint(before, after), most })
    }
}

impl Bar {
    pub(super) fn measured(&self, results: &Results) -> Option<Spread> {
        self.formula(results, |server| server)
    }

    /// The same formula for the control server, for which both scenarios of a pair are the same.
    fn control(&self, results: &Results) -> Option<Spread> {
        self.has_control.then(|| self.formula(results, |_| CONTROL))?
    }

    fn formula(&self, results: &Results, server: fn(&str) -> &str) -> Option<Spread> {
        // The values of a series by round, or a constant if the formula has no such series.
        let values = |series: &Option<Series>, constant| {
            let values =
                series.as_ref().map(|(scenario, of)| results.values(scenario, server(of), &self.figure));
            move |round| values.as_ref().map_or(Some(constant), |values| values.get(round).copied())
        };
        let (less, over, over_less) =
            (values(&self.less, 0.0), values(&self.over, 1.0), values(&self.over_less, 0.0));
        let (scenario, of) = self.of.as_ref()?;
        let of = results.values(scenario, server(of), &self.figure);
        Spread::of(
            of.iter()
                .filter_map(|(round, of)| Some((of - less(round)?) / (over(round)? - over_less(round)?))),
        )
    }

    /// The server that the bar compares with.
    pub(super) fn comparator(&self) -> Option<&str> {
        self.over.as_ref().map(|(_, server)| server.as_str())
    }

    pub(super) fn is_bounded(&self) -> bool {
        self.at_most.is_some() || self.at_least.is_some()
    }

    /// Whether the bar is missed, or was not measured.
    pub(super) fn is_missed(&self, results: &Results) -> bool {
        self.is_bounded()
            && !self.measured(results).is_some_and(|Spread { median, .. }| {
                self.at_most.is_none_or(|most| median <= most)
                    && self.at_least.is_none_or(|least| median >= least)
            })
    }

    fn bound(&self) -> String {
        let at = |word: &str, bound: f64| format!("at {word} {bound}");
        let least = self.at_least.map(|least| at("least", least));
        self.at_most.map(|most| at("most", most)).or(least).unwrap_or_default()
    }
}

impl Results {
    /// Adds figures, and prints them.
    pub(super) fn add(
        &mut self,
        round: u32,
        (scenario, server): (&str, &str),
        figures: &[(&'static str, f64)],
    ) {
        let printed: Vec<String> =
            figures.iter().map(|(figure, value)| format!("{figure} {value:.2}")).collect();
        eprintln!("  {scenario:<32} {server:<14} {}", printed.join("  "));
        self.0.extend(figures.iter().map(|&(figure, value)| Sample {
            round,
            series: (scenario.to_owned(), server.to_owned()),
            figure,
            value,
        }));
    }

    /// The figure of each round: with several periods, their lower quartile. Other guests of the machine add to a latency and never reduce
    /// it, so that the calmer periods show the server; the work beside the load is in all of them.
    fn values(&self, scenario: &str, server: &str, figure: &str) -> BTreeMap<u32, f64> {
        let mut rounds: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
        for Sample { round, series, figure: own, value } in &self.0 {
            if (series.0.as_str(), series.1.as_str(), *own) == (scenario, server, figure) {
                rounds.entry(*round).or_default().push(*value);
            }
        }
        let quartile = |mut periods: Vec<f64>| {
            periods.sort_by(f64::total_cmp);
            periods[periods.len() / 4]
        };
        rounds.into_iter().map(|(round, periods)| (round, quartile(periods))).collect()
    }

    pub(super) fn median(&self, scenario: &str, server: &str, figure: &str) -> Option<f64> {
        Spread::of(self.values(scenario, server, figure).into_values()).map(|spread| spread.median)
    }

    /// Medians: a row for each series, a column for each figure that any of them has.
    pub(super) fn table(&self) -> Table {
        let mut all: Vec<&Series> = Vec::new();
        for Sample { series, .. } in &self.0 {
            if !all.contains(&series) {
                all.push(series);
            }
        }
        let columns = FIGURES.iter().filter(|(name, ..)| self.0.iter().any(|sample| sample.figure == *name));
        let titles = columns.clone().map(|(_, title, _)| *title);
        let mut table = table(["scenario", "of"].into_iter().chain(titles));
        for (scenario, server) in all {
            let cell = |(name, _, digits): &(&str, _, usize)| {
                let median = self.median(scenario, server, name);
                median.map_or_else(String::new, |median| format!("{median:.digits$}"))
            };
            let names = [scenario.clone(), server.clone()];
            table.add_row(names.into_iter().chain(columns.clone().map(cell)));
        }
        table
    }

    pub(super) fn table_of_bars(&self, bars: &[Bar]) -> Table {
        let control = "control: the same of tonic without work";
        let mut table = table(["figure", "bar", "measured", "spread", control, ""]);
        let range = |spread: Spread| format!("{:.2} – {:.2}", spread.least, spread.most);
        for bar in bars {
            let measured = bar.measured(self);
            table.add_row([
                bar.about.clone(),
                bar.bound(),
                measured.map_or_else(String::new, |spread| format!("{:.2}", spread.median)),
                measured.map_or_else(|| "not measured".to_owned(), range),
                bar.control(self)
                    .map_or_else(String::new, |spread| format!("{:.2} ({})", spread.median, range(spread))),
                match bar.is_missed(self) {
                    true => "MISSED",
                    false if bar.is_bounded() => "ok",
                    false => "",
                }
                .to_owned(),
            ]);
        }
        table
    }

    /// One line per number, with machine, date and commit.
    pub(super) fn to_csv(&self, machine: &Machine) -> String {
        let mut csv = "date,commit,cpu,cores,kernel,round,scenario,server,figure,value\n".to_owned();
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "\"\""));
        for Sample { round, series: (scenario, server), figure, value } in &self.0 {
            let Machine { date, commit, cpu, cores, kernel } = machine;
            let (cpu, scenario) = (quoted(cpu), quoted(scenario));
            writeln!(
                csv,
                "{date},{commit},{cpu},{cores},{kernel},{round},{scenario},{server},{figure},{value:.4}"
            )
            .expect("writing to a string cannot fail");
        }
        csv
    }
}

fn table<'t>(header: impl IntoIterator<Item = &'t str>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY).set_header(header);
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(scenario: &str) -> Option<Series> {
        Some((scenario.to_owned(), "of".to_owned()))
    }

    fn results(samples: &[(u32, &str, f64)]) -> Results {
        let mut results = Results::default();
        for &(round, scenario, value) in samples {
            results.add(round, (scenario, "of"), &[("p50_us", value)]);
        }
        results
    }

    fn bar() -> Bar {
        Bar { figure: "p50_us".to_owned(), of: series("s"), ..Bar::default() }
    }

    #[test]
    fn ratios_are_taken_within_a_round() {
        let results = results(&[
            (1, "s", 10.0),
            (1, "t", 10.0),
            (2, "s", 20.0),
            (2, "t", 40.0),
            (3, "s", 30.0),
            (3, "t", 10.0),
        ]);
        let ratio = Bar { over: series("t"), at_most: Some(1.0), ..bar() };
        assert_eq!(ratio.measured(&results), Some(Spread { least: 0.5, median: 1.0, most: 3.0 }));
        assert!(!ratio.is_missed(&results));
        assert!(Bar { at_most: Some(0.9), ..ratio.clone() }.is_missed(&results));
        let other = Bar { over: series("u"), ..ratio };
        assert!(other.measured(&results).is_none() && other.is_missed(&results));
    }

    #[test]
    fn a_share_is_of_what_another_row_adds() {
        let results = results(&[(1, "none", 100.0), (1, "s", 110.0), (1, "filter", 200.0)]);
        let none = series("none");
        let share =
            Bar { less: none.clone(), over: series("filter"), over_less: none, at_least: Some(0.1), ..bar() };
        assert_eq!(share.measured(&results).map(|spread| spread.median), Some(0.1));
        assert!(!share.is_missed(&results) && Bar { at_least: Some(0.2), ..share }.is_missed(&results));
    }

    #[test]
    fn of_the_periods_of_a_round_the_lower_quartile_counts_and_of_two_rounds_the_median_is_between() {
        let results = results(&[
            (1, "s", 900.0),
            (1, "s", 70.0),
            (1, "s", 60.0),
            (1, "s", 80.0),
            (1, "s", 90.0),
            (2, "s", 100.0),
        ]);
        assert_eq!(bar().measured(&results), Some(Spread { least: 70.0, median: 85.0, most: 100.0 }));
    }
}
