//! How commands print.

use comfy_table::{ContentArrangement, Table, presets};
use std::io::Write;

/// An empty table with that header, in the style of all commands.
pub(super) fn table<const N: usize>(header: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header);
    table
}

/// Prints to standard output. A reader that has gone away (`| head`) has seen what it wanted.
pub(super) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints a line to standard output.
pub(super) fn print_line(text: impl std::fmt::Display) {
    print(&format!("{text}\n"));
}
