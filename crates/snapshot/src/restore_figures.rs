//! Figures of a restore.

use std::time::Duration;

/// Figures of a restore, for metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RestoreFigures {
    /// Counters restored.
    pub counters: u64,
    /// Duration of the restore.
    pub took: Duration,
    /// Age of the snapshot; none if there was none.
    pub age: Option<Duration>,
}
