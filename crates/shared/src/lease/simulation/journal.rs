//! Record of events in true time, and its check against a naive exact limiter.

use super::{oracle::Oracle, rule::Rule};
use std::collections::BTreeMap;

/// Something that changed a counter.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// Hits that were admitted.
    Admitted { hits: u64, by: By },
    /// Hits that the store gave back.
    GivenBack { hits: u64 },
    /// The store freed all hits but these.
    Reset { left: u64 },
}

/// Who admitted hits.
#[derive(Clone, Copy, Debug)]
pub(super) enum By {
    /// The store, in the write of that number.
    Store { write: u64 },
    /// A node and its holder, with the total of spent hits.
    Node { holder: (u64, u64), spent: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: u64,
    counter: usize,
    change: Change,
    is_lost: bool,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    entries: Vec<Entry>,
    /// Positions in `entries`, each with the entries before it that are lost from there on.
    losses: Vec<(usize, Vec<usize>)>,
}

impl Journal {
    pub(super) fn push(&mut self, at: u64, counter: usize, change: Change) {
        self.entries.push(Entry { at, counter, change, is_lost: false });
    }

    pub(super) fn admissions(&self) -> impl Iterator<Item = (u64, u64)> {
        self.entries.iter().filter_map(|entry| match entry.change {
            Change::Admitted { hits, .. } => Some((entry.at, hits)),
            Change::GivenBack { .. } | Change::Reset { .. } => None,
        })
    }

    /// Marks changes as lost by the store: all up to now for which `is_lost` is true.
    pub(super) fn lose(&mut self, is_lost: impl Fn(usize, Change) -> bool) {
        let mut lost = Vec::new();
        for (index, entry) in self.entries.iter_mut().enumerate() {
            if !entry.is_lost && is_lost(entry.counter, entry.change) {
                entry.is_lost = true;
                lost.push(index);
            }
        }
        if !lost.is_empty() {
            self.losses.push((self.entries.len(), lost));
        }
    }

    /// Hits of all admissions that the store lost.
    pub(super) fn lost_hits(&self) -> u64 {
        let lost = self.entries.iter().filter(|entry| entry.is_lost);
        lost.map(|entry| if let Change::Admitted { hits, .. } = entry.change { hits } else { 0 }).sum()
    }

    /// The admissions that an exact limiter would have refused. Replays all changes to one exact limiter for each counter. After a loss,
    /// this limiter does not have the lost hits.
    pub(super) fn violations(&self, rules: &[Rule]) -> Vec<String> {
        let mut oracles: Vec<Oracle> = rules.iter().map(|rule| Oracle::new(rule.model.clone())).collect();
        let mut losses = self.losses.iter().peekable();
        let mut lost = BTreeMap::new();
        let mut violations = Vec::new();
        for (index, entry) in self.entries.iter().enumerate() {
            while let Some((_, entries)) = losses.next_if(|(at, _)| *at <= index) {
                lost.extend(entries.iter().map(|&entry| (entry, ())));
                oracles = rules.iter().map(|rule| Oracle::new(rule.model.clone())).collect();
                for (earlier, entry) in self.entries[..index].iter().enumerate() {
                    if !lost.contains_key(&earlier) {
                        apply(&mut oracles[entry.counter], entry);
                    }
                }
            }
            let oracle = &mut oracles[entry.counter];
            if let Change::Admitted { hits, .. } = entry.change {
                let remaining = oracle.remaining(entry.at);
                if hits > remaining {
                    violations.push(format!("entry {index}, {remaining} hits remained: {entry:?}"));
                }
            }
            apply(oracle, entry);
        }
        violations
    }
}

fn apply(oracle: &mut Oracle, entry: &Entry) {
    match entry.change {
        Change::Admitted { hits, .. } => oracle.take(hits, entry.at),
        Change::GivenBack { hits } => oracle.give_back(hits, entry.at),
        // Some hits count in part: to give back as many as are used would leave some.
        Change::Reset { left: 0 } => oracle.give_back(u64::MAX, entry.at),
        Change::Reset { left } => oracle.give_back(oracle.used(entry.at).saturating_sub(left), entry.at),
    }
}
