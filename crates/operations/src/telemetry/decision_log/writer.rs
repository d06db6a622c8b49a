//! The thread of the log: makes lines of decisions and changes, in the order of their numbers, and writes them.

use super::{
    assignments,
    changes::{self, ResetRecord, RulesRecord, RulesText, WrittenTexts},
    line::{self, Run, Values},
    record::{self, Record},
    shared::Shared,
    sink::Sink,
};
use std::{
    io,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tidegate_core::{clock::Clock, limit::Timestamp, rules::Redaction};
use tidegate_service::AssignmentEvent;

/// Time between two writes.
const INTERVAL: Duration = Duration::from_millis(50);

/// Bytes of lines in one write.
const WRITE_BYTES: usize = 256 * 1024;

/// The state of the thread that writes.
pub(super) struct Writer {
    pub(super) shared: Arc<Shared>,
    pub(super) sink: Sink,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) values: Redaction,
    pub(super) salt: Vec<u8>,
    pub(super) rules_text: RulesText,
    pub(super) run: Run,
    /// Number of dropped decisions that the log contains.
    pub(super) dropped_stated: u64,
    /// The rules of the following lines. None before the first rules.
    pub(super) in_force: Option<RulesRecord>,
    /// Whether the target lacks the line of these rules: each file has it before its first decision.
    pub(super) needs_rules: bool,
    pub(super) written_texts: WrittenTexts,
    pub(super) failures: Failures,
}

/// Decides which failed writes appear in the server's log: at most one a minute. If a collector is down, all writes fail. If it accepts
/// only some lines, some writes do.
#[derive(Default)]
pub(super) struct Failures {
    stated: Option<Timestamp>,
    /// Whether the end of the logged failure is not logged yet.
    is_open: bool,
}

impl Failures {
    const INTERVAL: Duration = Duration::from_secs(60);

    /// Whether to log a failed write.
    fn begin(&mut self, now: Timestamp) -> bool {
        let is_due = self.stated.is_none_or(|stated| now.since(stated) >= Self::INTERVAL);
        if is_due {
            (self.stated, self.is_open) = (Some(now), true);
        }
        is_due
    }

    /// Whether to log a successful write.
    fn end(&mut self) -> bool {
        std::mem::take(&mut self.is_open)
    }
}

/// A line to write.
enum Item<'b> {
    Record(Record<'b>),
    Reset(ResetRecord),
    Assignment(AssignmentEvent),
}

impl Item<'_> {
    /// Decisions without a number, and assignments, are in the order of time.
    fn order(&self) -> (u64, u64) {
        match self {
            Self::Record(record) => (record.number, record.received),
            Self::Reset(record) => (record.number, record.time),
            Self::Assignment(event) => (0, event.sent.as_nanos()),
        }
    }
}

impl Writer {
    pub(super) fn run(mut self) {
        let mut taken = Vec::new();
        loop {
            // Read before the queue is taken, so that everything appended before the stop is written.
            let is_last = self.shared.stop.load(Ordering::Relaxed);
            if self.shared.reopen.swap(false, Ordering::Relaxed) {
                match self.sink.reopen() {
                    Ok(()) => tracing::info!("decision log opened again"),
                    Err(error) => {
                        tracing::error!(%error, "cannot open the decision log again; writing to the former file")
                    }
                }
            }
            self.shared.queue.take(&mut taken);
            // After the queue: the rules of each decision in it were announced before the decision.
            let announced = std::mem::take(&mut *self.shared.rules.lock());
            let resets = std::mem::take(&mut *self.shared.resets.lock());
            let is_idle = taken.is_empty();
            let changes = resets.into_iter().map(Item::Reset);
            let assignments = self.shared.assignments.take().into_iter().map(Item::Assignment);
            self.write(&taken, announced, changes.chain(assignments));
            if is_last {
                return;
            }
            if is_idle {
                std::thread::park_timeout(INTERVAL);
            }
        }
    }

    /// Writes rules that were put in force, then decisions, cancellations, resets and assignments in their order, and then the number of
    /// dropped lines.
    fn write<'b>(
        &mut self,
        taken: &'b [Vec<u8>],
        announced: Vec<RulesRecord>,
        others: impl Iterator<Item = Item<'b>>,
    ) {
        let dropped = self.shared.dropped();
        let mut lines = Vec::new();
        for rules in announced {
            (self.in_force, self.needs_rules) = (Some(rules), true);
            self.write_lines(&mut lines, &mut 0);
        }
        let records = taken.iter().flat_map(|bytes| record::decode_all(bytes)).map(Item::Record);
        let mut items: Vec<Item<'_>> = records.chain(others).collect();
        items.sort_by_key(Item::order);
        let rules = self.shared.limiter.get().map(|limiter| limiter.rules());
        let salt = std::mem::take(&mut self.salt);
        let values = Values { rules: rules.as_deref(), default: self.values, salt: &salt };
        let mut count = 0;
        for item in &items {
            match item {
                Item::Record(record) => {
                    match record.is_cancellation() {
                        true => changes::cancelled(record, &values, self.run, &mut lines),
                        false => line::decision(record, &values, self.run, &mut lines),
                    }
                    count += 1;
                }
                Item::Reset(record) => changes::reset(record, &values, self.run, &mut lines),
                Item::Assignment(event) => {
                    let of_log = (self.run, self.shared.sample.0);
                    assignments::assignment(event, &values, of_log, &mut lines);
                    count += 1;
                }
            }
            if lines.len() >= WRITE_BYTES {
                self.write_lines(&mut lines, &mut count);
            }
        }
        self.write_lines(&mut lines, &mut count);
        self.salt = salt;
        if dropped > self.dropped_stated {
            line::dropped(dropped - self.dropped_stated, self.clock.now().as_nanos(), &mut lines);
            if self.write_lines(&mut lines, &mut 0) {
                self.dropped_stated = dropped;
            }
        }
    }

    /// Writes complete lines, after the line of the rules if the target lacks it. False if the target does not accept them.
    fn write_lines(&mut self, lines: &mut Vec<u8>, count: &mut u64) -> bool {
        if lines.is_empty() && !self.needs_rules {
            return true;
        }
        let written = self.write_with_rules(lines);
        let counted = if written.is_ok() { &self.shared.written } else { &self.shared.failed };
        counted.fetch_add(std::mem::take(count), Ordering::Relaxed);
        lines.clear();
        match &written {
            Ok(()) if self.failures.end() => tracing::info!("the decision log is written again"),
            Ok(()) => {}
            Err(error) => {
                // The target may have accepted any part.
                self.needs_rules = self.in_force.is_some();
                self.written_texts.clear();
                if self.failures.begin(self.clock.now()) {
                    tracing::error!(%error, "cannot write the decision log; its lines are dropped and counted");
                }
            }
        }
        written.is_ok()
    }

    fn write_with_rules(&mut self, lines: &mut Vec<u8>) -> io::Result<()> {
        if self.sink.prepare(lines.len())? {
            self.needs_rules = self.in_force.is_some();
            self.written_texts.clear();
        }
        let mut rules_bytes = 0;
        if self.needs_rules {
            let mut with_rules = self.rules_line();
            rules_bytes = with_rules.len();
            with_rules.append(lines);
            *lines = with_rules;
        }
        self.sink.write(lines, rules_bytes)?;
        self.needs_rules = false;
        Ok(())
    }

    fn rules_line(&mut self) -> Vec<u8> {
        let mut line = Vec::new();
        if let (Some(rules), Some(limiter)) = (&self.in_force, self.shared.limiter.get()) {
            let in_force = limiter.rules();
            let values = Values { rules: Some(&in_force), default: self.values, salt: &self.salt };
            let how = (&**limiter, &values, self.rules_text);
            changes::rules(rules, how, self.run, &mut self.written_texts, &mut line);
        }
        line
    }
}
