//! The results as SVG.

use super::{machine::Machine, results::Results};
use std::fmt::Write as _;
use tidegate_bench::svg::{begin, text};

const PANELS: [(&str, &str, &str); 3] = [
    ("Server CPU per decision, saturated, µs", "saturated", "server_cpu_us"),
    ("Round trip of one call at a time, p50, µs", "unloaded", "p50_us"),
    ("Latency at 20,000 calls a second, p99, µs", "open 20,000/s", "p99_us"),
];
const SERVERS: [(&str, &str, &str); 3] = [
    ("hyper", "hyper, constant response", "#b8c4d0"),
    ("tidegate", "Tidegate, real decisions", "#0b6bcb"),
    ("tonic", "tonic, constant response", "#b8c4d0"),
];

const WIDTH: f64 = 760.0;
const BARS_FROM: f64 = 200.0;
const BARS_TO: f64 = 680.0;
const PANEL: f64 = 122.0;
const ROW: f64 = 26.0;

/// Plots the medians; shorter is better.
pub(super) fn svg(machine: &Machine, results: &Results) -> String {
    let height = 24.0 + PANEL * PANELS.len() as f64 + 20.0;
    let mut svg = begin(WIDTH, height);
    for (position, (title, scenario, figure)) in PANELS.into_iter().enumerate() {
        panel(&mut svg, 32.0 + PANEL * position as f64, title, scenario, figure, results);
    }
    let caption = format!("{machine}; medians; server and load on a core each. Shorter is better.");
    text(&mut svg, (16.0, height - 12.0), "start", "#777", "font-size=\"11\"", &caption);
    svg.push_str("</svg>\n");
    svg
}

fn panel(svg: &mut String, top: f64, title: &str, scenario: &str, figure: &str, results: &Results) {
    text(svg, (16.0, top), "start", "#111", "font-weight=\"600\"", title);
    let median = |server: &str| results.median(scenario, server, figure).unwrap_or(0.0);
    let longest = SERVERS.iter().map(|&(server, ..)| median(server)).fold(f64::MIN_POSITIVE, f64::max);
    for (row, (server, label, colour)) in SERVERS.into_iter().enumerate() {
        let value = median(server);
        let y = top + 10.0 + ROW * row as f64;
        let width = value / longest * (BARS_TO - BARS_FROM);
        text(svg, (BARS_FROM - 10.0, y + 15.0), "end", "#444", "", label);
        writeln!(
            svg,
            "<rect x=\"{BARS_FROM}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"20\" rx=\"2\" fill=\"{colour}\"/>"
        )
        .expect("writing to a string cannot fail");
        let digits = if value < 100.0 { 1 } else { 0 };
        text(svg, (BARS_FROM + width + 8.0, y + 15.0), "start", "#111", "", &format!("{value:.digits$}"));
    }
}
