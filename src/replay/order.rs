//! Events of several logs in the order of time.
//!
//! A log is almost in that order: the lines of one write are sorted, and a few lines of the next write may be older. Each log
//! is therefore sorted within a bounded number of lines, which bounds the memory.

use super::Event;
use crate::limit::Timestamp;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

/// Events of one log that are in memory to be sorted.
const SORTED_TOGETHER: usize = 8_192;

/// The events of all logs in the order of time. Of events at one time, those of one log stay in its order, and those of the
/// log that starts first precede. An error is returned as soon as it is read.
pub fn in_order_of_time<E>(
    logs: Vec<impl Iterator<Item = Result<Event, E>>>,
) -> impl Iterator<Item = Result<Event, E>> {
    Merge { logs: logs.into_iter().map(Sorted::new).collect(), heads: None }
}

/// One log, sorted within [`SORTED_TOGETHER`] events.
struct Sorted<I> {
    events: I,
    is_at_end: bool,
    /// In the order of time.
    sorted: VecDeque<Event>,
}

impl<E, I: Iterator<Item = Result<Event, E>>> Sorted<I> {
    fn new(events: I) -> Self {
        Self { events, is_at_end: false, sorted: VecDeque::new() }
    }

    fn next(&mut self) -> Result<Option<Event>, E> {
        while !self.is_at_end && self.sorted.len() < SORTED_TOGETHER {
            match self.events.next() {
                Some(event) => self.insert(event?),
                None => self.is_at_end = true,
            }
        }
        Ok(self.sorted.pop_front())
    }

    /// Inserts after the events that are not newer. Most events are the newest, and are appended.
    fn insert(&mut self, event: Event) {
        let before = self.sorted.iter().rposition(|other| other.time <= event.time);
        self.sorted.insert(before.map_or(0, |at| at + 1), event);
    }
}

struct Merge<I> {
    logs: Vec<Sorted<I>>,
    /// None until the first event of each log is read.
    heads: Option<Heads>,
}

/// The next event of each log that has one.
struct Heads {
    /// By log.
    events: Vec<Option<Event>>,
    /// The time of the first event of each log, by log: the log that starts first precedes.
    starts: Vec<Timestamp>,
    /// The time of each event, the start of its log, and the log.
    order: BinaryHeap<Reverse<(Timestamp, Timestamp, usize)>>,
}

impl Heads {
    fn put(&mut self, log: usize, event: Option<Event>) {
        if let Some(event) = &event {
            self.order.push(Reverse((event.time, self.starts[log], log)));
        }
        self.events[log] = event;
    }
}

impl<E, I: Iterator<Item = Result<Event, E>>> Merge<I> {
    fn first_heads(&mut self) -> Result<Heads, E> {
        let firsts = self.logs.iter_mut().map(Sorted::next).collect::<Result<Vec<_>, E>>()?;
        let time = |event: &Option<Event>| event.as_ref().map_or(Timestamp::EPOCH, |event| event.time);
        let mut heads = Heads {
            events: firsts.iter().map(|_| None).collect(),
            starts: firsts.iter().map(time).collect(),
            order: BinaryHeap::new(),
        };
        firsts.into_iter().enumerate().for_each(|(log, event)| heads.put(log, event));
        Ok(heads)
    }

    fn try_next(&mut self) -> Result<Option<Event>, E> {
        if self.heads.is_none() {
            self.heads = Some(self.first_heads()?);
        }
        let Some(heads) = &mut self.heads else { return Ok(None) };
        let Some(Reverse((_, _, log))) = heads.order.pop() else { return Ok(None) };
        let event = heads.events[log].take();
        let following = self.logs[log].next()?;
        heads.put(log, following);
        Ok(event)
    }
}

impl<E, I: Iterator<Item = Result<Event, E>>> Iterator for Merge<I> {
    type Item = Result<Event, E>;

    fn next(&mut self) -> Option<Self::Item> {
        self.try_next().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::tests::event;

    type Log = Vec<Result<Event, &'static str>>;

    fn log(times: &[u64], domain: &str) -> Log {
        times.iter().map(|&time| Ok(Event { domain: domain.into(), ..event(time, "user", "a") })).collect()
    }

    fn merged(logs: Vec<Log>) -> Vec<(u64, String)> {
        let logs = logs.into_iter().map(Vec::into_iter).collect();
        let events = in_order_of_time(logs).map(|event| event.expect("no error"));
        events.map(|event| (event.time.as_nanos(), event.domain.to_string())).collect()
    }

    #[test]
    fn logs_are_merged_by_time_and_the_lines_of_each_sorted() {
        let merged = merged(vec![log(&[3, 1, 2, 9], "a"), log(&[], "b"), log(&[4, 8], "c")]);
        let expected = [(1, "a"), (2, "a"), (3, "a"), (4, "c"), (8, "c"), (9, "a")];
        assert_eq!(merged, expected.map(|(time, domain)| (time, domain.to_owned())));
    }

    #[test]
    fn at_one_time_the_log_that_starts_first_precedes_whatever_the_order_of_the_arguments() {
        let merged = merged(vec![log(&[5, 6], "newer"), log(&[1, 5, 5], "older")]);
        let domains: Vec<&str> = merged.iter().map(|(_, domain)| &**domain).collect();
        assert_eq!(domains, ["older", "older", "older", "newer", "newer"]);
    }

    #[test]
    fn events_are_sorted_within_a_bounded_number_of_lines() {
        let mut times: Vec<u64> = (1..20_000).collect();
        times.insert(SORTED_TOGETHER - 1, 0);
        assert_eq!(merged(vec![log(&times, "a")])[0].0, 0);
        times.remove(SORTED_TOGETHER - 1);
        times.insert(SORTED_TOGETHER, 0);
        assert_eq!(merged(vec![log(&times, "a")])[1].0, 0, "after the first event, which had to be released");
    }

    #[test]
    fn an_error_ends_the_merge() {
        let mut first = log(&[1], "a");
        first.push(Err("unreadable"));
        let results: Vec<_> = in_order_of_time(vec![first.into_iter()]).take(1).collect();
        assert_eq!(results, [Err("unreadable")]);
    }
}
