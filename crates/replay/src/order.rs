//! The content of several logs in the order of the decisions.
//!
//! The order is that of the numbers if a process numbers its decisions, and otherwise that of time. A log is almost in order: the lines of
//! one write are sorted, and a few lines of the next write may precede them. Each log is therefore sorted within a bounded number of lines,
//! which bounds the memory.

use super::{LoggedDecision, LoggedRulesError, Place, Step};
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};
use tidegate_core::limit::Timestamp;

/// The most lines of one log that are in memory for sorting.
const SORTED_TOGETHER: usize = 8_192;

/// The place of a line, and its time.
type InLog = (Option<Place>, Timestamp);

/// Whether the first of two lines may precede the other.
fn may_precede(first: InLog, second: InLog) -> bool {
    match (first.0, second.0) {
        (Some(first), Some(second)) if first.run == second.run => first.number <= second.number,
        _ => first.1 <= second.1,
    }
}

/// A log that is read line by line.
pub trait Log {
    /// Error of a log that cannot be read further.
    type Error;

    /// Reads the next line; none at the end. If the result is [`LogLine::Decision`], the decision is in `decision`, which has to be empty
    /// before.
    fn read<'s>(&'s mut self, decision: &mut LoggedDecision<'s>) -> Result<Option<LogLine>, Self::Error>;
}

/// A line of a log.
pub enum LogLine {
    /// A decision with the texts of the line.
    Decision,
    /// A step with its own texts.
    Step(Step),
    /// A line that cannot be repeated.
    Other,
}

/// A log of steps in memory.
pub struct Steps<I>(pub I);

impl<I: Iterator<Item = Step>> Log for Steps<I> {
    type Error = LoggedRulesError;

    fn read<'s>(&'s mut self, _: &mut LoggedDecision<'s>) -> Result<Option<LogLine>, LoggedRulesError> {
        Ok(self.0.next().map(LogLine::Step))
    }
}

/// A step of a log, in the order of all steps.
pub enum StepRef<'s, 'l> {
    /// A decision that is next when it is read.
    InPlace(&'s LoggedDecision<'l>),
    /// A step that was kept in memory until the steps before it were read.
    Kept(&'s Step),
}

/// Passes the steps of all logs to `apply`, in their order. If several steps have one time, steps of one log stay in the order of the log,
/// and the log that starts first precedes. An error is returned as soon as it is read. With a single log, most lines are next when they are
/// read, and are not copied.
pub fn apply_in_order<L: Log>(
    logs: Vec<L>,
    mut apply: impl FnMut(StepRef<'_, '_>) -> Result<(), L::Error>,
) -> Result<(), L::Error> {
    let mut logs: Vec<SortedLog<L>> = logs.into_iter().map(SortedLog::new).collect();
    if let [log] = &mut *logs {
        while let Some(step) = log.next(true, &mut apply)? {
            apply(StepRef::Kept(&step))?;
        }
        return Ok(());
    }
    for log in &mut logs {
        log.head = log.next(false, &mut apply)?;
        log.start = log.head.as_ref().map_or(Timestamp::EPOCH, Step::time);
    }
    let mut heads = Heads::default();
    (0..logs.len()).for_each(|log| heads.put(log, &logs));
    while let Some(log) = heads.take(&logs) {
        let following = logs[log].next(false, &mut apply)?;
        if let Some(step) = std::mem::replace(&mut logs[log].head, following) {
            apply(StepRef::Kept(&step))?;
        }
        heads.put(log, &logs);
    }
    Ok(())
}

/// Lines of one log in order, at most [`SORTED_TOGETHER`].
#[derive(Default)]
struct Sorted {
    lines: VecDeque<Step>,
    /// The place of the last line that was taken.
    last: Option<Place>,
}

impl Sorted {
    /// Whether lines that are not read yet may precede the first.
    fn needs_more(&self) -> bool {
        // In a log without gaps, few lines are then in memory, and these stay in the cache.
        self.lines.len() < SORTED_TOGETHER
            && !self.lines.front().is_some_and(|first| self.has_next_number(first.place()))
    }

    /// Whether a line at this place has the number after the last one. No line that is not read yet precedes such a line.
    fn has_next_number(&self, place: Option<Place>) -> bool {
        place
            .zip(self.last)
            .is_some_and(|(first, last)| first.run == last.run && first.number == last.number.wrapping_add(1))
    }

    /// Whether [`Self::take`] would return the line if it were inserted.
    fn is_next(&self, line: InLog) -> bool {
        self.has_next_number(line.0) && !self.lines.iter().any(|other| may_precede(other.in_log(), line))
    }

    /// Inserts the line after all lines that may precede it. Most lines are the last, and are appended.
    fn insert(&mut self, line: Step) {
        let before = self.lines.iter().rposition(|other| may_precede(other.in_log(), line.in_log()));
        self.lines.insert(before.map_or(0, |at| at + 1), line);
    }

    fn take(&mut self) -> Option<Step> {
        let next = self.lines.pop_front();
        self.last = next.as_ref().and_then(Step::place).or(self.last);
        next
    }
}

/// One log with its lines in order.
struct SortedLog<L> {
    log: L,
    is_at_end: bool,
    sorted: Sorted,
    /// The next line, if there are several logs.
    head: Option<Step>,
    /// The time of the first line.
    start: Timestamp,
}

impl<L: Log> SortedLog<L> {
    fn new(log: L) -> Self {
        Self { log, is_at_end: false, sorted: Sorted::default(), head: None, start: Timestamp::EPOCH }
    }

    /// The next line. If there is only this log, `apply` gets each line before it that is next when it is read.
    fn next(
        &mut self,
        is_alone: bool,
        apply: &mut impl FnMut(StepRef<'_, '_>) -> Result<(), L::Error>,
    ) -> Result<Option<Step>, L::Error> {
        while !self.is_at_end && self.sorted.needs_more() {
            let mut decision = LoggedDecision::default();
            match self.log.read(&mut decision)? {
                None => self.is_at_end = true,
                Some(LogLine::Other) => {}
                Some(LogLine::Step(step)) => self.sorted.insert(step),
                Some(LogLine::Decision)
                    if is_alone && self.sorted.is_next((decision.place, decision.time)) =>
                {
                    self.sorted.last = decision.place;
                    apply(StepRef::InPlace(&decision))?;
                }
                Some(LogLine::Decision) => self.sorted.insert(Step::Decision(decision.to_event())),
            }
        }
        Ok(self.sorted.take())
    }
}

/// The logs that have a next line, in groups by the process that numbered the line. Lines without a number are one group. Each group has at
/// least one log, except between [`Self::take`] and [`Self::put`].
#[derive(Default)]
struct Heads(Vec<Group>);

struct Group {
    run: Option<u64>,
    /// The number of the line (or its time), the start of its log, and the log.
    order: BinaryHeap<Reverse<(u64, Timestamp, usize)>>,
}

impl Heads {
    fn put<L>(&mut self, log: usize, logs: &[SortedLog<L>]) {
        if let Some(line) = &logs[log].head {
            let (run, order) = match line.place() {
                Some(place) => (Some(place.run), place.number),
                None => (None, line.time().as_nanos()),
            };
            let group = self.0.iter().position(|group| group.run == run).unwrap_or_else(|| {
                self.0.push(Group { run, order: BinaryHeap::new() });
                self.0.len() - 1
            });
            self.0[group].order.push(Reverse((order, logs[log].start, log)));
        }
        // Not earlier, so that the group of the last line is kept for the next line.
        self.0.retain(|group| !group.order.is_empty());
    }

    /// The log with the next line: the first log of the group whose first line has the earliest time.
    fn take<L>(&mut self, logs: &[SortedLog<L>]) -> Option<usize> {
        let first = |group: &Group| {
            let Reverse((_, start, log)) = *group.order.peek()?;
            Some((logs[log].head.as_ref()?.time(), start, log))
        };
        let index = match &*self.0 {
            [_] => 0,
            groups => (0..groups.len()).min_by_key(|index| first(&groups[*index]))?,
        };
        self.0.get_mut(index)?.order.pop().map(|Reverse((_, _, log))| log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Event, tests::event};

    /// A log in memory. The last line is first.
    struct Lines(Vec<Event>);

    impl Log for Lines {
        type Error = &'static str;

        /// A line without a domain is an error.
        fn read<'s>(&'s mut self, _: &mut LoggedDecision<'s>) -> Result<Option<LogLine>, &'static str> {
            let Some(event) = self.0.pop() else { return Ok(None) };
            if event.domain.is_empty() {
                Err("unreadable")
            } else {
                Ok(Some(LogLine::Step(Step::Decision(event))))
            }
        }
    }

    fn log(times: &[u64], domain: &str) -> Vec<Event> {
        times.iter().map(|&time| Event { domain: domain.into(), ..event(time, "user", "a") }).collect()
    }

    fn lines(events: impl IntoIterator<Item = Event>) -> Lines {
        let mut lines: Vec<Event> = events.into_iter().collect();
        lines.reverse();
        Lines(lines)
    }

    fn merged(logs: Vec<Vec<Event>>) -> Vec<(u64, String)> {
        let mut merged = Vec::new();
        let applied = apply_in_order(logs.into_iter().map(lines).collect(), |step| {
            let StepRef::Kept(Step::Decision(event)) = step else { panic!("a decision of its own") };
            merged.push((event.time.as_nanos(), event.domain.to_string()));
            Ok(())
        });
        applied.expect("no error");
        merged
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
        // In each ten lines, two neighbours are exchanged and one number is missing.
        let numbers = (1..40_000_u64).map(|number| match number % 10 {
            3 => number + 1,
            4 => number - 1,
            _ => number,
        });
        let numbered = |number: u64| {
            let place = Some(Place { run: 1, number, generation: 1 });
            Event { place, ..event(1_000, "user", "a") }
        };
        let numbers = numbers.filter(|number| *number != 30_000);
        let mut sorted = SortedLog::new(lines(numbers.map(numbered)));
        let (mut last, mut kept) = (0, [0; 40_000]);
        while let Some(step) = sorted.next(false, &mut |_| Ok(())).unwrap() {
            let number = step.place().expect("a number").number;
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
        let first = [log(&[1], "a"), log(&[2], "")].concat();
        for logs in [vec![lines(first.clone())], vec![lines(first), lines(log(&[3], "b"))]] {
            assert_eq!(apply_in_order(logs, |_| Ok(())), Err("unreadable"));
        }
    }

    /// Two threads take their numbers and their times in different orders, and write to different files.
    #[test]
    fn lines_of_one_process_are_in_the_order_of_its_numbers_whatever_their_times_and_files() {
        let of_run = |run: u64, places: &[(u64, u64)]| -> Vec<Event> {
            let numbered = |&(number, time): &(u64, u64)| {
                let place = Some(Place { run, number, generation: 1 });
                Event { place, domain: format!("{run}-{number}").into(), ..event(time, "user", "a") }
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
