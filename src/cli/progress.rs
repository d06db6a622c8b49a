//! How far the reading of a snapshot has come.

use crate::snapshot::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;

/// A bar on standard error if that is a terminal, or one that shows nothing.
pub(super) fn bar(doing: &'static str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{prefix} [{bar:40}] {percent}% {msg} ({eta} left)");
    let bar = ProgressBar::new(0).with_prefix(doing);
    bar.with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "))
}

/// Shows how far reading has come.
pub(super) fn show(bar: &ProgressBar, progress: Progress) {
    bar.set_length(progress.records_all);
    bar.set_position(progress.records);
    bar.set_message(format!("{} counters", progress.counters));
}
