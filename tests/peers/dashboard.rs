//! The Grafana dashboard of `deploy/`: its panels with their queries, and a picture of them.

use serde_json::Value;
use std::fmt::Write as _;

/// A panel, or the title of a row.
pub struct Panel {
    pub title: String,
    pub queries: Vec<Query>,
    unit: String,
    /// Column, row, width and height on Grafana's grid.
    place: [f64; 4],
}

/// A query of a panel.
pub struct Query {
    pub id: String,
    /// With the dashboard's variables set to all servers and all domains.
    pub expression: String,
    legend: String,
}

/// A line of a panel: its name, and its points as time and value.
pub struct PanelLine {
    pub name: String,
    pub points: Vec<(f64, f64)>,
}

/// Pixels of one column and one row of the grid, of which there are 24 columns.
const COLUMN: f64 = 50.0;
const ROW: f64 = 24.0;
/// Lines of one panel that are drawn and named.
const LINES_MAX: usize = 6;
const COLOURS: [&str; LINES_MAX] = ["#3274d9", "#e0752d", "#56a64b", "#a352cc", "#c4162a", "#7c7c7c"];

/// The panels in their order, rows included.
pub fn panels(dashboard: &Value) -> Vec<Panel> {
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    let servers =
        variables.iter().find(|variable| variable["name"] == "instance").expect("a variable of servers");
    // With a pattern for all, the panels would show the servers of every job.
    assert_eq!(servers.get("allValue"), None, "all servers are those of the chosen job");
    dashboard["panels"].as_array().expect("panels").iter().map(panel).collect()
}

fn panel(panel: &Value) -> Panel {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let query = |target: &Value| {
        let expression = target["expr"].as_str().expect("a query");
        let expression = expression.replace("$instance", ".*").replace("$domain", ".*");
        let expression = expression.replace("$job", "tidegate").replace("$__rate_interval", "1m");
        assert!(!expression.contains('$'), "{expression}");
        Query { id: text(&target["refId"]), expression, legend: text(&target["legendFormat"]) }
    };
    let place = ["x", "y", "w", "h"].map(|name| panel["gridPos"][name].as_f64().expect("a number"));
    Panel {
        title: text(&panel["title"]),
        queries: panel["targets"].as_array().into_iter().flatten().map(query).collect(),
        unit: text(&panel["fieldConfig"]["defaults"]["unit"]),
        place,
    }
}

impl Query {
    /// The lines of the result of a range query.
    pub fn lines(&self, matrix: &Value) -> Vec<PanelLine> {
        let series = matrix.as_array().into_iter().flatten();
        series
            .map(|series| PanelLine { name: self.name(&series["metric"]), points: points(series) })
            .collect()
    }

    /// The legend with the labels of a series.
    fn name(&self, labels: &Value) -> String {
        let labels = labels.as_object().into_iter().flatten();
        labels.fold(self.legend.clone(), |text, (name, value)| {
            text.replace(&format!("{{{{{name}}}}}"), value.as_str().unwrap_or_default())
        })
    }
}

fn points(series: &Value) -> Vec<(f64, f64)> {
    let samples = series["values"].as_array().into_iter().flatten();
    let point = |sample: &Value| Some((sample[0].as_f64()?, sample[1].as_str()?.parse::<f64>().ok()?));
    samples.filter_map(point).filter(|(_, value)| value.is_finite()).collect()
}

/// The picture of the panels, each with its lines.
pub fn svg(panels: &[(Panel, Vec<PanelLine>)]) -> String {
    let bottom = panels.iter().map(|(panel, _)| panel.place[1] + panel.place[3]).fold(0.0, f64::max);
    let (width, height) = (24.0 * COLUMN, bottom * ROW);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#f4f5f5\"/>\n"
    );
    for (panel, lines) in panels {
        draw(&mut svg, panel, lines).expect("writing to a string does not fail");
    }
    svg + "</svg>\n"
}

fn draw(svg: &mut String, panel: &Panel, lines: &[PanelLine]) -> std::fmt::Result {
    let [x, y, w, h] = panel.place;
    let (x, y, w, h) = (x * COLUMN, y * ROW, w * COLUMN, h * ROW);
    let title = escaped(&panel.title);
    if panel.queries.is_empty() {
        return writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" font-weight=\"bold\">{title}</text>",
            x + 6.0,
            y + 17.0
        );
    }
    writeln!(
        svg,
        "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"white\" stroke=\"#d8d9da\"/>\n\
         <text x=\"{}\" y=\"{}\">{title}</text>",
        x + 3.0,
        y + 3.0,
        w - 6.0,
        h - 6.0,
        x + 10.0,
        y + 18.0
    )?;
    let all = || lines.iter().take(LINES_MAX).flat_map(|line| &line.points);
    let (start, end) = range(all().map(|(time, _)| *time));
    let (least, most) = range(all().map(|(_, value)| *value));
    let (least, most) = (least.min(0.0), if most > least.min(0.0) { most } else { least.min(0.0) + 1.0 });
    let (left, top, right, low) = (x + 70.0, y + 28.0, x + w - 12.0, y + h - 34.0);
    for (value, at) in [(most, top), (least, low)] {
        writeln!(
            svg,
            "<line x1=\"{left}\" x2=\"{right}\" y1=\"{at}\" y2=\"{at}\" stroke=\"#e4e5e6\"/>\n\
             <text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"#555\">{}</text>",
            left - 5.0,
            at + 4.0,
            escaped(&with_unit(value, &panel.unit))
        )?;
    }
    let mut legend_x = x + 10.0;
    for (line, colour) in lines.iter().zip(COLOURS) {
        let at = |(time, value): &(f64, f64)| {
            let across = left + (time - start) / (end - start).max(1.0) * (right - left);
            let down = low - (value - least) / (most - least) * (low - top);
            format!("{across:.1},{down:.1}")
        };
        let points: Vec<String> = line.points.iter().map(at).collect();
        writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
            points.join(" ")
        )?;
        let letters = line.name.chars().count().min(24);
        let text_width = letters as f64 * 6.2 + 14.0;
        if legend_x + text_width < x + w {
            let name: String = line.name.chars().take(letters).collect();
            writeln!(
                svg,
                "<text x=\"{legend_x:.0}\" y=\"{}\" fill=\"{colour}\">{}</text>",
                y + h - 12.0,
                escaped(&name)
            )?;
            legend_x += text_width;
        }
    }
    Ok(())
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (least, most) =
        values.fold((f64::MAX, f64::MIN), |(least, most), value| (least.min(value), most.max(value)));
    if least <= most { (least, most) } else { (0.0, 1.0) }
}

fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "s" | "dtdurations" if value.abs() < 1e-3 => format!("{:.0} µs", value * 1e6),
        "s" | "dtdurations" if value.abs() < 1.0 => format!("{:.1} ms", value * 1e3),
        "s" | "dtdurations" => format!("{value:.0} s"),
        "percentunit" => format!("{:.1} %", value * 100.0),
        "bytes" | "decbytes" if value >= 1e9 => format!("{:.1} GB", value / 1e9),
        "bytes" | "decbytes" if value >= 1e6 => format!("{:.0} MB", value / 1e6),
        "bytes" | "decbytes" => format!("{value:.0} B"),
        "Bps" => format!("{:.1} kB/s", value / 1e3),
        "reqps" | "ops" => format!("{value:.1}/s"),
        _ if value.abs() >= 1e5 => format!("{:.1} M", value / 1e6),
        _ if value.fract().abs() < 1e-9 => format!("{value:.0}"),
        _ => format!("{value:.2}"),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
