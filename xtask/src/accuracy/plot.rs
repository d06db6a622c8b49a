//! The drawing: a row for each algorithm, a dot for each traffic.

use super::{Measured, in_limits};
use std::fmt::Write as _;
use tidegate_bench::svg::{begin, end, line, polyline, text};

const ROW: f64 = 26.0;
const TOP: f64 = 92.0;

/// In the order of the traffics.
const COLOURS: [&str; 5] = ["#8a94a0", "#0b6bcb", "#2a9d5c", "#d98a00", "#c2255c"];

/// An axis of figures.
struct Axis {
    title: &'static str,
    from: f64,
    to: f64,
    /// Evenly from one end to the other.
    marks: &'static [&'static str],
}

const WORST: Axis = Axis {
    title: "Worst true window, in limits",
    from: 224.0,
    to: 520.0,
    marks: &["0", "0.5", "1", "1.5", "2"],
};

/// Logarithmic from a thousandth of a per cent; zero is at its beginning.
const WRONG: Axis = Axis {
    title: "Share of requests decided wrongly",
    from: 570.0,
    to: 870.0,
    marks: &["0", "0.01 %", "0.1 %", "1 %", "10 %", "100 %"],
};

impl Axis {
    fn x(&self, share: f64) -> f64 {
        self.from + share * (self.to - self.from)
    }
}

fn share_of_wrong(percent: f64) -> f64 {
    if percent == 0.0 { 0.0 } else { ((percent.log10() + 3.0) / 5.0).max(0.02) }
}

pub(super) fn svg(measured: &Measured) -> String {
    let (_, subjects) = &measured[0];
    let bottom = TOP + ROW * subjects.len() as f64;
    let mut svg = begin(900.0, bottom + 30.0);
    legend(&mut svg, measured);
    for axis in [WORST, WRONG] {
        text(&mut svg, (axis.from, 62.0), "start", "#111", "font-weight=\"600\"", axis.title);
        for (position, mark) in axis.marks.iter().enumerate() {
            let x = axis.x(position as f64 / (axis.marks.len() - 1) as f64);
            line(&mut svg, (x, TOP - 8.0), (x, bottom), "#e4e7ea");
            text(&mut svg, (x, bottom + 16.0), "middle", "#777", "font-size=\"11\"", mark);
        }
    }
    for (row, (subject, _)) in subjects.iter().enumerate() {
        let y = TOP + ROW * row as f64 + 8.0;
        text(&mut svg, (206.0, y + 4.0), "end", "#333", "", subject.name);
        if let Some(bound) = subject.bound {
            bound_mark(&mut svg, WORST.x(in_limits(bound) / 2.0), y);
        }
        for ((_, subjects), colour) in measured.iter().zip(COLOURS) {
            let (_, figures) = &subjects[row];
            dot(&mut svg, WORST.x(in_limits(figures.worst_window) / 2.0), y, colour);
            dot(&mut svg, WRONG.x(share_of_wrong(figures.wrong())), y, colour);
        }
    }
    end(&mut svg);
    svg
}

fn legend(svg: &mut String, measured: &Measured) {
    let mut x = 24.0;
    for ((traffic, _), colour) in measured.iter().zip(COLOURS) {
        dot(svg, x, 24.0, colour);
        text(svg, (x + 10.0, 28.0), "start", "#333", "", traffic.name);
        x += 36.0 + 7.5 * traffic.name.len() as f64;
    }
    bound_mark(svg, x, 24.0);
    text(svg, (x + 8.0, 28.0), "start", "#333", "", "the bound");
}

fn bound_mark(svg: &mut String, x: f64, y: f64) {
    polyline(svg, [(x, y - 9.0), (x, y + 9.0)], "#111");
}

fn dot(svg: &mut String, x: f64, y: f64, colour: &str) {
    let circle = format_args!("cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{colour}\" fill-opacity=\"0.85\"");
    writeln!(svg, "<circle {circle}/>").expect("writing to a string cannot fail");
}
