//! Costs known at the end: every verdict, and the remaining hits and reset of every status, are compared with a list of charges, in which
//! an end replaces the estimate by the cost. Limits of all algorithms, several in a rule, with bans, schedules and `charge: always`, in
//! shadow and quota mode; requests that give hits back beside starts, and peeks; ends that are lost, repeated and late; renewals; reloads,
//! stops and crashes.
//!
//! Finding no difference shows something only if faults are found: each [`Fault`] is planted into the input of the limiter, and found.

mod oracle;
mod process;
mod rules;
mod traffic;

use crate::{check_seeds, rng::Rng, world::shortest};
use oracle::Oracle;
use process::{Cost, Process};
use rules::Rules;
use std::fmt::Write;
use traffic::{Event, Step};

/// Seeds of an ordinary run.
const SEEDS: u64 = 100;

/// Seeds in which a planted fault must be found.
const SEEDS_WITH_FAULT: u64 = 100;

/// Faults that a limiter might have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    CostsOneMore,
    KeepsWhatIsReturned,
    /// Charges one hit instead of the request's hits.
    ForgetsEstimates,
    ChargesNoDenials,
    LosesRenewals,
    DeniesByShadow,
    /// Each of several quotas denies.
    DeniesByOneQuota,
    /// Reads the hours of schedules by the clocks of another zone.
    ReadsOtherClocks,
    /// Lets windows that begin with their first hit begin by the clock.
    AlignsToTheClock,
    /// Reloads no rules.
    KeepsRules,
}

const FAULTS: [Fault; 10] = [
    Fault::CostsOneMore,
    Fault::KeepsWhatIsReturned,
    Fault::ForgetsEstimates,
    Fault::ChargesNoDenials,
    Fault::LosesRenewals,
    Fault::DeniesByShadow,
    Fault::DeniesByOneQuota,
    Fault::ReadsOtherClocks,
    Fault::AlignsToTheClock,
    Fault::KeepsRules,
];

#[test]
fn decisions_with_estimates_are_those_of_a_list_of_charges() {
    check_seeds(SEEDS, &[399, 561, 562, 6_740, 29_986], |rng| {
        let rules = Rules::with_estimates(rng);
        let trace = traffic::random(rng, &rules);
        check(&rules, trace)
    });
}

#[test]
fn planted_faults_of_estimates_are_found() {
    for fault in FAULTS {
        let is_found = (0..SEEDS_WITH_FAULT).any(|seed| {
            let mut rng = Rng::of_seed(seed);
            let rules = Rules::with_estimates(&mut rng);
            compare(&rules, &traffic::random(&mut rng, &rules), Some(fault)).is_err()
        });
        assert!(is_found, "{fault:?} is not found");
    }
}

/// An error describes the first difference, by the shortest trace that was found.
fn check(rules: &Rules, trace: Vec<Step>) -> Result<(), String> {
    if compare(rules, &trace, None).is_ok() {
        return Ok(());
    }
    let trace = shortest(trace, |trace| compare(rules, trace, None).is_err());
    let mut text = rules.yaml();
    for Step { after, event } in &trace {
        let _ = match event {
            Event::Rules(rules) => writeln!(text, "{after} ns later: new rules\n{}", rules.yaml()),
            event => writeln!(text, "{after} ns later: {event:?}"),
        };
    }
    let difference = compare(rules, &trace, None).err().unwrap_or_default();
    Err(text + &difference)
}

/// Runs the trace on both. Returns the first difference as an error.
fn compare(rules: &Rules, trace: &[Step], fault: Option<Fault>) -> Result<(), String> {
    let (mut oracle, mut process) = (Oracle::new(rules.clone()), Process::start(rules.clone(), fault));
    for (index, Step { after, event }) in trace.iter().enumerate() {
        oracle.now += after;
        play(&mut oracle, &mut process, event).map_err(|text| format!("at step {index}: {text}"))?;
    }
    Ok(())
}

fn play(oracle: &mut Oracle, process: &mut Process, event: &Event) -> Result<(), String> {
    let now = oracle.now;
    match event {
        Event::Request(descriptors) => {
            let descriptors = oracle.returnable(descriptors);
            let (found, ticket) = process.decide(&descriptors, now);
            let (expected, has_ticket) = oracle.decide(&descriptors, ticket.as_deref());
            if !expected.is_met_by(&found) || ticket.is_some() != has_ticket {
                return Err(format!(
                    "expected {expected:?}, ticket {has_ticket}\nfound {found:?}, {ticket:?}"
                ));
            }
        }
        Event::End { back, cost } => {
            if let Some(ticket) = process.ticket(*back) {
                process.end(&ticket, Cost::Is(*cost), now);
                oracle.end(&ticket, |_| *cost);
            }
        }
        Event::GiveBack { back, hits } => {
            if let Some(ticket) = process.ticket(*back) {
                process.end(&ticket, Cost::GivesBack(*hits), now);
                oracle.end(&ticket, |estimate| estimate.saturating_sub(*hits));
            }
        }
        Event::Renew { back, is_peek } => {
            if let Some((ticket, of)) = process.ticket(*back).and_then(|ticket| oracle.renewable(&ticket)) {
                let found = process.renew(&ticket, &of, *is_peek, now);
                let expected = oracle.renew(&ticket, *is_peek);
                if found != expected {
                    return Err(format!("a renewal: held {found}, expected {expected}"));
                }
            }
        }
        Event::Rules(rules) => {
            process.change_rules(rules);
            oracle.change_rules(rules);
        }
        Event::FreeLimits => process.free_limits(),
        Event::Disruption(disruption) => oracle.now = disruption.play([oracle, process], now),
    }
    Ok(())
}
