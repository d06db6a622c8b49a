//! Latency by percentile as SVG. Both axes are logarithmic: the share of requests in nines (90 %, 99 %, 99.9 %), and latency.

use crate::{report::duration, svg, tally::Tally};

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 48.0;
/// Colour of the grid.
const GRID: &str = "#ddd";
/// Points per nine: enough for a smooth line.
const STEPS_PER_NINE: u32 = 20;

/// Plots the latencies of a run with at least one decided request.
pub fn latency_svg(tally: &Tally, title: &str) -> String {
    // As many nines as the number of requests resolves, at least 99 %.
    let nines = (tally.decided() as f64).log10().floor().clamp(2.0, 6.0);
    let floor = tally.percentile_us(0.0).max(0.001).log10().floor();
    let ceiling = tally.percentile_us(100.0).max(0.001).log10().ceil().max(floor + 1.0);
    let x = |rarity: f64| LEFT + rarity / nines * (WIDTH - LEFT - RIGHT);
    let y = |microseconds: f64| {
        let share = (microseconds.max(0.001).log10() - floor) / (ceiling - floor);
        HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM)
    };

    let mut svg = svg::begin(WIDTH, HEIGHT);
    svg::text(&mut svg, (LEFT, 28.0), "start", "#111", "font-size=\"16\"", title);
    for nine in 0..=nines as u32 {
        let at = x(f64::from(nine));
        svg::line(&mut svg, (at, TOP), (at, HEIGHT - BOTTOM), GRID);
        label(&mut svg, (at, HEIGHT - BOTTOM + 20.0), "middle", &percent_label(nine));
    }
    for decade in floor as i32..=ceiling as i32 {
        let microseconds = 10_f64.powi(decade);
        svg::line(&mut svg, (LEFT, y(microseconds)), (WIDTH - RIGHT, y(microseconds)), GRID);
        label(&mut svg, (LEFT - 8.0, y(microseconds) + 4.0), "end", &duration(microseconds));
    }
    label(&mut svg, (WIDTH - RIGHT, HEIGHT - 10.0), "end", "share of requests");

    let points = (0..=nines as u32 * STEPS_PER_NINE).map(|step| {
        let rarity = f64::from(step) / f64::from(STEPS_PER_NINE);
        let percent = 100.0 - 100.0 * 10_f64.powf(-rarity);
        (x(rarity), y(tally.percentile_us(percent)))
    });
    svg::polyline(&mut svg, points, "#0b6bcb");
    svg::end(&mut svg);
    svg
}

fn label(svg: &mut String, at: (f64, f64), anchor: &str, text: &str) {
    svg::text(svg, at, anchor, "#444", "", text);
}

/// 0 %, 90 %, 99 %, 99.9 % ...
fn percent_label(nines: u32) -> String {
    let digits = nines.saturating_sub(2) as usize;
    format!("{:.digits$} %", 100.0 - 100.0 / 10_f64.powi(nines as i32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Outcome;

    #[test]
    fn shares_are_labelled_in_nines() {
        let labels = ["0 %", "90 %", "99 %", "99.9 %", "99.99 %", "99.999 %", "99.9999 %"];
        assert_eq!([0, 1, 2, 3, 4, 5, 6].map(percent_label), labels);
    }

    fn drawing(latencies: impl Iterator<Item = u64>) -> String {
        let mut tally = Tally::new();
        latencies.for_each(|latency| tally.record(Outcome::Ok, latency));
        latency_svg(&tally, "a < b & \"c\"")
    }

    /// Points of the line.
    fn points(svg: &str) -> Vec<(f64, f64)> {
        let (_, rest) = svg.split_once("points=\"").expect("a line");
        let (points, _) = rest.split_once('"').expect("its end");
        let number = |text: &str| text.parse::<f64>().expect("a number");
        points
            .split_whitespace()
            .map(|point| point.split_once(',').expect("a pair"))
            .map(|(x, y)| (number(x), number(y)))
            .collect()
    }

    /// Checks that tags are closed in order and that texts contain no bare `<` or `&`.
    fn assert_well_formed(svg: &str) {
        let mut open = Vec::new();
        let mut rest = svg;
        while let Some((text, after)) = rest.split_once('<') {
            for reference in text.split('&').skip(1) {
                assert!(reference.split_once(';').is_some_and(|(name, _)| name.len() <= 4), "{text}");
            }
            let (tag, after) = after.split_once('>').expect("a tag ends");
            assert!(!tag.contains('<') && tag.matches('"').count() % 2 == 0, "{tag}");
            let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
            if tag.starts_with('/') {
                assert_eq!(open.pop(), Some(name));
            } else if !tag.ends_with('/') {
                open.push(name);
            }
            rest = after;
        }
        assert!(open.is_empty(), "left open: {open:?}");
    }

    #[test]
    fn the_plot_is_well_formed_and_its_line_stays_inside_and_rises() {
        for svg in [
            drawing(std::iter::once(1)),
            drawing((1..=200_000).map(|n| n * 50)),
            drawing([1, 60_000_000_000].into_iter()),
        ] {
            assert_well_formed(&svg);
            let points = points(&svg);
            assert!(points.len() > 2 * STEPS_PER_NINE as usize);
            for &(x, y) in &points {
                assert!(
                    (LEFT..=WIDTH - RIGHT).contains(&x) && (TOP..=HEIGHT - BOTTOM).contains(&y),
                    "{x},{y}"
                );
            }
            assert!(
                points.is_sorted_by(|a, b| a.0 < b.0 && a.1 >= b.1),
                "a higher percentile is never faster"
            );
        }
    }
}
