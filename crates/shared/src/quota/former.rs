//! Knowledge about the assignments of the former process. They may be in force for one life of an assignment after the start of a process.

use super::{
    Reporter, Settings,
    bucket::Kind,
    ceilings::{Ceiling, RuleId},
    member::Remnant,
    rates::Rates,
};
use crate::PeerId;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tidegate_core::{algorithm::Assigned, limit::Timestamp};

/// Knowledge of the assignments of a former process.
#[derive(Clone, Debug, Default)]
pub enum Former {
    /// Nothing: all of each limit may have been assigned.
    #[default]
    Unknown,
    /// It recorded nothing, and assigned at most what a process without records does: [`Reporter::unrecorded`].
    Unrecorded,
    /// It assigned at most this much of the limits of these rules, and [`Ceiling::MIN`] of others.
    Recorded(HashMap<RuleId, Ceiling, RandomState>),
    /// As `Recorded`, but at least [`Reporter::unrecorded`] of each limit, because a process before it recorded nothing.
    RecordedOrUnrecorded(HashMap<RuleId, Ceiling, RandomState>),
    /// It stopped in order: the counters have what it had assigned.
    InCounters,
}

impl Former {
    /// Whether only an upper bound of what was assigned is known.
    pub fn is_estimate(&self) -> bool {
        !matches!(self, Self::InCounters)
    }

    /// Time from which on the counters have all that is assigned, if the process began at `began`. Until then, a client that has not
    /// reported yet may have more from the former process.
    pub fn in_counters_from(&self, settings: &Settings, began: Timestamp) -> Timestamp {
        if self.is_estimate() { settings.learned(began) } else { Timestamp::EPOCH }
    }

    /// What it may have assigned of a bucket until `end`. The counter has `assigned` for clients.
    pub(super) fn remnant(
        &self,
        kind: &Kind,
        reporter: Reporter,
        assigned: Option<Assigned>,
        end: Timestamp,
    ) -> Option<Remnant> {
        let held = assigned.map_or(0, |assigned| assigned.held);
        let recorded = |parts: &HashMap<_, _, _>| parts.get(&reporter.rule).copied().unwrap_or(Ceiling::MIN);
        let (rate, tokens) = match (kind, self) {
            (Kind::Slices(_), _) => (0, held),
            (Kind::Rates(rates), Self::InCounters) => rates.of_counter(assigned?),
            (Kind::Rates(rates), Self::Unknown) => rates.part(Ceiling::ALL),
            (Kind::Rates(rates), Self::Unrecorded) => rates.part(Ceiling::of_both(reporter.unrecorded)),
            (Kind::Rates(rates), Self::Recorded(parts)) => rates.part(recorded(parts)),
            (Kind::Rates(rates), Self::RecordedOrUnrecorded(parts)) => {
                rates.part(recorded(parts).max(Ceiling::of_both(reporter.unrecorded)))
            }
        };
        let remnant = Remnant { peer: PeerId::NONE, is_former: true, end, rate, tokens };
        (rate > 0 || tokens > 0).then_some(remnant)
    }
}

impl Rates {
    /// A part of the divisible rate and of the burst.
    fn part(&self, Ceiling { rate, burst }: Ceiling) -> (u64, u64) {
        (rate.of(self.of_limit()), burst.of(self.terms.burst))
    }

    /// What a counter has for clients, as a rate and a burst. The counter holds no less for them.
    fn of_counter(&self, Assigned { held, rate, .. }: Assigned) -> (u64, u64) {
        let tokens = held.min(self.terms.burst);
        let in_span = match self.terms.accrues {
            true => rate,
            false => self.terms.rate_within(held - tokens),
        };
        (in_span.min(self.of_limit()), tokens)
    }
}
