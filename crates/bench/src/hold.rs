//! Requests that are held: each admitted request with a ticket is held for a while, and then ended by a separate call.

use crate::{keys::Random, message, outcome::Outcome, ticket::ReceivedTicket};
use std::{cmp::Reverse, collections::BinaryHeap, str::FromStr, time::Duration};

/// The range of times for which requests are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldTimes {
    min: Duration,
    max: Duration,
}

impl FromStr for HoldTimes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let time = |text: &str| humantime::parse_duration(text).map_err(|error| error.to_string());
        let (min, max) = text.split_once("..").unwrap_or((text, text));
        let times = Self { min: time(min)?, max: time(max)? };
        if times.min > times.max {
            return Err(format!("{min} is longer than {max}; write the shorter time first"));
        }
        Ok(times)
    }
}

impl std::fmt::Display for HoldTimes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", humantime::format_duration(self.min))?;
        if self.min < self.max {
            write!(f, " to {}", humantime::format_duration(self.max))?;
        }
        Ok(())
    }
}

/// The requests that are held, and their ends.
#[derive(Clone, Debug)]
pub struct HoldPlan {
    /// For how long.
    pub times: HoldTimes,
    /// The domain of the requests.
    pub domain: String,
    /// Their actual cost. If there is none, their estimates stay.
    pub cost: Option<u64>,
}

/// Figures of a run that holds requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct HoldFigures {
    /// Ends with a response.
    pub ended: u64,
    /// Ends without a response. The server itself ends these requests after `max_hold`.
    pub lost: u64,
    /// The most requests held at once.
    pub most: u64,
}

/// A held request, ordered by its end.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    until: u64,
    /// The connection on which it was sent.
    position: usize,
    /// The message of its end, with its gRPC prefix.
    end: Vec<u8>,
}

/// The held requests.
pub(crate) struct Holds {
    plan: HoldPlan,
    held: BinaryHeap<Reverse<Held>>,
    /// Number of held requests by connection.
    by_position: Vec<usize>,
    /// Number of ends that were sent and have no response yet.
    pub(crate) ending: u64,
    pub(crate) figures: HoldFigures,
}

impl Holds {
    pub(crate) fn new(plan: HoldPlan, connections: usize) -> Self {
        Self {
            plan,
            held: BinaryHeap::new(),
            by_position: vec![0; connections],
            ending: 0,
            figures: HoldFigures::default(),
        }
    }

    /// Holds an admitted request of a connection from now on.
    pub(crate) fn add(&mut self, ticket: ReceivedTicket, position: usize, now: u64, random: &mut Random) {
        let (min, max) = (nanos(self.plan.times.min), nanos(self.plan.times.max));
        let until = now.saturating_add(min).saturating_add(random.below((max - min).saturating_add(1)));
        let end = message::end(&ticket, &self.plan.domain, self.plan.cost);
        self.held.push(Reverse(Held { until, position, end }));
        self.by_position[position] += 1;
        self.figures.most = self.figures.most.max(self.held.len() as u64);
    }

    /// Number of requests of a connection that are held.
    pub(crate) fn of(&self, position: usize) -> usize {
        self.by_position[position]
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Time of the next end.
    pub(crate) fn next_end(&self) -> Option<u64> {
        self.held.peek().map(|Reverse(held)| held.until)
    }

    /// The next request that ends by `now`: its connection, and the message of its end.
    pub(crate) fn pop(&mut self, now: u64) -> Option<(usize, Vec<u8>)> {
        if self.next_end()? > now {
            return None;
        }
        let Reverse(Held { position, end, .. }) = self.held.pop()?;
        self.by_position[position] -= 1;
        Some((position, end))
    }

    /// Puts back a request whose end could not be sent yet.
    pub(crate) fn put_back(&mut self, position: usize, end: Vec<u8>, until: u64) {
        self.held.push(Reverse(Held { until, position, end }));
        self.by_position[position] += 1;
    }

    /// Ends all held requests now.
    pub(crate) fn end_all(&mut self) {
        let held = std::mem::take(&mut self.held);
        self.held = held.into_iter().map(|Reverse(held)| Reverse(Held { until: 0, ..held })).collect();
    }

    /// Drops all held requests, since no connection is left.
    pub(crate) fn lose_all(&mut self) {
        self.figures.lost += self.held.len() as u64;
        self.held.clear();
        self.by_position.fill(0);
    }

    /// Counts ends that will have no response.
    pub(crate) fn lose_ends(&mut self, count: u64) {
        self.ending -= count;
        self.figures.lost += count;
    }

    /// Counts the response to an end.
    pub(crate) fn record_end(&mut self, outcome: Outcome) {
        self.ending -= 1;
        match outcome {
            Outcome::Ok => self.figures.ended += 1,
            Outcome::OverLimit | Outcome::Failed(_) => self.figures.lost += 1,
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holds(times: &str) -> Holds {
        let times = times.parse().expect("good times");
        Holds::new(HoldPlan { times, domain: "edge".to_owned(), cost: None }, 2)
    }

    fn ticket() -> ReceivedTicket {
        ReceivedTicket { slot: "slot-1".to_owned(), cost: 1 }
    }

    #[test]
    fn times_are_one_or_a_range() {
        let shown = |text: &str| text.parse::<HoldTimes>().map(|times| times.to_string());
        assert_eq!(shown("5ms").as_deref(), Ok("5ms"));
        assert_eq!(shown("5ms..2s").as_deref(), Ok("5ms to 2s"));
        assert!(shown("2s..5ms").is_err_and(|error| error.contains("shorter time first")));
        assert!(shown("..5ms").is_err() && shown("5").is_err());
    }

    #[test]
    fn requests_are_held_within_the_range_and_end_in_the_order_of_their_ends() {
        let (mut holds, mut random) = (holds("10ns..20ns"), Random::from_seed(1));
        (0..100).for_each(|_| holds.add(ticket(), 1, 1_000, &mut random));
        assert_eq!((holds.of(0), holds.of(1), holds.figures.most), (0, 100, 100));
        assert!(holds.pop(1_009).is_none());
        let mut ends: Vec<u64> = Vec::new();
        while let Some(end) = holds.next_end() {
            assert!(holds.pop(end - 1).is_none());
            assert_eq!(holds.pop(end).expect("it is due").0, 1);
            ends.push(end);
        }
        assert!(ends.is_sorted() && ends[0] == 1_010 && ends[99] == 1_020, "{ends:?}");
        assert!(holds.is_empty() && holds.of(1) == 0);
    }

    #[test]
    fn all_end_at_once() {
        let (mut holds, mut random) = (holds("1h"), Random::from_seed(1));
        (0..3).for_each(|position| holds.add(ticket(), position % 2, 5, &mut random));
        holds.end_all();
        assert_eq!(std::iter::from_fn(|| holds.pop(0)).count(), 3);
    }
}
