//! Lines in memory, for `ListAudit`. Denied calls have their own room, so that they displace no change.

use super::{chain::AuditEntry, event::INTENT};
use std::collections::VecDeque;

/// The most lines of changes, and the most of denied calls.
const LINES_MAX: usize = 1_000;

#[derive(Default)]
pub(super) struct Recent {
    changes: VecDeque<AuditEntry>,
    denied: VecDeque<AuditEntry>,
}

impl Recent {
    /// Adds a line. A line with an outcome replaces that with its intent.
    pub(super) fn push(&mut self, entry: AuditEntry) {
        if let Some(intent) = entry.intent {
            let found = self.changes.binary_search_by_key(&intent, |entry| entry.number);
            if let Some(at) = found.ok().filter(|at| self.changes[*at].outcome == INTENT) {
                self.changes.remove(at);
            }
        }
        let is_denied = matches!(&*entry.outcome, "UNAUTHENTICATED" | "PERMISSION_DENIED");
        let lines = if is_denied { &mut self.denied } else { &mut self.changes };
        if lines.len() == LINES_MAX {
            lines.pop_front();
        }
        lines.push_back(entry);
    }

    /// The lines before this number, newest first; 0 means the end.
    pub(super) fn before(&self, number: u64, count: usize) -> Vec<AuditEntry> {
        let of = |lines: &VecDeque<AuditEntry>| {
            let end =
                if number == 0 { lines.len() } else { lines.partition_point(|entry| entry.number < number) };
            lines.range(..end).rev().take(count).cloned().collect::<Vec<_>>()
        };
        let mut newest = of(&self.changes);
        newest.extend(of(&self.denied));
        newest.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.number));
        newest.truncate(count);
        newest
    }
}
