//! One counter: a list of all charges, each at its time, from which a plain counter is made again for each result. An end replaces a number
//! in the list.

use crate::oracle::{Model, Oracle as Plain};
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
pub enum Number {
    Known(u64),
    GivenBack(u64),
    /// An estimate, until its end or its deadline.
    Open {
        ticket: String,
        hits: u64,
        deadline: u64,
        returns: bool,
    },
}

#[derive(Clone, Debug)]
struct Charged {
    /// The time of the request, or the time of newer hits whose number is known and with which a log has joined these hits.
    at: u64,
    /// The same, but if a log has joined them with open estimates too, until these change.
    seen: u64,
    number: Number,
}

#[derive(Clone, Debug)]
pub struct Counter {
    pub model: Model,
    /// In the order of time.
    charged: Vec<Charged>,
    /// In windows from the first hit: the time at which the latest window that followed another was opened. No earlier hit counts.
    begun: u64,
    /// The greatest number that its limit admits at any time.
    pub most: u64,
}

impl Charged {
    fn hits(&self) -> u64 {
        match self.number {
            Number::Known(hits) | Number::Open { hits, .. } => hits,
            Number::GivenBack(_) => 0,
        }
    }

    fn deadline(&self) -> Option<u64> {
        if let Number::Open { deadline, .. } = self.number { Some(deadline) } else { None }
    }

    fn is_of(&self, ticket: &str) -> bool {
        matches!(&self.number, Number::Open { ticket: of, .. } if of == ticket)
    }
}

impl Counter {
    pub fn new(model: Model, most: u64) -> Self {
        Self { model, charged: Vec::new(), begun: 0, most }
    }

    pub fn is_bucket(&self) -> bool {
        matches!(
            self.model,
            Model::GreedyBucket { .. } | Model::IntervalBucket { .. } | Model::LeakyBucket { .. }
        )
    }

    fn is_from_first_hit(&self) -> bool {
        matches!(self.model, Model::FirstHitWindow { .. })
    }

    /// The counter at a moment; without the estimates that are open then, if only settled hits are wanted.
    pub fn at(&self, now: u64, is_settled: bool) -> Plain {
        if self.charged.iter().filter_map(Charged::deadline).any(|deadline| deadline <= now) {
            let mut then = self.clone();
            then.settle(now);
            return then.at(now, is_settled);
        }
        // The times of a log are joined already.
        let mut plain = Plain::new(match self.model {
            Model::SlidingLog { window, .. } => Model::SlidingLog { limit: u64::MAX, window },
            ref model => model.clone(),
        });
        for Charged { at, seen, number } in self.charged.iter().filter(|charged| charged.at >= self.begun) {
            let at = if is_settled { *at } else { *seen };
            match number {
                Number::Open { .. } if is_settled => {}
                Number::Known(hits) | Number::Open { hits, .. } => take(&mut plain, *hits, at),
                Number::GivenBack(hits) => plain.give_back(*hits, at),
            }
        }
        plain.change_rule(self.model.clone(), now);
        plain
    }

    /// Hits that would be admitted at a moment after this many are given back.
    pub fn remaining(&self, given: u64, now: u64) -> u64 {
        if given == 0 {
            return self.at(now, false).remaining(now);
        }
        if self.is_bucket() {
            let used = self.at(now, false).used_without(&self.at(now, true), given, now);
            return self.at(now, false).limit().saturating_sub(used);
        }
        let mut without = self.clone();
        without.give_back(given, now);
        without.remaining(0, now)
    }

    /// Gives back the newest settled hits that count.
    pub fn give_back(&mut self, hits: u64, now: u64) {
        self.settle(now);
        if self.is_bucket() {
            return self.charged.push(Charged { at: now, seen: now, number: Number::GivenBack(hits) });
        }
        if self.is_from_first_hit() && self.at(now, true).used(now) == 0 {
            return;
        }
        let mut left = hits;
        for charged in self.charged.iter_mut().rev() {
            if let Number::Known(hits) = &mut charged.number {
                let taken = left.min(*hits);
                (*hits, left) = (*hits - taken, left - taken);
            }
        }
        self.see(now);
    }

    /// Whole settled hits, which can be given back.
    pub fn returnable(&self, now: u64) -> u64 {
        self.at(now, true).whole(now)
    }

    /// Charges hits, or an estimate.
    pub fn add(&mut self, number: Number, now: u64) {
        self.settle(now);
        if self.is_from_first_hit() && self.at(now, false).used(now) == 0 {
            self.begun = now;
        }
        if let Number::Known(_) = number {
            self.charged.push(Charged { at: now, seen: now, number });
            self.join(now);
        } else {
            self.charged.push(Charged { at: now, seen: now, number });
        }
        self.join_seen(now);
    }

    /// Whether the request with this ticket has an estimate here that is not settled.
    pub fn has(&self, ticket: &str) -> bool {
        self.charged.iter().any(|charged| charged.is_of(ticket))
    }

    /// The request with this ticket ends: its cost is computed from its estimate.
    pub fn end(&mut self, ticket: &str, cost: impl Fn(u64) -> u64, now: u64) {
        self.by_most(|counter| {
            counter.settle(now);
            let (mut is_known, mut is_changed) = (false, false);
            for charged in counter.charged.iter_mut().filter(|charged| charged.is_of(ticket)) {
                let (estimate, cost) = (charged.hits(), cost(charged.hits()));
                charged.number = Number::Known(cost);
                (is_known, is_changed) = (is_known || cost > 0, is_changed || cost != estimate);
            }
            if is_known {
                counter.join(now);
            }
            if is_changed {
                counter.see(now);
            }
        });
    }

    /// Whether the estimate of the request with this ticket is open.
    pub fn is_open(&self, ticket: &str, now: u64) -> bool {
        let mut of_ticket = self.charged.iter().filter(|charged| charged.is_of(ticket));
        of_ticket.any(|charged| charged.deadline().is_some_and(|deadline| deadline > now))
    }

    /// The estimate of the request with this ticket is open until this deadline, or longer if it already was.
    pub fn renew(&mut self, ticket: &str, until: u64, now: u64) {
        self.by_most(|counter| counter.settle(now));
        for charged in self.charged.iter_mut().filter(|charged| charged.is_of(ticket)) {
            if let Number::Open { deadline, .. } = &mut charged.number {
                *deadline = until.max(*deadline);
            }
        }
    }

    /// Changes the limit. If the new limit counts in another way, used hits count as taken now, and so do the estimates that count.
    pub fn change_limit(&mut self, model: &Model, most: u64, now: u64) {
        if !self.model.counts_as(model) {
            self.settle(now);
            let is_over = self.is_from_first_hit() && self.at(now, false).used(now) == 0;
            let used = if is_over { 0 } else { self.at(now, true).used(now) };
            let open = (0..self.charged.len()).filter(|&index| !is_over && self.is_counted(index, now));
            let open: Vec<Number> = open.map(|index| self.charged[index].number.clone()).collect();
            let known = Some(Number::Known(used)).filter(|_| used > 0);
            let numbers = known.into_iter().chain(open);
            self.charged = numbers.map(|number| Charged { at: now, seen: now, number }).collect();
            self.begun = 0;
        }
        (self.model, self.most) = (model.clone(), most);
    }

    /// Whether the charge is an open estimate that counts: in a bucket, if the bucket would contain hits now if all later charges had been
    /// added together with it.
    fn is_counted(&self, index: usize, now: u64) -> bool {
        let Charged { at, number: Number::Open { hits, .. }, .. } = &self.charged[index] else {
            return false;
        };
        let mut alone = Plain::new(self.model.clone());
        if !self.is_bucket() {
            alone.take(*hits, *at);
            return *at >= self.begun && (self.is_from_first_hit() || alone.used(now) > 0);
        }
        let settled = |charged: &Charged| match charged.number {
            Number::Known(hits) => i128::from(hits),
            Number::GivenBack(hits) => -i128::from(hits),
            Number::Open { .. } => 0,
        };
        let mut add = |hits: i128, at: u64| match u64::try_from(hits) {
            Ok(hits) => take(&mut alone, hits, at),
            Err(_) => alone.give_back(u64::try_from(-hits).expect("few hits"), at),
        };
        let (before, after) = self.charged.split_at(index);
        before.iter().for_each(|charged| add(settled(charged), charged.at));
        add(i128::from(*hits) + after.iter().map(settled).sum::<i128>(), *at);
        alone.used(now) > 0
    }

    /// Changes the counter under the greatest number that its limit admits.
    fn by_most(&mut self, change: impl FnOnce(&mut Self)) {
        let model = self.model.clone();
        if let Model::SlidingLog { limit, .. } = &mut self.model {
            *limit = self.most;
        }
        change(self);
        self.model = model;
    }

    /// Estimates become known hits at their deadlines.
    pub fn settle(&mut self, now: u64) {
        let deadlines = self.charged.iter().filter_map(Charged::deadline).filter(|deadline| *deadline <= now);
        for time in deadlines.collect::<BTreeSet<u64>>() {
            self.keep_window(time);
            let (mut is_known, mut is_returned) = (false, false);
            for charged in self.charged.iter_mut().filter(|charged| charged.deadline() == Some(time)) {
                if let Number::Open { hits, returns, .. } = charged.number {
                    charged.number = Number::Known(if returns { 0 } else { hits });
                    (is_known, is_returned) = (is_known || !returns, is_returned || returns);
                }
            }
            if is_known {
                self.join(now);
            }
            if is_returned {
                self.see(now);
            }
        }
    }

    /// A window from the first hit keeps its end if that hit is returned at its deadline: all other hits count from the window's beginning
    /// on.
    fn keep_window(&mut self, time: u64) {
        let counted = |charged: &&mut Charged| charged.at >= self.begun && charged.hits() > 0;
        let mut counted: Vec<&mut Charged> = self.charged.iter_mut().filter(counted).collect();
        let Some(begin) = counted
            .first()
            .map(|first| first.at)
            .filter(|_| matches!(self.model, Model::FirstHitWindow { .. }))
        else {
            return;
        };
        let is_returned = |charged: &&mut Charged| {
            charged.at == begin
                && matches!(charged.number, Number::Open { deadline, returns: true, .. } if deadline == time)
        };
        if counted.iter().any(is_returned) {
            counted.iter_mut().for_each(|charged| (charged.at, charged.seen) = (begin, begin));
        }
    }

    /// A log keeps the times of its newest settled hits, as many as the limit; earlier hits are dated as the newest of the earlier hits,
    /// and stay so if newer hits are given back.
    fn join(&mut self, now: u64) {
        let is_settled = |charged: &Charged| matches!(charged.number, Number::Known(1..));
        self.join_times(now, is_settled, |charged| &mut charged.at);
        self.charged.sort_by_key(|charged| charged.at);
    }

    /// The same for all hits. It is undone when the number of an estimate changes.
    fn join_seen(&mut self, now: u64) {
        self.join_times(now, |charged| charged.hits() > 0, |charged| &mut charged.seen);
        if self.charged.iter().all(|charged| charged.deadline().is_none()) {
            self.charged.iter_mut().for_each(|charged| charged.seen = charged.at);
        }
    }

    fn see(&mut self, now: u64) {
        self.charged.iter_mut().for_each(|charged| charged.seen = charged.at);
        self.join_seen(now);
    }

    fn join_times(
        &mut self,
        now: u64,
        is_joined: impl Fn(&Charged) -> bool,
        time: impl Fn(&mut Charged) -> &mut u64,
    ) {
        let Model::SlidingLog { limit, window } = self.model else { return };
        let (mut newer, mut joined) = (0, None);
        for charged in self.charged.iter_mut().rev().filter(|charged| is_joined(charged)) {
            let (hits, at) = (charged.hits(), time(charged));
            if *at + window <= now {
                continue;
            }
            newer += hits;
            if joined.is_none() && newer > limit {
                joined = Some(*at);
            }
            *at = joined.unwrap_or(*at);
        }
    }
}

fn take(plain: &mut Plain, hits: u64, at: u64) {
    if hits > 0 {
        plain.take(hits, at);
    }
}
