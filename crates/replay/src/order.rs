//! The content of several logs in the order in which it was decided.
//!
//! Of one process that numbers its decisions, the order is that of the numbers; else it is that of time. A log is almost in its
//! order: the lines of one write are sorted, and a few lines of the next write may precede them. Each log is therefore sorted within
//! a bounded number of lines, which bounds the memory.

use super::{InLog, LoggedDecision, Place, Step};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};
use tidegate_core::limit::Timestamp;

/// Lines of one log that are in memory to be sorted.
const SORTED_TOGETHER: usize = 8_192;

/// The content of all logs in order. Of lines at one time, those of one log stay in its order, and those of the log that starts
/// first precede. An error is returned as soon as it is read.
pub fn in_order_of_time<T: InLog, E>(
    logs: Vec<impl Iterator<Item = Result<T, E>>>,
) -> impl Iterator<Item = Result<T, E>> {
    Merge { logs: logs.into_iter().map(SortedLog::new).collect(), heads: None }
}

/// Whether the first of two lines may precede the other.
fn may_precede(first: &impl InLog, second: &impl InLog) -> bool {
    match (first.place(), second.place()) {
        (Some(first), Some(second)) if first.run == second.run => first.number <= second.number,
        _ => first.time() <= second.time(),
    }
}

/// A log that is read line by line.
pub trait Log {
    /// Reason why it cannot be read on.
    type Error;

    /// Reads the next line; none at the end. `decision`, which has to be empty, is that of the line if the result is
    /// [`LogLine::Decision`].
    fn read<'s>(&'s mut self, decision: &mut LoggedDecision<'s>) -> Result<Option<LogLine>, Self::Error>;
}

/// A line of a log.
pub enum LogLine {
    /// A decision with the texts of the line.
    Decision,
    /// A step with its own texts.
    Step(Step),
    /// Nothing that can be repeated.
    Other,
}

/// A step of a log in its place in the order.
pub enum StepRef<'s, 'l> {
    /// A decision that is next when it is read.
    InPlace(&'s LoggedDecision<'l>),
    /// A step that was in memory until those before it were read.
    Kept(&'s Step),
}

/// Passes the steps of all logs to `apply`, in the order of [`in_order_of_time`]. Lines of a single log that are next when they are
/// read, which most are, are not copied.
pub fn apply_in_order<L: Log>(
    mut logs: Vec<L>,
    mut apply: impl FnMut(StepRef<'_, '_>) -> Result<(), L::Error>,
) -> Result<(), L::Error> {
    let [log] = &mut *logs else {
        let mut steps = in_order_of_time(logs.into_iter().map(Steps).collect());
        return steps.try_for_each(|step| apply(StepRef::Kept(&step?)));
    };
    let (mut sorted, mut is_at_end) = (Sorted::new(), false);
    loop {
        while !is_at_end && sorted.needs_more() {
            let mut decision = LoggedDecision::default();
            match log.read(&mut decision)? {
                None => is_at_end = true,
                Some(LogLine::Other) => {}
                Some(LogLine::Step(step)) => sorted.insert(step),
                Some(LogLine::Decision) if sorted.is_next(&decision) => {
                    sorted.last = decision.place;
                    apply(StepRef::InPlace(&decision))?;
                }
                Some(LogLine::Decision) => sorted.insert(Step::Decision(decision.to_event())),
            }
        }
        let Some(step) = sorted.take() else { return Ok(()) };
        apply(StepRef::Kept(&step))?;
    }
}

/// The steps of a log.
struct Steps<L>(L);

impl<L: Log> Iterator for Steps<L> {
    type Item = Result<Step, L::Error>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let mut decision = LoggedDecision::default();
            return match self.0.read(&mut decision) {
                Ok(Some(LogLine::Other)) => continue,
                Ok(Some(LogLine::Decision)) => Some(Ok(Step::Decision(decision.to_event()))),
                Ok(Some(LogLine::Step(step))) => Some(Ok(step)),
                Ok(None) => None,
                Err(error) => Some(Err(error)),
            };
        }
    }
}

/// Lines of one log in order, at most [`SORTED_TOGETHER`].
struct Sorted<T> {
    lines: VecDeque<T>,
    /// The place of the last line that was taken.
    last: Option<Place>,
}

impl<T: InLog> Sorted<T> {
    fn new() -> Self {
        Self { lines: VecDeque::new(), last: None }
    }

    /// Whether lines that are not read yet may precede the first.
    fn needs_more(&self) -> bool {
        // In a log without gaps, few lines are in memory, which stay in the cache.
        self.lines.len() < SORTED_TOGETHER
            && !self.lines.front().is_some_and(|first| self.has_next_number(first))
    }

    /// Whether the line has the number after the last one: then none that is not read yet precedes it.
    fn has_next_number(&self, line: &impl InLog) -> bool {
        let first = line.place();
        first
            .zip(self.last)
            .is_some_and(|(first, last)| first.run == last.run && first.number == last.number.wrapping_add(1))
    }

    /// Whether [`Self::take`] would return the line if it was inserted.
    fn is_next(&self, line: &impl InLog) -> bool {
        self.has_next_number(line) && !self.lines.iter().any(|other| may_precede(other, line))
    }

    /// Inserts after the lines that may precede. Most lines are the last, and are appended.
    fn insert(&mut self, line: T) {
        let before = self.lines.iter().rposition(|other| may_precede(other, &line));
        self.lines.insert(before.map_or(0, |at| at + 1), line);
    }

    fn take(&mut self) -> Option<T> {
        let next = self.lines.pop_front();
        self.last = next.as_ref().and_then(InLog::place).or(self.last);
        next
    }
}

/// One log with its lines in order.
struct SortedLog<T, I> {
    lines: I,
    is_at_end: bool,
    sorted: Sorted<T>,
}

impl<T: InLog, E, I: Iterator<Item = Result<T, E>>> SortedLog<T, I> {
    fn new(lines: I) -> Self {
        Self { lines, is_at_end: false, sorted: Sorted::new() }
    }

    fn next(&mut self) -> Result<Option<T>, E> {
        while !self.is_at_end && self.sorted.needs_more() {
            match self.lines.next() {
                Some(line) => self.sorted.insert(line?),
                None => self.is_at_end = true,
            }
        }
        Ok(self.sorted.take())
    }
}

struct Merge<T, I> {
    logs: Vec<SortedLog<T, I>>,
    /// None until the first line of each log is read.
    heads: Option<Heads<T>>,
}

/// The next line of each log that has one.
struct Heads<T> {
    /// By log.
    lines: Vec<Option<T>>,
    /// The time of the first line of each log, by log: the log that starts first precedes.
    starts: Vec<Timestamp>,
    /// Each has at least one log, but between [`Self::take`] and [`Self::put`].
    groups: Vec<Group>,
}

/// The logs whose next line was numbered by one process, or by none.
struct Group {
    run: Option<u64>,
    /// The number of the line, or its time, the start of its log, and the log.
    order: BinaryHeap<Reverse<(u64, Timestamp, usize)>>,
}

impl<T: InLog> Heads<T> {
    fn put(&mut self, log: usize, line: Option<T>) {
        if let Some(line) = &line {
            let place = line.place();
            let (run, order) = match place {
                Some(place) => (Some(place.run), place.number),
                None => (None, line.time().as_nanos()),
            };
            let group = self.groups.iter().position(|group| group.run == run).unwrap_or_else(|| {
                self.groups.push(Group { run, order: BinaryHeap::new() });
                self.groups.len() - 1
            });
            self.groups[group].order.push(Reverse((order, self.starts[log], log)));
        }
        // Not before, so that the group of the last line is kept for the next.
        self.groups.retain(|group| !group.order.is_empty());
        self.lines[log] = line;
    }

    /// The next line, with its log: the first of the group whose first line has the least time.
    fn take(&mut self) -> Option<(usize, T)> {
        let first = |group: &Group| {
            let Reverse((_, start, log)) = group.order.peek()?;
            Some((self.lines[*log].as_ref()?.time(), *start, *log))
        };
        let index = match &*self.groups {
            [_] => 0,
            groups => (0..groups.len()).min_by_key(|index| first(&groups[*index]))?,
        };
        let Reverse((_, _, log)) = self.groups.get_mut(index)?.order.pop()?;
        Some((log, self.lines[log].take()?))
    }
}

impl<T: InLog, E, I: Iterator<Item = Result<T, E>>> Merge<T, I> {
    fn first_heads(&mut self) -> Result<Heads<T>, E> {
        let firsts = self.logs.iter_mut().map(SortedLog::next).collect::<Result<Vec<_>, E>>()?;
        let time = |line: &Option<T>| line.as_ref().map_or(Timestamp::EPOCH, InLog::time);
        let mut heads = Heads {
            lines: firsts.iter().map(|_| None).collect(),
            starts: firsts.iter().map(time).collect(),
            groups: Vec::new(),
        };
        firsts.into_iter().enumerate().for_each(|(log, line)| heads.put(log, line));
        Ok(heads)
    }

    fn try_next(&mut self) -> Result<Option<T>, E> {
        if self.heads.is_none() {
            self.heads = Some(self.first_heads()?);
        }
        let Some(heads) = &mut self.heads else { return Ok(None) };
        let Some((log, line)) = heads.take() else { return Ok(None) };
        let following = self.logs[log].next()?;
        heads.put(log, following);
        Ok(Some(line))
    }
}

impl<T: InLog, E, I: Iterator<Item = Result<T, E>>> Iterator for Merge<T, I> {
    type Item = Result<T, E>;

    fn next(&mut self) -> Option<Self::Item> {
        self.try_next().transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, tests::event};

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
    fn lines_after_a_gap_are_kept_to_be_sorted_and_lines_without_gaps_are_not() {
        // Two neighbours of each ten are exchanged, and one number is missing.
        let numbers = (1..40_000_u64).map(|number| match number % 10 {
            3 => number + 1,
            4 => number - 1,
            _ => number,
        });
        let numbered = |number: u64| {
            let place = Some(Place { run: 1, number, generation: 1 });
            Ok::<_, &str>(Event { place, ..event(1_000, "user", "a") })
        };
        let numbers = numbers.filter(|number| *number != 30_000);
        let mut sorted = SortedLog::new(numbers.map(numbered));
        let (mut last, mut kept) = (0, [0; 40_000]);
        while let Some(event) = sorted.next().unwrap() {
            let number = event.place.expect("a number").number;
            assert!(number > last, "{number} after {last}");
            (last, kept[number as usize]) = (number, sorted.sorted.lines.len());
        }
        // The first line may have any number.
        assert_eq!((kept[1], last), (SORTED_TOGETHER - 1, 39_999));
        assert_eq!(kept[SORTED_TOGETHER + 1..30_000].iter().max(), Some(&1));
        assert!(kept[30_001] == SORTED_TOGETHER - 1 && kept[39_000] <= 1, "{}", kept[30_001]);
    }

    #[test]
    fn an_error_ends_the_merge() {
        let mut first = log(&[1], "a");
        first.push(Err("unreadable"));
        let results: Vec<_> = in_order_of_time(vec![first.into_iter()]).take(1).collect();
        assert_eq!(results, [Err("unreadable")]);
    }

    /// Two threads take their numbers and their times in different orders, and write to different files.
    #[test]
    fn lines_of_one_process_are_in_the_order_of_its_numbers_whatever_their_times_and_files() {
        let of_run = |run: u64, places: &[(u64, u64)]| -> Log {
            let numbered = |&(number, time): &(u64, u64)| {
                let place = Some(Place { run, number, generation: 1 });
                Ok(Event { place, domain: format!("{run}-{number}").into(), ..event(time, "user", "a") })
            };
            places.iter().map(numbered).collect()
        };
        let (first, second) = (of_run(1, &[(2, 11), (1, 12), (4, 20)]), of_run(1, &[(3, 9), (5, 19)]));
        let other = of_run(2, &[(1, 15), (2, 14), (3, 30)]);
        let order: Vec<String> =
            merged(vec![second, other, first]).into_iter().map(|(_, name)| name).collect();
        assert_eq!(order, ["1-1", "1-2", "1-3", "2-1", "2-2", "1-4", "1-5", "2-3"]);
    }
}
