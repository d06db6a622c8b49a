//! What the drawings have in common.

use std::fmt::Write as _;

/// Begins a drawing on white, so that it can be read on a dark page too.
pub(crate) fn begin(width: f64, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    )
}

/// A line of text; `anchor` says which of its ends is at the point.
pub(crate) fn text(
    svg: &mut String,
    (x, y): (f64, f64),
    anchor: &str,
    colour: &str,
    style: &str,
    text: &str,
) {
    let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\" {style}>{text}</text>"
    )
    .expect("writing to a string cannot fail");
}
