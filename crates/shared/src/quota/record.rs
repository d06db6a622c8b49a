//! The record of a process. It shows the next process what may be in force of its assignments. Pure: it is stored elsewhere.

use super::{Ceiling, Former, Quota, RuleId, Settings, bucket::Bucket, ceilings::Ceilings};
use tidegate_core::limit::Timestamp;

/// The record of a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    /// Whether the process stopped in order, so that the counters have all that it had assigned.
    pub is_stopped: bool,
    /// What the last process without a record may have assigned.
    pub before: Before,
    /// Time until which `before` may be in force.
    pub before_until: Timestamp,
    /// The most that clients are assigned together of limits, by rule.
    pub ceilings: Vec<(RuleId, Ceiling)>,
}

/// What a process without a record may have assigned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before {
    /// All of each limit.
    Unknown,
    /// No more than a process without records assigns: see [`Former::Unrecorded`].
    Unrecorded,
}

impl Record {
    /// The record with which a process begins, and what the record of the former process shows. `before` is what processes may have
    /// assigned if there is no record.
    pub fn begin(
        former: Option<Self>,
        before: Before,
        settings: &Settings,
        now: Timestamp,
    ) -> (Self, Former) {
        let Some(record) = former else {
            let before_until = settings.learned(now);
            let former = match before {
                Before::Unknown => Former::Unknown,
                Before::Unrecorded => Former::Unrecorded,
            };
            return (Self { is_stopped: false, before, before_until, ceilings: Vec::new() }, former);
        };
        let parts = || record.ceilings.iter().copied().collect();
        // No longer than that: what later processes assigned is recorded.
        let former = match record.before {
            Before::Unknown if now < record.before_until => Former::Unknown,
            Before::Unrecorded if now < record.before_until => Former::RecordedOrUnrecorded(parts()),
            _ if record.is_stopped => Former::InCounters,
            _ => Former::Recorded(parts()),
        };
        (Self { is_stopped: false, ..record }, former)
    }
}

impl Quota {
    /// Sets what is known of the former process. With `record`, the recorded ceilings, this process records what it assigns. Without it,
    /// this process assigns no more than the rules state.
    pub fn after(self, former: Former, record: Option<Vec<(RuleId, Ceiling)>>) -> Self {
        let ceilings = match record {
            None => Ceilings::Unrecorded,
            Some(parts) => Ceilings::recorded(parts, self.looked),
        };
        Self { former, ceilings, ..self }
    }

    /// The ceilings by rule, if they are to be recorded. They are in force once [`Self::note_recorded`] is called. Nothing else is returned
    /// before.
    pub fn take_record(&mut self, now: Timestamp) -> Option<Vec<(RuleId, Ceiling)>> {
        self.ceilings.take_record(now)
    }

    /// Notes that what was returned last is recorded.
    pub fn note_recorded(&mut self, parts: &[(RuleId, Ceiling)]) {
        let raised = self.ceilings.note_recorded(parts);
        if raised.is_empty() {
            return;
        }
        // A client without an assignment denies all requests.
        let is_awaited = |bucket: &Bucket| raised.contains(&bucket.rule) && bucket.has_new();
        self.buckets.change_all(|bucket| bucket.is_dirty |= is_awaited(bucket));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Names of the [`Former`] of processes that begin at these times, in seconds, each after the former process was killed.
    fn known(before: Before, starts: &[u64]) -> Vec<&'static str> {
        let mut record = None;
        let names = starts.iter().map(|secs| {
            let now = Timestamp::EPOCH.saturating_add(Duration::from_secs(1_000 + secs));
            let (begun, former) = Record::begin(record.take(), before, &Settings::default(), now);
            record = Some(begun);
            match former {
                Former::Unknown => "unknown",
                Former::Unrecorded => "unrecorded",
                Former::RecordedOrUnrecorded(_) => "recorded or unrecorded",
                Former::Recorded(_) => "recorded",
                Former::InCounters => "counters",
            }
        });
        names.collect()
    }

    /// Processes that started within 16 s of each other denied requests for as long as this went on. Within 16 s of the first one in a new
    /// data directory, they denied all requests.
    #[test]
    fn starts_again_and_again_make_nothing_unknown_for_longer_than_the_first() {
        let starts = [0, 5, 10, 15, 16, 20];
        let (unknown, recorded) = ("unknown", "recorded");
        let expected = [unknown, unknown, unknown, unknown, recorded, recorded];
        assert_eq!(known(Before::Unknown, &starts), expected);
        let both = "recorded or unrecorded";
        assert_eq!(known(Before::Unrecorded, &starts), ["unrecorded", both, both, both, recorded, recorded]);
    }
}
