//! The report of a replay as one HTML page with plots. It refers to no other file, has no script, and follows the reader's choice
//! of a light or dark page.

use super::report::{Facts, current_name, denied_text, limit_name, share_text, shares, time};
use crate::cli::output::{
    plain,
    table::{self, Table},
};
use std::{fmt::Write as _, iter};
use tidegate_core::limit::Timestamp;
use tidegate_replay::{Key, Keys, Point, Report, Series, Share, Side, Suggestion};

const STYLE: &str = "
:root { color-scheme: light dark; --ink: light-dark(#1b2430, #e3e8ef); --faint: light-dark(#5b6675, #9aa7b8);
  --rule: light-dark(#dde3ea, #2c3644); --page: light-dark(#fff, #12171e);
  --all: light-dark(#c6d0dc, #3a4656); --current: light-dark(#6a7686, #a3b0c0); --proposed: light-dark(#b4341f, #ff8a70); }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem } h2 { font-size: 1.1rem; margin-top: 2.2rem }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--rule); overflow-wrap: anywhere }
th { color: var(--faint); font-weight: 500 } .n { text-align: right }
svg { width: 100%; height: auto } svg text { font: 12px system-ui, sans-serif; fill: var(--faint) }
.grid { stroke: var(--rule) } .all { fill: var(--all) } .line { fill: none; stroke-width: 2 }
.proposed { stroke: var(--proposed) } .current { stroke: var(--current) }
.key { display: inline-block; width: .8em; height: .8em; margin: 0 .3em 0 1em } figure { margin: 0; overflow-x: auto }
";

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 240.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 12.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 28.0;

/// Appends a text with its values.
macro_rules! put {
    ($page:expr, $($text:tt)*) => {
        write!($page, $($text)*).expect("writing to a string cannot fail")
    };
}

/// The page.
pub(super) fn page(report: &Report, facts: &Facts) -> String {
    let mut page = String::new();
    let current = current_name(report);
    page.push_str("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width\">\n<title>Replay</title>\n");
    put!(page, "<style>{STYLE}</style>\n</head>\n<body>\n<h1>Replay</h1>\n");
    let (first, last) =
        (report.first.map(time).unwrap_or_default(), report.last.map(time).unwrap_or_default());
    list(&mut page, "Warnings", &facts.warnings);
    put!(page, "<p>{} requests from {first} to {last}</p>\n", report.requests);
    sides(&mut page, report, current);
    over_time(&mut page, &report.over_time, current);
    let [domains, rules] = shares(report, current);
    page.push_str("<h2>By domain</h2>\n");
    put_table(&mut page, 1, &domains);
    page.push_str("<h2>By rule</h2>\n");
    put_table(&mut page, 2, &rules);
    keys(&mut page, "Newly denied", report.newly_denied, &report.keys_newly_denied);
    keys(&mut page, "Newly admitted", report.newly_admitted, &report.keys_newly_admitted);
    facts.suggestions.iter().for_each(|suggestion| suggested(&mut page, suggestion));
    list(&mut page, "Notes", &facts.notes(report));
    page.push_str("</body>\n</html>\n");
    page
}

/// A list with its heading, if it has items.
fn list(page: &mut String, heading: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    put!(page, "<h2>{heading}</h2>\n<ul>\n");
    items.iter().for_each(|item| put!(page, "<li>{}</li>\n", escaped(item)));
    page.push_str("</ul>\n");
}

/// A text of a client or of a rule file: no markup, no control characters, and no characters that reorder the text around them.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in plain(text).chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                escaped.push('\u{fffd}')
            }
            _ => escaped.push(character),
        }
    }
    escaped
}

/// A table; cells of the columns after the first `texts` are numbers.
/// Puts a table whose first columns, as many as `texts`, are texts, and the others numbers.
fn put_table(page: &mut String, texts: usize, shown: &Table) {
    let class = |column: usize| if column < texts { "" } else { " class=\"n\"" };
    page.push_str("<figure><table>\n");
    for (row, tag) in iter::once((&shown.header, "th")).chain(shown.rows.iter().zip(iter::repeat("td"))) {
        page.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            put!(page, "<{tag}{}>{}</{tag}>", class(column), escaped(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table></figure>\n");
}

fn sides(page: &mut String, report: &Report, current: &str) {
    let header = ["rules", "worst minute", "longest wait", "admitted", "denied", "never admitted"];
    let mut shown = table::table(header);
    for (name, side) in [("proposed", &report.proposed), (current, &report.current)] {
        let Side { admitted, denied, worst_minute, longest_wait, never_admitted } = side;
        let share = Share { all: admitted + denied, denied: *denied };
        let worst = worst_minute
            .map(|minute| format!("{}: {} of {}", time(minute.start), minute.denied, minute.requests));
        let wait = longest_wait
            .map(|wait| humantime::format_duration(super::report::whole_millis(wait)).to_string());
        let none = || "none".to_owned();
        shown.add_row([
            name.to_owned(),
            worst.unwrap_or_else(none),
            wait.unwrap_or_else(none),
            admitted.to_string(),
            share_text(share),
            never_admitted.to_string(),
        ]);
    }
    put_table(page, 3, &shown);
}

fn keys(page: &mut String, title: &str, requests: u64, keys: &Keys) {
    put!(page, "<h2>{title}</h2>\n<p>{requests} requests, {} keys</p>\n", keys.all);
    if keys.top.is_empty() {
        return;
    }
    let mut shown = table::table(["domain", "key", "requests", "per minute"]);
    for row in &keys.top {
        let Key { domain, entries } = &row.key;
        let entries: Vec<String> = entries.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let per_minute = format!("{:.1}", row.per_minute);
        shown.add_row([domain.to_string(), entries.join(", "), row.requests.to_string(), per_minute]);
    }
    put_table(page, 2, &shown);
}

fn legend(page: &mut String, entries: &[(&str, &str)]) {
    page.push_str("<p>");
    for (variable, text) in entries {
        put!(page, "<span class=\"key\" style=\"background: var(--{variable})\"></span>{text}");
    }
    page.push_str("</p>\n");
}

/// Requests as bars, denials as lines.
fn over_time(page: &mut String, series: &Series, current: &str) {
    let Series { start: Some(start), interval, points } = series else { return };
    let interval_text = humantime::format_duration(std::time::Duration::from_nanos(*interval));
    put!(page, "<h2>Over time</h2>\n<p>Per {interval_text}, in UTC</p>\n");
    let greatest = points.iter().map(|point| point.requests).max().unwrap_or(0).max(1);
    let step = (WIDTH - LEFT - RIGHT) / points.len() as f64;
    let y = |count: u64| HEIGHT - BOTTOM - count as f64 / greatest as f64 * (HEIGHT - TOP - BOTTOM);
    let label = format!("Requests and denials per {interval_text}");
    begin_plot(page, &label, greatest as f64, &|count| y(count as u64));
    for (index, point) in points.iter().enumerate() {
        let (x, top) = (LEFT + index as f64 * step, y(point.requests));
        put!(
            page,
            "<rect class=\"all\" x=\"{x:.1}\" y=\"{top:.1}\" width=\"{step:.2}\" height=\"{:.1}\"/>\n",
            HEIGHT - BOTTOM - top
        );
    }
    for (class, denied) in [
        ("current", (|point| point.denied_current) as fn(&Point) -> u64),
        ("proposed", |point| point.denied_proposed),
    ] {
        let points = points.iter().enumerate();
        let points = points.map(|(index, point)| (LEFT + (index as f64 + 0.5) * step, y(denied(point))));
        line(page, class, points);
    }
    for (at, anchor) in [(0, "start"), (points.len(), "end")] {
        let of_point = time(Timestamp::from_nanos(start.as_nanos() + interval.saturating_mul(at as u64)));
        let x = LEFT + at as f64 * step;
        put!(
            page,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{of_point}</text>\n",
            HEIGHT - 8.0
        );
    }
    page.push_str("</svg></figure>\n");
    let entries = [
        ("all", "requests".to_owned()),
        ("current", format!("denied, {current}")),
        ("proposed", "denied, proposed".to_owned()),
    ];
    legend(page, &entries.each_ref().map(|(variable, text)| (*variable, &**text)));
}

/// Plot of the share that each limit would deny.
fn suggested(page: &mut String, suggestion: &Suggestion) {
    let name = escaped(&limit_name(suggestion));
    put!(page, "<h2>Suggested limit: {name}</h2>\n");
    let window = humantime::format_duration(std::time::Duration::from_nanos(suggestion.window_ns));
    let present = suggestion.present;
    let share = 100.0 * suggestion.share_max;
    match suggestion.suggested {
        Some(at) => put!(
            page,
            "<p><strong>{} per {window}</strong> denies {}",
            at.requests,
            denied_text(suggestion, at)
        ),
        None => put!(page, "<p>No limit denies at most {share} %"),
    }
    let denied = denied_text(suggestion, present);
    put!(
        page,
        "; at most {share} % were to be denied. {} per {window} denies {denied}.</p>\n",
        present.requests
    );
    let of = suggestion.per_key_and_window;
    put!(
        page,
        "<p>Hits of a key in a window: p50 {}, p95 {}, p99 {}, max {}.</p>\n",
        of.p50,
        of.p95,
        of.p99,
        of.max
    );
    let greatest = suggestion.curve.iter().map(|at| at.requests).max().unwrap_or(0).max(1);
    let x = |requests: u32| {
        let share = f64::from(requests).ln_1p() / f64::from(greatest).ln_1p();
        LEFT + share * (WIDTH - LEFT - RIGHT)
    };
    let y = |share: f64| HEIGHT - BOTTOM - share.clamp(0.0, 1.0) * (HEIGHT - TOP - BOTTOM);
    begin_plot(page, &format!("Denied share by limit, {name}"), 100.0, &|percent| y(percent / 100.0));
    if let Some(at) = suggestion.suggested {
        let x = x(at.requests);
        put!(page, "<path class=\"grid\" d=\"M{x:.1} {TOP}V{:.1}\"/>\n", HEIGHT - BOTTOM);
    }
    let share = |part: u64, all: u64| part as f64 / all.max(1) as f64;
    let curve = &suggestion.curve;
    line(page, "current", curve.iter().map(|at| (x(at.requests), y(share(at.keys, suggestion.keys)))));
    line(page, "proposed", curve.iter().map(|at| (x(at.requests), y(share(at.hits, suggestion.hits)))));
    let marks = [(0, "start"), (greatest, "end")];
    for (requests, anchor) in marks {
        let x = x(requests);
        put!(
            page,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{requests} per {window}</text>\n",
            HEIGHT - 8.0
        );
    }
    page.push_str("</svg></figure>\n");
    legend(page, &[("current", "keys denied, %"), ("proposed", "hits denied, %")]);
}

/// Starts a plot with a grid of four lines from 0 to the greatest value.
fn begin_plot(page: &mut String, label: &str, greatest: f64, y: &dyn Fn(f64) -> f64) {
    put!(page, "<figure><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{label}\">\n");
    for quarter in 0..=4 {
        let value = greatest * f64::from(quarter) / 4.0;
        let at = y(value);
        put!(page, "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{:.1}\"/>", WIDTH - RIGHT);
        put!(
            page,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{value:.0}</text>\n",
            LEFT - 8.0,
            at + 4.0
        );
    }
}

fn line(page: &mut String, class: &str, points: impl Iterator<Item = (f64, f64)>) {
    put!(page, "<polyline class=\"line {class}\" points=\"");
    points.for_each(|(x, y)| put!(page, "{x:.1},{y:.1} "));
    page.push_str("\"/>\n");
}
