//! Requests in flight: every decision, every renewal, every end of a wait and the free hits afterwards are compared with a list of requests
//! with their starts and ends, while ends are lost, repeated, late, partial and forged, processes stop and crash, and rules change.
//!
//! Finding no difference shows something only if faults are found: each [`Fault`] is planted into the input of the limiter, and found.

mod oracle;
mod process;
mod traffic;

use crate::{check_seeds, rng::Rng, world::shortest};
use oracle::{Expected, Oracle};
use process::{Outcome, Process};
use std::fmt::Write;
use traffic::{COUNTERS, Event, Limits, Step};

/// Seeds of an ordinary run, each of 1,000 events.
const SEEDS: u64 = 300;

/// Seeds in which a planted fault must be found.
const SEEDS_WITH_FAULT: u64 = 30;

/// Faults that a limiter might have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    AdmitsOneMore,
    /// By a millisecond.
    HoldsTooShort,
    /// By a millisecond.
    HoldsTooLong,
    /// At a start.
    ForgetsSlots,
    LosesEnds,
    LosesRenewals,
    /// The second end of a request counts as the end of the newest request.
    EndsAnother,
    EndsPartsAsWhole,
    /// Waiting requests are not called, and notice free slots by their timers only.
    LosesCalls,
    /// Requests that give up stay in their lines.
    StaysInLine,
    /// A request that arrives is decided before requests that wait.
    Overtakes,
}

const FAULTS: [Fault; 11] = [
    Fault::AdmitsOneMore,
    Fault::HoldsTooShort,
    Fault::HoldsTooLong,
    Fault::ForgetsSlots,
    Fault::LosesEnds,
    Fault::LosesRenewals,
    Fault::EndsAnother,
    Fault::EndsPartsAsWhole,
    Fault::LosesCalls,
    Fault::StaysInLine,
    Fault::Overtakes,
];

#[test]
fn requests_in_flight_are_those_of_a_list_of_starts_and_ends() {
    check_seeds(SEEDS, &[], |rng| {
        let limits = Limits::random(rng);
        let trace = traffic::random(rng, limits);
        check(limits, trace, None)
    });
}

#[test]
fn planted_faults_of_requests_in_flight_are_found() {
    for fault in FAULTS {
        let is_found = (0..SEEDS_WITH_FAULT).any(|seed| {
            let mut rng = Rng::of_seed(seed);
            let limits = Limits::random(&mut rng);
            compare(limits, &traffic::random(&mut rng, limits), Some(fault)).is_err()
        });
        assert!(is_found, "{fault:?} is not found");
    }
}

/// An error describes the first difference, by the shortest trace that was found.
fn check(limits: Limits, trace: Vec<Step>, fault: Option<Fault>) -> Result<(), String> {
    if compare(limits, &trace, fault).is_ok() {
        return Ok(());
    }
    let trace = shortest(trace, |trace| compare(limits, trace, fault).is_err());
    let mut text = limits.yaml();
    for Step { after, event } in &trace {
        let _ = match event {
            Event::Rules(limits) => writeln!(text, "{after} ms later: new rules\n{}", limits.yaml()),
            event => writeln!(text, "{after} ms later: {event:?}"),
        };
    }
    let difference = compare(limits, &trace, fault).err().unwrap_or_default();
    Err(text + &difference)
}

/// Runs the trace on both. Returns the first difference as an error.
fn compare(limits: Limits, trace: &[Step], fault: Option<Fault>) -> Result<(), String> {
    let mut both = Both { oracle: Oracle::new(limits), process: Process::start(limits, fault) };
    for (index, Step { after, event }) in trace.iter().enumerate() {
        let at = |difference: String| format!("at step {index}: {difference}");
        both.pass_time(*after).map_err(at)?;
        both.play(event).map_err(at)?;
        both.settle().map_err(at)?;
        both.compare_figures(index % COUNTERS).map_err(at)?;
    }
    Ok(())
}

struct Both {
    oracle: Oracle,
    process: Process,
}

impl Both {
    /// Passes time, and decides waiting requests whenever their timers expire.
    fn pass_time(&mut self, millis: u64) -> Result<(), String> {
        let end = self.oracle.now + millis;
        while let Some(timer) = self.process.next_timer().filter(|timer| *timer <= end) {
            self.oracle.now = timer.max(self.oracle.now);
            self.settle()?;
        }
        self.oracle.now = end;
        Ok(())
    }

    fn play(&mut self, event: &Event) -> Result<(), String> {
        let Self { oracle, process } = self;
        let now = oracle.now;
        match event {
            Event::Request { takes, has_window, patience } => {
                let found = process.arrive(takes, *has_window, *patience, now);
                let expected = oracle.arrive(takes, *has_window, *patience, found.ticket());
                return equal("a request", expected, &found);
            }
            Event::End { back, part } => {
                if let Some(ticket) = process.ticket(*back) {
                    process.end(&ticket, *part, now);
                    oracle.end(&ticket, *part);
                }
            }
            Event::Renew { back, is_peek } => {
                if let Some(ticket) = process.ticket(*back) {
                    let expected = oracle.renew(&ticket, *is_peek);
                    let found = process.renew(*back, *is_peek, now);
                    if found != expected {
                        return Err(format!("a renewal: held {found}, expected {expected}"));
                    }
                }
            }
            Event::Cancel { back } => {
                if let Some(ticket) = process.ticket(*back) {
                    process.cancel(&ticket, now);
                    oracle.end(&ticket, None);
                }
            }
            Event::Forge { back, other, bit } => {
                if let (Some(ticket), Some(other)) = (process.ticket(*back), process.ticket(*other)) {
                    process.release(&forged(&ticket, &other, *bit), None, now);
                }
            }
            Event::Leave(number) => {
                if let Some(index) = number.checked_rem(oracle.waiting()) {
                    process.leave(index);
                    oracle.leave(index);
                }
            }
            Event::Reset(counter) => {
                process.reset(*counter, now);
                oracle.reset(*counter);
            }
            Event::Rules(limits) => {
                process.change(*limits);
                oracle.change(*limits);
            }
            Event::Disruption(disruption) => oracle.now = disruption.play([oracle, process], now),
        }
        Ok(())
    }

    /// Decides waiting requests until none is called; then none may be admissible.
    fn settle(&mut self) -> Result<(), String> {
        while let Some((index, found)) = self.process.call_next(self.oracle.now) {
            let expected = self.oracle.again(index, found.ticket());
            equal("a request that waited", expected, &found)?;
        }
        match self.oracle.overdue() {
            Some(index) => Err(format!("request {index} of those that wait is not called")),
            None => Ok(()),
        }
    }

    fn compare_figures(&self, counter: usize) -> Result<(), String> {
        let now = self.oracle.now;
        let expected = [self.oracle.remaining(counter), self.oracle.in_window()];
        let found = [self.process.remaining(counter, now), self.process.in_window(now)];
        match found == expected {
            true => Ok(()),
            false => Err(format!(
                "free in counter {counter}, and used of the window: {found:?}, expected {expected:?}"
            )),
        }
    }
}

impl Outcome {
    fn ticket(&self) -> Option<&str> {
        if let Self::Admitted(ticket) = self { Some(ticket) } else { None }
    }
}

fn equal(of: &str, expected: Expected, found: &Outcome) -> Result<(), String> {
    let verdict = match found {
        Outcome::Admitted(_) => Expected::Admitted,
        Outcome::Denied => Expected::Denied,
        Outcome::Waits => Expected::Waits,
    };
    if verdict == expected { Ok(()) } else { Err(format!("{of}: {verdict:?}, expected {expected:?}")) }
}

/// The counters of one ticket with the id of another, in which one bit is changed.
fn forged(ticket: &str, other: &str, bit: u32) -> String {
    let digits = "slot-".len()..21;
    let id = u64::from_str_radix(&other[digits.clone()], 16).expect("an id in hexadecimal digits");
    format!("slot-{:016x}{}", id ^ (1 << bit), &ticket[digits.end..])
}
