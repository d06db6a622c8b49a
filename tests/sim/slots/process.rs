//! The limiter under test, with waiting calls and their timers. Faults are planted here, into the input of the limiter.

use super::{
    Fault,
    traffic::{Limits, RULES, VALUES, WINDOW},
};
use crate::{
    machine::{Disrupted, Machine},
    server::{WakeFlag, moment},
};
use std::{
    num::NonZeroU64,
    sync::{Arc, atomic::Ordering},
    task::Waker,
    time::Duration,
};
use tidegate_core::{
    limit::{Code, Descriptor, Entry, Hits, Request, Timestamp},
    limiter::{QueueDecision, SlotWait},
    rules::Source,
};
use tidegate_snapshot::SimulatedDisk;

/// Nanoseconds of a millisecond.
const MILLI: u64 = 1_000_000;

const START: u64 = 1_700_000_000_000;

pub struct Process {
    fault: Option<Fault>,
    limits: Limits,
    machine: Machine,
    /// In the order of arrival.
    waiting: Vec<Call>,
    /// The tickets of all admitted requests, with their counters.
    issued: Vec<(String, Vec<usize>)>,
    /// Tickets whose end has arrived. Only for a planted fault.
    ended: Vec<String>,
    /// Ends that have arrived.
    ends: u64,
}

/// A call that waits.
struct Call {
    request: Wanted,
    wait: SlotWait,
    flag: Arc<WakeFlag>,
}

#[derive(Clone)]
struct Wanted {
    takes: Vec<(usize, u64)>,
    has_window: bool,
}

/// The result of a decision.
pub enum Outcome {
    Admitted(String),
    Denied,
    Waits,
}

impl Process {
    pub fn start(limits: Limits, fault: Option<Fault>) -> Self {
        let machine = Machine::start(SimulatedDisk::default(), source(&limits, fault), time(0));
        let (waiting, issued, ended) = (Vec::new(), Vec::new(), Vec::new());
        Self { fault, limits, machine, waiting, issued, ended, ends: 0 }
    }

    /// The ticket of the request that was admitted this many before the last.
    pub fn ticket(&self, back: usize) -> Option<String> {
        let index = self.issued.len().checked_sub(back + 1)?;
        Some(self.issued[index].0.clone())
    }

    pub fn arrive(&mut self, takes: &[(usize, u64)], has_window: bool, patience: u64, now: u64) -> Outcome {
        let request = Wanted { takes: takes.to_vec(), has_window };
        let patience = Duration::from_millis(patience);
        if self.fault != Some(Fault::Overtakes) {
            return self.decide(request, None, patience, now);
        }
        // Waiting requests leave, and are behind this request afterwards.
        let waiting = std::mem::take(&mut self.waiting);
        waiting.iter().for_each(|call| self.machine.limiter.leave(&call.wait));
        let outcome = self.decide(request, None, patience, now);
        for call in waiting {
            self.decide(call.request, None, Duration::from_millis(100), now);
        }
        outcome
    }

    /// Decides a new request, or once more the request that waited at this index.
    fn decide(
        &mut self,
        request: Wanted,
        again: Option<(usize, SlotWait)>,
        patience: Duration,
        now: u64,
    ) -> Outcome {
        let names: Vec<_> = request.takes.iter().map(|&(counter, _)| name(counter)).collect();
        let mut message = Request::new("sim");
        for ((key, value), (_, hits)) in names.iter().zip(&request.takes) {
            message.push(descriptor(key, value, Hits::Take(number(*hits))));
        }
        if request.has_window {
            message.push(descriptor("window", "w", Hits::ONE));
        }
        let (limiter, index) = (Arc::clone(&self.machine.limiter), again.as_ref().map(|(index, _)| *index));
        let pinned = limiter.pin();
        let decision = match again {
            Some((_, wait)) => pinned.decide_again(&message, wait, time(now)),
            None => pinned.decide_or_queue(&message, patience, time(now)),
        };
        match decision {
            QueueDecision::Decided(decision) => {
                let ticket = decision.slot.map(|slot| String::from(slot.ticket));
                assert_eq!(ticket.is_some(), decision.code == Code::Ok, "a ticket of admitted requests only");
                let Some(ticket) = ticket else { return Outcome::Denied };
                let counters = request.takes.iter().map(|&(counter, _)| counter).collect();
                self.issued.push((ticket.clone(), counters));
                Outcome::Admitted(ticket)
            }
            QueueDecision::Waits(wait) => {
                let flag: Arc<WakeFlag> = Arc::default();
                let call = Call { request, wait, flag };
                match index {
                    Some(index) => self.waiting.insert(index, call),
                    None => self.waiting.push(call),
                }
                let index = index.unwrap_or(self.waiting.len() - 1);
                // Like a task before it sleeps: this finds a call that precedes its waker.
                if self.poll(index) {
                    self.waiting[index].flag.0.store(true, Ordering::Relaxed);
                }
                Outcome::Waits
            }
            QueueDecision::Queued(_) => unreachable!("no rule is of a bucket"),
        }
    }

    /// Whether a waiting request is called.
    fn poll(&self, index: usize) -> bool {
        let Call { wait, flag, .. } = &self.waiting[index];
        self.machine.limiter.poll_slots(wait, &Waker::from(Arc::clone(flag)))
    }

    /// Decides once more the first waiting request that is called, or whose time has come. Returns its index and its result.
    pub fn call_next(&mut self, now: u64) -> Option<(usize, Outcome)> {
        let is_due = |call: &Call| {
            let is_called = call.flag.0.load(Ordering::Relaxed) && self.fault != Some(Fault::LosesCalls);
            is_called || call.wait.again() <= time(now)
        };
        let index = self.waiting.iter().position(is_due)?;
        let Call { request, wait, .. } = self.waiting.remove(index);
        Some((index, self.decide(request, Some((index, wait)), Duration::ZERO, now)))
    }

    /// The next time at which a waiting request is to be decided once more.
    pub fn next_timer(&self) -> Option<u64> {
        let timers = self.waiting.iter().map(|call| call.wait.again());
        // A timer in milliseconds is never early.
        timers.min().map(|at| at.as_nanos().div_ceil(MILLI) - START)
    }

    pub fn end(&mut self, ticket: &str, part: Option<u64>, now: u64) {
        self.ends += 1;
        let mut ticket = ticket.to_owned();
        let mut part = part;
        match self.fault {
            Some(Fault::LosesEnds) if self.ends.is_multiple_of(8) => return,
            Some(Fault::EndsPartsAsWhole) => part = None,
            Some(Fault::EndsAnother) if self.ended.contains(&ticket) => {
                ticket = self.issued.last().map_or(ticket, |(ticket, _)| ticket.clone());
            }
            Some(_) | None => {}
        }
        if part.is_none() && self.fault.is_some() {
            self.ended.push(ticket.clone());
        }
        self.release(&ticket, part, now);
    }

    /// Sends a ticket, which may be forged.
    pub fn release(&self, ticket: &str, part: Option<u64>, now: u64) {
        let mut message = Request::new("sim");
        let hits = part.map_or(Hits::ONE, |part| Hits::GiveBack(number(part)));
        message.push(descriptor("slot", ticket, hits));
        let pinned = self.machine.limiter.pin();
        assert_eq!(pinned.decide(&message, time(now)).code, Code::Ok);
    }

    /// Renews the request that was admitted this many before the last; returns whether it is held.
    pub fn renew(&self, back: usize, is_peek: bool, now: u64) -> bool {
        let (ticket, counters) = &self.issued[self.issued.len() - back - 1];
        let is_peek = is_peek || self.fault == Some(Fault::LosesRenewals);
        let hits = if is_peek { Hits::Peek } else { Hits::ONE };
        let names: Vec<_> = counters.iter().map(|&counter| name(counter)).collect();
        let mut message = Request::new("sim");
        for (key, value) in &names {
            let mut descriptor = descriptor(key, value, hits);
            descriptor.entries.push(Entry { key: "renew", value: ticket });
            message.push(descriptor);
        }
        self.machine.limiter.pin().decide(&message, time(now)).code == Code::Ok
    }

    pub fn cancel(&self, ticket: &str, now: u64) {
        self.machine.limiter.cancel_start(ticket, time(now));
    }

    /// The request that waits at this index gives up.
    pub fn leave(&mut self, index: usize) {
        let call = self.waiting.remove(index);
        if self.fault != Some(Fault::StaysInLine) {
            self.machine.limiter.leave(&call.wait);
        }
    }

    pub fn reset(&self, counter: usize, now: u64) {
        let (key, value) = name(counter);
        let mut message = Request::new("sim");
        message.push(descriptor(&key, &value, Hits::Peek));
        self.machine.limiter.pin().reset(&message, time(now)).expect("the domain has rules");
    }

    pub fn change(&mut self, limits: Limits) {
        self.limits = limits;
        self.machine.change_rules(source(&limits, self.fault));
    }

    /// Hits that are free in a counter.
    pub fn remaining(&self, counter: usize, now: u64) -> u64 {
        let (key, value) = name(counter);
        self.peek(&key, &value, now)
    }

    pub fn in_window(&self, now: u64) -> u64 {
        WINDOW - self.peek("window", "w", now)
    }

    fn peek(&self, key: &str, value: &str, now: u64) -> u64 {
        let mut message = Request::new("sim");
        message.push(descriptor(key, value, Hits::Peek));
        self.machine.limiter.pin().decide(&message, time(now)).statuses[0].remaining.into()
    }
}

impl Disrupted for Process {
    fn sweep(&mut self, now: u64) {
        self.machine.sweep(time(now));
    }

    fn save(&mut self, now: u64) {
        self.machine.save(time(now));
    }

    /// Waiting calls got no answer.
    fn restart(&mut self, now: u64) {
        self.waiting.clear();
        if self.fault == Some(Fault::ForgetsSlots) {
            self.machine.lose_disk();
        }
        self.machine.restart(source(&self.limits, self.fault), time(now));
    }
}

fn source(limits: &Limits, fault: Option<Fault>) -> Source {
    let mut limits = *limits;
    for rule in 0..RULES {
        match fault {
            Some(Fault::AdmitsOneMore) => limits.0[rule].in_flight += 1,
            Some(Fault::HoldsTooShort) => limits.0[rule].hold -= 1,
            Some(Fault::HoldsTooLong) => limits.0[rule].hold += 1,
            Some(_) | None => {}
        }
    }
    Source::file("sim.yaml", limits.yaml())
}

fn descriptor<'n>(key: &'n str, value: &'n str, hits: Hits) -> Descriptor<'n> {
    Descriptor { entries: [Entry { key, value }].into_iter().collect(), limit: None, hits }
}

fn name(counter: usize) -> (String, String) {
    (format!("k{}", counter / VALUES), format!("v{}", counter % VALUES))
}

fn number(hits: u64) -> NonZeroU64 {
    NonZeroU64::new(hits).expect("at least one hit")
}

fn time(millis: u64) -> Timestamp {
    moment((START + millis) * MILLI)
}
