//! Progress bars of commands that read or write snapshots.

use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use tidegate_snapshot::Progress;

/// A bar on standard error if that is a terminal, else a hidden bar.
pub(in crate::cli) fn bar(operation: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{prefix} [{bar:40}] {percent}% {msg} ({eta} left)");
    let bar = ProgressBar::new(0).with_prefix(operation);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "))
}

/// Shows the progress of reading.
pub(in crate::cli) fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_length(progress.records_all);
    bar.set_position(progress.records);
    bar.set_message(format!("{} counters", progress.counters));
}
