//! Tables and lines on standard output.
//!
//! A table on a terminal is laid out for its width: unchanged if it fits, else with cells wrapped between words, else with one line per
//! cell. Words (a location, a path, a name) are never broken, so that they can be copied. A pipe or a file has no width to fit.

use std::{
    fmt,
    io::{self, IsTerminal as _, Write as _},
};
use unicode_width::UnicodeWidthStr as _;

const GAP: &str = "  ";

/// Rows of cells under a header.
pub(in crate::cli) struct Table {
    pub(in crate::cli) header: Vec<String>,
    pub(in crate::cli) rows: Vec<Vec<String>>,
    /// Columns of the terminal; none if standard output is not one.
    width: Option<usize>,
}

/// An empty table with that header, for standard output.
pub(in crate::cli) fn table<const N: usize>(header: [&str; N]) -> Table {
    let width = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
    let width = width.filter(|_| io::stdout().is_terminal());
    Table { header: header.map(str::to_owned).into(), rows: Vec::new(), width }
}

impl Table {
    /// Appends a row. A cell may have several lines.
    pub(in crate::cli) fn add_row<C: ToString>(&mut self, cells: impl IntoIterator<Item = C>) {
        let row: Vec<String> = cells.into_iter().map(|cell| cell.to_string()).collect();
        debug_assert_eq!(row.len(), self.header.len());
        self.rows.push(row);
    }

    /// The width of each column such that the table fits the terminal; none if that would break a word.
    fn column_widths(&self) -> Option<Vec<usize>> {
        let column = |measure: fn(&str) -> usize| {
            let widest = |at: usize| self.lines().map(|row| measure(&row[at])).max().unwrap_or(0);
            (0..self.header.len()).map(widest).collect::<Vec<usize>>()
        };
        let mut widths = column(longest_line);
        let Some(width) = self.width else { return Some(widths) };
        let least = column(longest_word);
        let gaps = GAP.len() * widths.len().saturating_sub(1);
        while widths.iter().sum::<usize>() + gaps > width {
            // The widest column that can still be narrowed loses one cell.
            let narrowable = (0..widths.len()).filter(|&at| widths[at] > least[at]);
            let widest = narrowable.max_by_key(|&at| widths[at])?;
            widths[widest] -= 1;
        }
        Some(widths)
    }

    fn lines(&self) -> impl Iterator<Item = &Vec<String>> {
        std::iter::once(&self.header).chain(&self.rows)
    }
}

/// A table whose rows are printed as they are made, for output that people watch. Each column is as wide as its header, its first row and
/// the widest text known for it.
pub(in crate::cli) struct Stream<const N: usize> {
    header: [&'static str; N],
    /// Widths known in advance, then the widths of the first row.
    widths: [usize; N],
    has_begun: bool,
}

impl<const N: usize> Stream<N> {
    /// A table with this header; `widths` are those of the widest texts, or 0 where unknown.
    pub(in crate::cli) fn new(header: [&'static str; N], widths: [usize; N]) -> Self {
        Self { header, widths, has_begun: false }
    }

    /// Prints a row, the first one below the header.
    pub(in crate::cli) fn print_row(&mut self, cells: &[String; N]) {
        if !self.has_begun {
            self.has_begun = true;
            for (at, width) in self.widths.iter_mut().enumerate() {
                *width = (*width).max(self.header[at].width()).max(cells[at].width());
            }
            let header = self.header.map(str::to_owned);
            self.print_line(&header);
        }
        self.print_line(cells);
    }

    fn print_line(&self, cells: &[String; N]) {
        print_line(padded(cells.iter().map(String::as_str), &self.widths));
    }
}

impl fmt::Display for Table {
    /// Writes the table without a line feed at its end.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = match self.column_widths() {
            Some(widths) => self.lines().flat_map(|row| row_lines(row, &widths)).collect(),
            None => self.rows.iter().flat_map(|row| record_lines(&self.header, row)).collect(),
        };
        f.write_str(lines.join("\n").trim_end_matches('\n'))
    }
}

/// The lines of a row. The n-th lines of its cells start side by side, even if earlier lines were wrapped.
fn row_lines(row: &[String], widths: &[usize]) -> Vec<String> {
    let height = row.iter().map(|cell| cell.lines().count()).max().unwrap_or(0);
    let line_of = |at: usize| row.iter().map(move |cell| cell.lines().nth(at).unwrap_or_default());
    (0..height).flat_map(|at| wrapped_lines(line_of(at), widths)).collect()
}

/// One line of each cell, wrapped to its column.
fn wrapped_lines<'c>(cells: impl Iterator<Item = &'c str>, widths: &[usize]) -> Vec<String> {
    let cells: Vec<Vec<String>> = cells.zip(widths).map(|(cell, &width)| wrapped(cell, width)).collect();
    let height = cells.iter().map(Vec::len).max().unwrap_or(0);
    let texts = |at: usize| cells.iter().map(move |cell| cell.get(at).map_or("", String::as_str));
    (0..height).map(|at| padded(texts(at), widths)).collect()
}

/// A line of cells, each padded to its column.
fn padded<'c>(cells: impl Iterator<Item = &'c str>, widths: &[usize]) -> String {
    let mut line = String::new();
    for (position, (text, width)) in cells.zip(widths).enumerate() {
        line.push_str(if position > 0 { GAP } else { "" });
        line.push_str(text);
        line.extend(std::iter::repeat_n(' ', width.saturating_sub(text.width())));
    }
    line.truncate(line.trim_end().len());
    line
}

/// The lines of a row that is too wide for a table: each cell after its name, then an empty line.
fn record_lines(header: &[String], row: &[String]) -> Vec<String> {
    let names = header.iter().map(|name| name.width()).max().unwrap_or(0);
    let mut lines = Vec::new();
    for (name, cell) in header.iter().zip(row).filter(|(_, cell)| !cell.is_empty()) {
        for (position, text) in cell.lines().enumerate() {
            let name = if position == 0 { name } else { "" };
            lines.push(format!("{name:names$}{GAP}{text}"));
        }
    }
    lines.push(String::new());
    lines
}

/// The lines of a text, each as wide as words allow and at most `width`.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    if text.width() <= width {
        return vec![text.to_owned()];
    }
    let (mut lines, mut current) = (Vec::new(), String::new());
    for word in text.split_whitespace() {
        if !current.is_empty() && current.width() + 1 + word.width() > width {
            lines.push(std::mem::take(&mut current));
        }
        current.push_str(if current.is_empty() { "" } else { " " });
        current.push_str(word);
    }
    lines.push(current);
    lines
}

fn longest_line(cell: &str) -> usize {
    cell.lines().map(|line| line.width()).max().unwrap_or(0)
}

fn longest_word(cell: &str) -> usize {
    cell.split_whitespace().map(|word| word.width()).max().unwrap_or(0)
}

/// Prints to standard output. A closed pipe (`| head`) is no error: the reader has all it wanted.
pub(in crate::cli) fn print(text: &str) {
    print_while_read(text);
}

/// Prints to standard output, for commands without an end of their own. Returns whether more may be printed: the pipe is not closed.
pub(in crate::cli) fn print_while_read(text: &str) -> bool {
    let mut out = io::stdout().lock();
    let printed = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    !printed.is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints a line to standard output.
pub(in crate::cli) fn print_line(text: impl fmt::Display) {
    print(&format!("{text}\n"));
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCATION: &str = "/etc/tidegate/rules/production/edge-gateway.yaml:1024:17";

    fn rules(width: Option<usize>) -> String {
        let mut shown = table(["domain", "rule", "limit", "algorithm", "notes", "declared at"]);
        shown.width = width;
        let limits = "100 per minute\n10000 per day";
        let algorithms = "sliding_window (precision 8)\nfixed_window";
        shown.add_row(["edge", "tenant.path=/api/*", limits, algorithms, "shadow, charge: always", LOCATION]);
        shown.add_row(["edge", "remote_address", "5 per second", "token_bucket", "", LOCATION]);
        shown.to_string()
    }

    #[test]
    fn no_word_is_broken_at_any_width() {
        for width in [None, Some(40), Some(80), Some(100), Some(140), Some(200)] {
            let shown = rules(width);
            assert_eq!(shown.matches(LOCATION).count(), 2, "{width:?}\n{shown}");
            for word in ["tenant.path=/api/*", "sliding_window", "remote_address", "always"] {
                assert!(shown.contains(word), "{width:?}: {word}\n{shown}");
            }
        }
    }

    #[test]
    fn a_table_fits_the_terminal_or_has_one_line_per_cell() {
        for width in [120, 140, 200] {
            let shown = rules(Some(width));
            assert!(shown.starts_with("domain  rule"), "{shown}");
            assert!(shown.lines().all(|line| line.width() <= width), "{width}\n{shown}");
        }
        let records = rules(Some(80));
        assert!(records.starts_with("domain       edge\nrule         tenant.path=/api/*\n"), "{records}");
        assert!(records.lines().all(|line| line.width() <= 80), "{records}");
    }

    #[test]
    fn without_a_terminal_each_row_is_as_long_as_it_is() {
        assert_eq!(rules(None).lines().count(), 4, "a row of two lines, one of one line, and the header");
    }

    #[test]
    fn second_lines_of_cells_are_aligned_below_a_wrapped_first_line() {
        let mut shown = table(["limit", "algorithm"]);
        shown.width = Some(20);
        shown.add_row(["10 per minute\n5 per day", "log\nwindow"]);
        assert_eq!(shown.to_string(), "limit      algorithm\n10 per     log\nminute\n5 per day  window");
    }

    #[test]
    fn columns_start_at_the_same_place_in_each_row() {
        let mut shown = table(["a", "descriptor"]);
        shown.width = Some(80);
        shown.add_row(["ü–1", "x"]);
        assert_eq!(shown.to_string(), "a    descriptor\nü–1  x");
    }
}
