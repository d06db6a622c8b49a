//! Notes that limit the meaning of a report.

use super::{LineContent, Report, Step};
use std::fmt;

/// Number of bad lines whose place and reason are kept.
const BAD_LINES_SHOWN: usize = 5;

/// Lines of all logs that are not decisions.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LineCounts {
    /// Lines that cannot be read.
    pub bad: u64,
    /// The first bad lines: `file:line: reason`.
    pub first_bad: Vec<String>,
    /// Decisions without a value that the rules of the server omit.
    pub omitted: u64,
    /// Decisions that are missing, as the log itself reports.
    pub dropped: u64,
    /// Assignments of quotas.
    pub assignments: u64,
    /// Requests of access logs to which no descriptor applies.
    pub without_descriptors: u64,
}

impl LineCounts {
    /// Counts a line that cannot be read.
    pub fn add_bad(&mut self, log: &str, line: u64, reason: impl fmt::Display) {
        self.bad += 1;
        if self.first_bad.len() < BAD_LINES_SHOWN {
            self.first_bad.push(format!("{log}:{line}: {reason}"));
        }
    }

    /// The step of a line. Other lines are counted, and return none.
    pub fn step_of(&mut self, content: LineContent) -> Option<Step> {
        match content {
            LineContent::Step(step) => return Some(step),
            LineContent::WithoutDescriptors => self.without_descriptors += 1,
            LineContent::Omitted => self.omitted += 1,
            LineContent::Assignment => self.assignments += 1,
            LineContent::Dropped(count) => self.dropped = self.dropped.saturating_add(count),
        }
        None
    }
}

impl LineCounts {
    /// Reasons why a report on `requests` requests may not represent the log.
    pub fn warnings(&self, requests: u64) -> Vec<String> {
        let Self { bad, without_descriptors, .. } = self;
        let all = [
            (*bad > requests, format!("most lines could not be read: {bad}, and {requests} could")),
            (
                *without_descriptors > requests,
                format!(
                    "no descriptor applies to most requests: {without_descriptors}, and one does to {requests}"
                ),
            ),
        ];
        all.into_iter().filter(|(applies, _)| *applies).map(|(_, warning)| warning).collect()
    }
}

impl Report {
    /// The notes on this report. `no_room` is the number of counters for which a full store had no room.
    pub fn notes(&self, counts: &LineCounts, no_room: usize) -> Vec<String> {
        let (samples, with_hashes, out_of_order) = (self.samples, self.with_hashes, self.out_of_order);
        let LineCounts { bad, omitted, dropped, assignments, without_descriptors, .. } = counts;
        let all = [
            (*bad > 0, format!("{bad} lines could not be read")),
            (*dropped > 0, format!("the server dropped {dropped} decisions, which are not in the log")),
            (
                *assignments > 0,
                format!(
                    "{assignments} assignments to clients that decide by themselves (RLQS) were not replayed: the counters lack what they \
                     had and admitted"
                ),
            ),
            (*omitted > 0, format!("{omitted} decisions lack an omitted value and were not replayed")),
            (
                *without_descriptors > 0,
                format!("no descriptor applies to {without_descriptors} requests, which were not replayed"),
            ),
            (
                with_hashes > 0,
                format!("{with_hashes} requests have hashes of values, which match no rule for a particular value"),
            ),
            (
                out_of_order > 0,
                format!("{out_of_order} requests are older than one before them, and were decided too late"),
            ),
            (
                samples.least < 1.0,
                format!(
                    "the log is a sample (shares from {} to {}): counters of several clients have fewer hits than they had",
                    samples.least, samples.greatest
                ),
            ),
            (
                samples.least != samples.greatest,
                "denials and admissions have different shares: some clients have denials only, so admissions are too many"
                    .into(),
            ),
            (no_room > 0, format!("{no_room} counters had no room: the bound on counters is too low")),
        ];
        all.into_iter().filter(|(applies, _)| *applies).map(|(_, note)| note).collect()
    }
}
