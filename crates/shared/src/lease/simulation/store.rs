//! The store: one counter for each rule, and the writes that a failover loses.

use super::{
    super::{Epoch, ExactDecision, LeaseRequest, LeaseResponse, Terms},
    conditions::Conditions,
    fault::FaultyCounter,
    journal::{By, Change, Journal},
    rule::START,
};
use std::collections::{BTreeMap, VecDeque};
use tidegate_core::limit::Timestamp;

/// The counter, the node and the number of its holder.
type HolderKey = (usize, (u64, u64));

pub(super) struct Store {
    counters: Vec<FaultyCounter>,
    pub(super) epoch: Epoch,
    write: u64,
    /// The counters after each of the last writes; empty if no write is ever lost.
    copies: VecDeque<(u64, Vec<FaultyCounter>)>,
    copies_max: usize,
    /// For each holder, the write, the sequence number and the total of its reports.
    reports: BTreeMap<HolderKey, Vec<(u64, u64, u64)>>,
    /// Nodes to which lost writes may have granted credits, with the sequence number and the total of their last report that is not lost.
    undeclared: BTreeMap<HolderKey, (u64, u64)>,
}

impl Store {
    pub(super) fn new(conditions: &Conditions) -> Self {
        Self {
            counters: vec![FaultyCounter::new(conditions.fault); conditions.rules.len()],
            epoch: Epoch { id: 1, began: Timestamp::from_nanos(START) },
            write: 0,
            copies: VecDeque::new(),
            copies_max: conditions.writes_lost_max as usize + 1,
            reports: BTreeMap::new(),
            undeclared: BTreeMap::new(),
        }
    }

    pub(super) fn decide(
        &mut self,
        terms: Terms<'_>,
        counter: usize,
        hits: u64,
        now: u64,
        journal: &mut Journal,
    ) -> ExactDecision {
        let decision = self.counters[counter].decide(terms, self.epoch, hits, Timestamp::from_nanos(now));
        self.written();
        if matches!(decision, ExactDecision::Admitted { .. }) {
            journal.push(now, counter, Change::Admitted { hits, by: By::Store { write: self.write } });
        }
        decision
    }

    pub(super) fn give_back(
        &mut self,
        terms: Terms<'_>,
        counter: usize,
        hits: u64,
        now: u64,
        journal: &mut Journal,
    ) {
        let hits = self.counters[counter].give_back(terms, hits, Timestamp::from_nanos(now));
        self.written();
        if hits > 0 {
            journal.push(now, counter, Change::GivenBack { hits });
        }
    }

    pub(super) fn reset(&mut self, terms: Terms<'_>, counter: usize, now: u64, journal: &mut Journal) {
        let left = self.counters[counter].reset(terms, Timestamp::from_nanos(now));
        self.written();
        journal.push(now, counter, Change::Reset { left });
    }

    pub(super) fn lease(
        &mut self,
        terms: Terms<'_>,
        counter: usize,
        request: &LeaseRequest,
        now: u64,
    ) -> Option<LeaseResponse> {
        let response =
            self.counters[counter].lease(terms, self.epoch, request, Timestamp::from_nanos(now))?;
        self.written();
        let key = (counter, (request.node.0, request.holder));
        self.reports.entry(key).or_default().push((self.write, request.sequence, request.spent));
        if self.undeclared.get(&key).is_some_and(|&(sequence, _)| request.sequence > sequence) {
            self.undeclared.remove(&key);
        }
        Some(response)
    }

    /// Replaces the store by a copy that lacks the last writes.
    pub(super) fn fail_over(&mut self, writes_lost: usize, now: u64, journal: &mut Journal) {
        let last = self.copies.len().saturating_sub(1 + writes_lost);
        if writes_lost > 0 && !self.copies.is_empty() {
            self.copies.truncate(last + 1);
            let (write, counters) = self.copies[last].clone();
            self.counters = counters;
            self.forget_after(write, journal);
        }
        self.epoch = Epoch { id: self.epoch.id + 1, began: Timestamp::from_nanos(now) };
    }

    fn forget_after(&mut self, kept: u64, journal: &mut Journal) {
        let mut known = BTreeMap::new();
        for (&key, reports) in &mut self.reports {
            let sequence = reports.last().map_or(0, |&(_, sequence, _)| sequence);
            let is_whole = reports.last().is_none_or(|&(write, ..)| write <= kept);
            let last_spent = reports.last().map_or(0, |&(.., spent)| spent);
            reports.retain(|&(write, ..)| write <= kept);
            let spent = reports.last().map_or(0, |&(.., spent)| spent);
            known.insert(key, (spent, last_spent));
            if !is_whole {
                self.undeclared.insert(key, (sequence, spent));
            }
        }
        journal.lose(|counter, change| match change {
            Change::Admitted { by: By::Store { write }, .. } => write > kept,
            // The store may have granted credits for the room that the change made.
            Change::GivenBack { .. } | Change::Reset { .. } => false,
            Change::Admitted { by: By::Node { holder, spent }, .. } => known
                .get(&(counter, holder))
                .is_some_and(|&(reported, last_reported)| spent > reported && spent <= last_reported),
        });
    }

    /// At the end of the learning phase: hits of lost grants that were not declared are lost too.
    pub(super) fn end_learning(&mut self, journal: &mut Journal) {
        let undeclared = std::mem::take(&mut self.undeclared);
        journal.lose(|counter, change| match change {
            Change::Admitted { by: By::Node { holder, spent }, .. } => {
                undeclared.get(&(counter, holder)).is_some_and(|&(_, reported)| spent > reported)
            }
            _ => false,
        });
    }

    fn written(&mut self) {
        self.write += 1;
        if self.copies_max > 1 {
            self.copies.push_back((self.write, self.counters.clone()));
            if self.copies.len() > self.copies_max {
                self.copies.pop_front();
            }
        }
    }
}
