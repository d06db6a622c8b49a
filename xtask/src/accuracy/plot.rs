//! The drawing: a row for each algorithm, a dot for each traffic.

use super::{LIMIT, Measured};
use std::fmt::Write as _;
use tidegate_bench::svg::{begin, text};

const WIDTH: f64 = 900.0;
const ROW: f64 = 26.0;
const TOP: f64 = 92.0;
const LABELS_END: f64 = 206.0;

/// In the order of the traffics.
const COLOURS: [&str; 5] = ["#8a94a0", "#0b6bcb", "#2a9d5c", "#d98a00", "#c2255c"];

/// An axis of figures.
struct Axis {
    title: &'static str,
    from: f64,
    to: f64,
    /// Marks: text, and position as a share of the axis.
    marks: &'static [(&'static str, f64)],
}

const WORST: Axis = Axis {
    title: "Worst true window, in limits",
    from: 224.0,
    to: 520.0,
    marks: &[("0", 0.0), ("0.5", 0.25), ("1", 0.5), ("1.5", 0.75), ("2", 1.0)],
};

/// Logarithmic from a thousandth of a per cent; zero is at its beginning.
const WRONG: Axis = Axis {
    title: "Share of requests decided wrongly",
    from: 570.0,
    to: 870.0,
    marks: &[("0", 0.0), ("0.01 %", 0.2), ("0.1 %", 0.4), ("1 %", 0.6), ("10 %", 0.8), ("100 %", 1.0)],
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
    let bottom = TOP + ROW * measured.subjects.len() as f64;
    let mut svg = begin(WIDTH, bottom + 30.0);
    legend(&mut svg, measured);
    for axis in [WORST, WRONG] {
        text(&mut svg, (axis.from, 62.0), "start", "#111", "font-weight=\"600\"", axis.title);
        for &(mark, share) in axis.marks {
            let x = axis.x(share);
            put(
                &mut svg,
                format_args!("<path d=\"M{x:.1} {}V{bottom:.1}\" stroke=\"#e4e7ea\"/>\n", TOP - 8.0),
            );
            text(&mut svg, (x, bottom + 16.0), "middle", "#777", "font-size=\"11\"", mark);
        }
    }
    for (row, subject) in measured.subjects.iter().enumerate() {
        let y = TOP + ROW * row as f64 + 8.0;
        text(&mut svg, (LABELS_END, y + 4.0), "end", "#333", "", subject.name());
        if let Some(bound) = subject.bound() {
            let x = WORST.x(f64::from(bound) / f64::from(LIMIT) / 2.0);
            put(
                &mut svg,
                format_args!("<path d=\"M{x:.1} {:.1}v18\" stroke=\"#111\" stroke-width=\"2\"/>\n", y - 9.0),
            );
        }
        for ((_, figures), colour) in measured.traffics.iter().zip(COLOURS) {
            let figures = &figures[row];
            dot(&mut svg, WORST.x(figures.worst_window_ratio() / 2.0), y, colour);
            dot(&mut svg, WRONG.x(share_of_wrong(figures.wrong_percent())), y, colour);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

fn legend(svg: &mut String, measured: &Measured) {
    let mut x = 24.0;
    for ((traffic, _), colour) in measured.traffics.iter().zip(COLOURS) {
        dot(svg, x, 24.0, colour);
        text(svg, (x + 10.0, 28.0), "start", "#333", "", traffic.name);
        x += 36.0 + 7.5 * traffic.name.len() as f64;
    }
    put(svg, format_args!("<path d=\"M{x:.1} 15v18\" stroke=\"#111\" stroke-width=\"2\"/>\n"));
    text(svg, (x + 8.0, 28.0), "start", "#333", "", "the bound");
}

fn dot(svg: &mut String, x: f64, y: f64, colour: &str) {
    put(
        svg,
        format_args!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"5\" fill=\"{colour}\" fill-opacity=\"0.85\"/>\n"
        ),
    );
}

fn put(svg: &mut String, arguments: std::fmt::Arguments<'_>) {
    svg.write_fmt(arguments).expect("writing to a string cannot fail");
}
