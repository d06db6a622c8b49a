//! What a process knows of the assignments of the one before it, which may be in force for one life of an assignment after its start.

use super::{
    Reporter,
    bucket::Kind,
    ceilings::{CEILING_MIN, RuleId},
    member::Remnant,
    rates::Rates,
};
use crate::PeerId;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tidegate_core::{algorithm::Assigned, limit::Timestamp, rules::Percent};

/// What is known of the assignments of a former process.
#[derive(Clone, Debug, Default)]
pub enum Former {
    /// Nothing: all of each limit may have been assigned.
    #[default]
    Unknown,
    /// It recorded nothing, and has assigned no more than such a process does: [`Reporter::unrecorded`].
    Unrecorded,
    /// It assigned these parts of limits at most, and [`CEILING_MIN`] of others.
    Recorded(HashMap<RuleId, Percent, RandomState>),
    /// It stopped in order: counters have what it had assigned.
    InCounters,
}

impl Former {
    /// Whether what was assigned is not known exactly.
    pub fn is_estimate(&self) -> bool {
        !matches!(self, Self::InCounters)
    }

    /// What it may have assigned of a bucket until `end`; the counter has this for clients.
    pub(super) fn remnant(
        &self,
        kind: &Kind,
        reporter: Reporter,
        assigned: Option<Assigned>,
        end: Timestamp,
    ) -> Option<Remnant> {
        let held = assigned.map_or(0, |assigned| assigned.held);
        let (rate, tokens) = match (kind, self) {
            (Kind::Slices(_), _) => (0, held),
            (Kind::Rates(rates), Self::InCounters) => rates.of_counter(assigned?),
            (Kind::Rates(rates), Self::Unknown) => rates.part(Percent::ALL),
            (Kind::Rates(rates), Self::Unrecorded) => rates.part(reporter.unrecorded),
            (Kind::Rates(rates), Self::Recorded(parts)) => {
                rates.part(parts.get(&reporter.rule).copied().unwrap_or(CEILING_MIN))
            }
        };
        let remnant = Remnant { peer: PeerId::NONE, is_former: true, end, rate, tokens };
        (rate > 0 || tokens > 0).then_some(remnant)
    }
}

impl Rates {
    /// A part of what can be divided.
    fn part(&self, part: Percent) -> (u64, u64) {
        (part.of(self.of_limit()), part.of(self.terms.burst))
    }

    /// What a counter has for clients, as a rate and a burst for which it holds no less.
    fn of_counter(&self, Assigned { held, rate, .. }: Assigned) -> (u64, u64) {
        let tokens = held.min(self.terms.burst);
        let in_span = match self.terms.accrues {
            true => rate,
            false => self.terms.rate_within(held - tokens),
        };
        (in_span.min(self.of_limit()), tokens)
    }
}
