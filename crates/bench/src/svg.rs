//! SVG elements, for the plots of `tidegate bench` and of the project's own measurements (`cargo xtask`).

use std::fmt::Write as _;

/// Starts a drawing with a white background, so that it is legible on dark pages.
pub fn begin(width: f64, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    )
}

/// Appends a line of text. `anchor` (`start`, `middle`, `end`) is the part of the text at the point. `style` has more attributes.
pub fn text(svg: &mut String, (x, y): (f64, f64), anchor: &str, colour: &str, style: &str, text: &str) {
    let text = escaped(text);
    writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\" {style}>{text}</text>"
    )
    .expect("writing to a string cannot fail");
}

/// Appends a straight line.
pub fn line(svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64), colour: &str) {
    writeln!(svg, "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"{colour}\" stroke-width=\"1\"/>")
        .expect("writing to a string cannot fail");
}

/// Appends a line through points.
pub fn polyline(svg: &mut String, points: impl IntoIterator<Item = (f64, f64)>, colour: &str) {
    write!(svg, "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"")
        .expect("writing to a string cannot fail");
    for (x, y) in points {
        write!(svg, "{x:.1},{y:.1} ").expect("writing to a string cannot fail");
    }
    svg.push_str("\"/>\n");
}

/// Ends the drawing.
pub fn end(svg: &mut String) {
    svg.push_str("</svg>\n");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
