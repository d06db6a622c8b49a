//! The limiter under test. Faults are planted here, into its input.

use super::{Fault, oracle::START, rules::Rules};
use crate::{
    machine::{Disrupted, Machine},
    outcome::{DescriptorHits, Outcome},
    server::{moment, names, outcome, request},
};
use std::num::NonZeroU64;
use tidegate_core::{
    limit::{Code, Descriptor, Entry, Hits, Request},
    rules::Source,
};
use tidegate_snapshot::SimulatedDisk;

/// An end as a client sends it.
#[derive(Clone, Copy)]
pub enum Cost {
    Is(u64),
    GivesBack(u64),
}

pub struct Process {
    fault: Option<Fault>,
    rules: Rules,
    machine: Machine,
    /// The tickets of all requests that had a ticket.
    tickets: Vec<String>,
}

impl Process {
    pub fn start(rules: Rules, fault: Option<Fault>) -> Self {
        let machine = Machine::start(SimulatedDisk::default(), source(&rules, fault), moment(START));
        Self { fault, rules, machine, tickets: Vec::new() }
    }

    /// Also returns the ticket of the request, if it has one.
    pub fn decide(&mut self, descriptors: &[DescriptorHits], now: u64) -> (Outcome, Option<String>) {
        let (names, pinned) = (names(descriptors), self.machine.limiter.pin());
        let decision = pinned.decide(&request(descriptors, &names), moment(now));
        let ticket = decision.slot.as_ref().map(|slot| slot.ticket.to_string());
        self.tickets.extend(ticket.clone());
        (outcome(&decision), ticket)
    }

    /// The ticket of the request that had a ticket this many before the last.
    pub fn ticket(&self, back: usize) -> Option<String> {
        let index = self.tickets.len().checked_sub(back + 1)?;
        Some(self.tickets[index].clone())
    }

    pub fn end(&self, ticket: &str, cost: Cost, now: u64) {
        let take = |hits| NonZeroU64::new(hits).map_or(Hits::Peek, Hits::Take);
        let hits = match cost {
            Cost::Is(hits) if self.fault == Some(Fault::CostsOneMore) => take(hits + 1),
            Cost::Is(hits) => take(hits),
            Cost::GivesBack(hits) => NonZeroU64::new(hits).map_or(Hits::Peek, Hits::GiveBack),
        };
        let mut message = Request::new("sim");
        let entries = [Entry { key: "slot", value: ticket }].into_iter().collect();
        message.push(Descriptor { entries, limit: None, hits });
        // A late end is dated at its start nevertheless.
        assert_eq!(self.machine.limiter.pin().decide(&message, moment(now)).code, Code::Ok);
    }

    /// Renews a request of these rules and values; returns whether it is held.
    pub fn renew(&self, ticket: &str, of: &[(usize, usize)], is_peek: bool, now: u64) -> bool {
        let is_peek = is_peek || self.fault == Some(Fault::LosesRenewals);
        let hits = if is_peek { Hits::Peek } else { Hits::ONE };
        let names: Vec<_> =
            of.iter().map(|(rule, value)| (format!("k{rule}"), format!("v{value}"))).collect();
        let mut message = Request::new("sim");
        for (key, value) in &names {
            let renewed = Entry { key: "renew", value: ticket };
            let entries = [Entry { key, value }, renewed].into_iter().collect();
            message.push(Descriptor { entries, limit: None, hits });
        }
        self.machine.limiter.pin().decide(&message, moment(now)).code == Code::Ok
    }

    pub fn change_rules(&mut self, rules: &Rules) {
        if self.fault != Some(Fault::KeepsRules) {
            self.rules = rules.clone();
            self.machine.change_rules(source(rules, self.fault));
        }
    }

    pub fn free_limits(&self) {
        self.machine.limiter.collect_limits();
    }
}

impl Disrupted for Process {
    fn sweep(&mut self, now: u64) {
        self.machine.sweep(moment(now));
    }

    fn save(&mut self, now: u64) {
        self.machine.save(moment(now));
    }

    fn restart(&mut self, now: u64) {
        self.machine.restart(source(&self.rules, self.fault), moment(now));
    }
}

fn source(rules: &Rules, fault: Option<Fault>) -> Source {
    let mut yaml = rules.yaml();
    match fault {
        Some(Fault::KeepsWhatIsReturned) => yaml = yaml.replace("on_lost_end: return", "on_lost_end: keep"),
        Some(Fault::ForgetsEstimates) => yaml = yaml.replace("reserve: hits, ", "reserve: 1, "),
        Some(Fault::ChargesNoDenials) => {
            yaml = yaml.replace("charge: always, debt_max: 1000", "charge: admitted")
        }
        Some(Fault::DeniesByShadow) => yaml = yaml.replace("shadow_mode: true", "shadow_mode: false"),
        Some(Fault::DeniesByOneQuota) => yaml = yaml.replace("quota_mode: true", "quota_mode: false"),
        Some(Fault::ReadsOtherClocks) => {
            for zone in ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"] {
                yaml = yaml.replace(&format!("time_zone: {zone}"), "time_zone: Asia/Tokyo");
            }
        }
        Some(Fault::AlignsToTheClock) => yaml = yaml.replace(", aligned: first_hit", ""),
        Some(Fault::CostsOneMore | Fault::LosesRenewals | Fault::KeepsRules) | None => {}
    }
    Source::file("sim.yaml", yaml)
}
