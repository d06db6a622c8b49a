//! The processes of a server, one after the other: what each records, and what it can use of the former process.

use super::{
    super::{Before, Ceiling, Former, Quota, Record, RuleId, Settings},
    fault::Fault,
    world::{World, limiter},
};
use tidegate_core::limit::Timestamp;

/// What a process can use of the former process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Memory {
    /// Nothing.
    None,
    /// That the former process assigned at most a stated part.
    Stated,
    /// What the former process recorded.
    Record,
    /// What counters have, as each process stops in order.
    Counters,
    /// That the first process recorded nothing. Others record what they assign, and some of them stop in order.
    New,
}

impl Memory {
    pub(super) const ALL: [Self; 5] = [Self::None, Self::Stated, Self::Record, Self::Counters, Self::New];
}

/// What a process records.
pub(super) struct Recorder {
    record: Option<Record>,
    in_counters_from: Timestamp,
    /// Ceilings that are being recorded, and the time at which they are.
    writing: Option<(u64, Vec<(RuleId, Ceiling)>)>,
}

impl Recorder {
    /// The first process, which began at `began` after no other.
    pub(super) fn first(memory: Memory, began: Timestamp) -> (Self, Quota) {
        match memory {
            Memory::New => Self::begin(Memory::Stated, None, began),
            _ => Self::begin(memory, None, began),
        }
    }

    /// A process that begins after a process with this record.
    fn begin(memory: Memory, record: Option<Record>, began: Timestamp) -> (Self, Quota) {
        let (settings, unrecorded) = (Settings::default(), Before::Unrecorded);
        let quota = Quota::new(settings, began);
        let (record, former) = match memory {
            Memory::None => (None, Former::Unknown),
            Memory::Stated => (None, Former::Unrecorded),
            Memory::Record | Memory::Counters | Memory::New => {
                let (record, former) = Record::begin(record, unrecorded, &settings, began);
                (Some(record), former)
            }
        };
        let in_counters_from = former.in_counters_from(&settings, began);
        let ceilings = record.as_ref().map(|record| record.ceilings.clone());
        let quota = if memory == Memory::None { quota } else { quota.after(former, ceilings) };
        (Self { record, in_counters_from, writing: None }, quota)
    }
}

impl World {
    /// Ends the process. Another process begins after `down` nanoseconds.
    pub(super) fn restart(&mut self, down: u64) {
        let stops = match self.conditions.memory {
            Memory::New => self.rng.once_in(2),
            memory => memory == Memory::Counters,
        };
        let (stopped, in_counters_from) = (Timestamp::from_nanos(self.now), self.recorder.in_counters_from);
        let mut record = self.recorder.record.take();
        if let Some(record) = &mut record {
            record.is_stopped = stops && stopped >= in_counters_from;
            if self.conditions.fault == Some(Fault::ForgetsUnrecorded) {
                record.before_until = Timestamp::EPOCH;
            }
        }
        self.up_at = self.now + down;
        self.links.clear();
        for client in &mut self.clients {
            client.stream = None;
        }
        if !self.conditions.keeps_counters {
            self.limiter = limiter(&self.conditions.limit);
        }
        self.holders.restart(self.up_at);
        let began = match self.conditions.fault {
            Some(Fault::NoLearning) => 0,
            _ => self.up_at,
        };
        let began = Timestamp::from_nanos(began);
        (self.recorder, self.quota) = Recorder::begin(self.conditions.memory, record, began);
    }

    /// Writes ceilings that are to be recorded. Writing takes time.
    pub(super) fn record(&mut self, now: Timestamp) {
        let Recorder { record, writing, .. } = &mut self.recorder;
        if let Some((_, ceilings)) = writing.take_if(|(at, _)| *at <= self.now) {
            self.quota.note_recorded(&ceilings);
            record.iter_mut().for_each(|record| record.ceilings.clone_from(&ceilings));
        }
        if let Some(ceilings) = self.quota.take_record(now) {
            *writing = Some((self.now + self.rng.below(self.conditions.write_max), ceilings));
        }
    }
}
