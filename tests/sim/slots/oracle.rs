//! The naive limiter: a list of requests with their starts and ends, and a list of waiting requests, in the order of arrival.

use super::traffic::{COUNTERS, Limits};
use crate::machine::Disrupted;

/// Hits in flight of one request in one counter.
#[derive(Clone, Debug)]
struct Hold {
    counter: usize,
    hits: u64,
    /// From then on the hits are not in flight, whether or not the end of the request has arrived.
    end: u64,
}

/// A request that was admitted and has not ended.
#[derive(Clone, Debug)]
struct InFlight {
    ticket: String,
    holds: Vec<Hold>,
    /// Number of counters that it was admitted to.
    counters: usize,
}

/// A request that waits.
#[derive(Clone, Debug)]
struct Waiting {
    number: u64,
    takes: Vec<(usize, u64)>,
    has_window: bool,
    arrived: u64,
    ends: u64,
    /// The counters that had no room for the request when it was last decided, or for which an earlier request waited.
    lines: Vec<usize>,
}

/// The content of a snapshot.
#[derive(Clone, Debug, Default)]
struct Counted {
    in_flight: Vec<InFlight>,
    in_window: u64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Expected {
    Admitted,
    Denied,
    Waits,
}

pub struct Oracle {
    limits: Limits,
    counted: Counted,
    saved: Counted,
    waiting: Vec<Waiting>,
    next: u64,
    pub now: u64,
}

impl Oracle {
    pub fn new(limits: Limits) -> Self {
        let counted = Counted::default();
        Self { limits, saved: counted.clone(), counted, waiting: Vec::new(), next: 0, now: 0 }
    }

    /// Hits in flight.
    fn used(&self, counter: usize) -> u64 {
        let holds = self.counted.in_flight.iter().flat_map(|request| &request.holds);
        holds.filter(|hold| hold.counter == counter && hold.end > self.now).map(|hold| hold.hits).sum()
    }

    pub fn remaining(&self, counter: usize) -> u64 {
        self.limits.of(counter).in_flight.saturating_sub(self.used(counter))
    }

    pub fn in_window(&self) -> u64 {
        self.counted.in_window
    }

    /// The counters for which the request has to wait: counters without room for it, or with an earlier request in their line.
    fn blocked(&self, takes: &[(usize, u64)], number: u64) -> Vec<usize> {
        let blocked = |&counter: &usize| {
            let hits = hits(takes, counter);
            let is_behind = |waiting: &Waiting| waiting.number < number && waiting.lines.contains(&counter);
            let has_line = self.limits.of(counter).wait > 0;
            hits > 0 && (hits > self.remaining(counter) || has_line && self.waiting.iter().any(is_behind))
        };
        (0..COUNTERS).filter(blocked).collect()
    }

    /// The time up to which a request waits for these counters; none if it is denied at once.
    fn until(&self, waiting: &Waiting, blocked: &[usize]) -> Option<u64> {
        let mut until = waiting.ends;
        for &counter in blocked {
            let limit = self.limits.of(counter);
            let hits_of = |other: &Waiting| {
                if other.lines.contains(&counter) { hits(&other.takes, counter) } else { 0 }
            };
            let others = self.waiting.iter().filter(|other| other.number != waiting.number);
            let hits = hits(&waiting.takes, counter);
            if hits > limit.in_flight || others.map(hits_of).sum::<u64>() + hits > limit.line {
                return None;
            }
            until = until.min(waiting.arrived + limit.wait);
        }
        (until > self.now).then_some(until)
    }

    /// Decides a new request. `ticket` is the ticket of the limiter under test, if it has admitted the request.
    pub fn arrive(
        &mut self,
        takes: &[(usize, u64)],
        has_window: bool,
        patience: u64,
        ticket: Option<&str>,
    ) -> Expected {
        self.next += 1;
        let (number, takes) = (self.next, takes.to_vec());
        let ends = self.now + patience;
        self.decide(Waiting { number, takes, has_window, arrived: self.now, ends, lines: Vec::new() }, ticket)
    }

    /// Decides once more the request that waits at this index.
    pub fn again(&mut self, index: usize, ticket: Option<&str>) -> Expected {
        let waiting = self.waiting[index].clone();
        let verdict = self.decide(waiting, ticket);
        if verdict != Expected::Waits {
            self.waiting.remove(index);
        }
        verdict
    }

    fn decide(&mut self, mut waiting: Waiting, ticket: Option<&str>) -> Expected {
        let blocked = self.blocked(&waiting.takes, waiting.number);
        if blocked.is_empty() {
            self.admit(&waiting, ticket.unwrap_or_default());
            return Expected::Admitted;
        }
        if self.until(&waiting, &blocked).is_none() {
            return Expected::Denied;
        }
        waiting.lines = blocked;
        match self.waiting.iter_mut().find(|other| other.number == waiting.number) {
            Some(former) => *former = waiting,
            None => self.waiting.push(waiting),
        }
        Expected::Waits
    }

    fn admit(&mut self, request: &Waiting, ticket: &str) {
        let counters = (0..COUNTERS).filter(|&counter| hits(&request.takes, counter) > 0);
        let hold = |counter| Hold {
            counter,
            hits: hits(&request.takes, counter),
            end: self.now + self.limits.of(counter).hold,
        };
        let holds: Vec<Hold> = counters.map(hold).collect();
        let (ticket, counters) = (ticket.to_owned(), holds.len());
        self.counted.in_window += u64::from(request.has_window);
        self.counted.in_flight.push(InFlight { ticket, holds, counters });
        for counter in 0..COUNTERS {
            let (used, most) = (self.used(counter), self.limits.of(counter).in_flight);
            assert!(used <= most || hits(&request.takes, counter) == 0, "{used} of {most} in flight");
        }
    }

    /// The request with this ticket ends, or this many of its hits do.
    pub fn end(&mut self, ticket: &str, part: Option<u64>) {
        for request in self.counted.in_flight.iter_mut().filter(|request| request.ticket == ticket) {
            request.holds.iter_mut().for_each(|hold| hold.hits -= part.unwrap_or(u64::MAX).min(hold.hits));
        }
        let now = self.now;
        self.counted.in_flight.retain_mut(|request| {
            request.holds.retain(|hold| hold.hits > 0 && hold.end > now);
            !request.holds.is_empty()
        });
    }

    /// The request with this ticket is renewed if all its hits are held; returns whether they are.
    pub fn renew(&mut self, ticket: &str, is_peek: bool) -> bool {
        let (now, limits) = (self.now, self.limits);
        let Some(request) = self.counted.in_flight.iter_mut().find(|request| request.ticket == ticket) else {
            return false;
        };
        let held = request.holds.iter().filter(|hold| hold.hits > 0 && hold.end > now).count();
        if held < request.counters {
            return false;
        }
        if !is_peek {
            request
                .holds
                .iter_mut()
                .for_each(|hold| hold.end = hold.end.max(now + limits.of(hold.counter).hold));
        }
        true
    }

    pub fn leave(&mut self, index: usize) {
        self.waiting.remove(index);
    }

    pub fn reset(&mut self, counter: usize) {
        let holds = self.counted.in_flight.iter_mut().map(|request| &mut request.holds);
        holds.for_each(|holds| holds.retain(|hold| hold.counter != counter));
    }

    pub fn change(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Number of requests that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Index of a request that waits although it would be admitted now, or has waited long enough in one of its lines.
    pub fn overdue(&self) -> Option<usize> {
        self.waiting.iter().position(|waiting| {
            let is_blocked = !self.blocked(&waiting.takes, waiting.number).is_empty();
            !is_blocked || self.until(waiting, &waiting.lines).is_none()
        })
    }
}

impl Disrupted for Oracle {
    fn save(&mut self, _: u64) {
        self.saved = self.counted.clone();
    }

    /// Waiting requests got no answer.
    fn restart(&mut self, _: u64) {
        self.counted = self.saved.clone();
        self.waiting.clear();
    }
}

/// The hits of a request in a counter.
fn hits(takes: &[(usize, u64)], counter: usize) -> u64 {
    takes.iter().filter(|(of, _)| *of == counter).map(|(_, hits)| hits).sum()
}
