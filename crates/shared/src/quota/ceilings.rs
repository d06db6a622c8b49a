//! The most that clients have together of a limit, by rule. It is recorded, so that a later process has an upper bound of what was
//! assigned: a ceiling is recorded before it is raised, and lowered before the lower one is recorded.
//!
//! Invariants: clients have at most the recorded ceiling of any limit of a rule; a raised ceiling is in force only once it is recorded.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::time::Duration;
use tidegate_core::{limit::Timestamp, rules::Percent};

/// A rule, by a number that stays the same after a restart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RuleId(pub u64);

/// The most that clients are assigned together of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ceiling {
    /// Part of the rate.
    pub rate: Percent,
    /// Part of the burst. It exceeds the part of the rate after a start, when tokens of a former process are not free yet.
    pub burst: Percent,
}

impl Ceiling {
    /// All of a limit.
    pub const ALL: Self = Self::of_both(Percent::ALL);

    /// The ceiling of rules without greater demand.
    pub const MIN: Self = Self::of_both(percent(50));

    /// The same part of both.
    pub const fn of_both(part: Percent) -> Self {
        Self { rate: part, burst: part }
    }

    /// The lowest ceiling with these hundredths of the rate and of the burst.
    pub(super) fn least(rate: u64, burst: u64) -> Self {
        let least = |hundredths: u64, min: Percent| {
            let ceiling = hundredths.next_multiple_of(STEP).clamp(min.get().into(), 100);
            Percent::new(ceiling as u32).unwrap_or(Percent::ALL)
        };
        Self { rate: least(rate, Self::MIN.rate), burst: least(burst, Self::MIN.burst) }
    }

    /// The higher of each part.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { rate: self.rate.max(other.rate), burst: self.burst.max(other.burst) }
    }

    fn min(self, other: Self) -> Self {
        Self { rate: self.rate.min(other.rate), burst: self.burst.min(other.burst) }
    }

    fn is_within(self, other: Self) -> bool {
        self.max(other) == other
    }
}

/// Ceilings are multiples of this step, so that a record is rarely written, and is only a little above what was assigned.
const STEP: u64 = 5;

/// A ceiling that is not needed for this time is lowered. Each bucket is divided within it.
const PERIOD: Duration = Duration::from_secs(20);

const fn percent(percent: u32) -> Percent {
    Percent::new(percent).expect("it is a percentage")
}

/// The ceilings of all rules.
#[derive(Debug, Default)]
pub(super) enum Ceilings {
    /// None: clients may have all of each limit.
    #[default]
    None,
    /// No record shows what the former process assigned.
    Unrecorded,
    /// Ceilings that are recorded.
    Recorded(Recorded),
}

/// Recorded ceilings. Rules that are not listed have [`Ceiling::MIN`].
#[derive(Debug)]
pub(super) struct Recorded {
    rules: HashMap<RuleId, OfRule, RandomState>,
    period_ends: Timestamp,
    is_changed: bool,
    /// Whether a record is being written.
    is_awaited: bool,
}

#[derive(Clone, Copy, Debug)]
struct OfRule {
    /// The ceiling in force: at most `recorded`.
    goal: Ceiling,
    recorded: Ceiling,
    wanted: Ceiling,
    /// The most that was needed, and the most that clients had, in this period.
    needed: Ceiling,
    had: Ceiling,
}

impl Ceilings {
    /// Ceilings of a process that records them, after a process that had recorded these.
    pub(super) fn recorded(former: Vec<(RuleId, Ceiling)>, now: Timestamp) -> Self {
        let of_rule = |recorded| OfRule {
            goal: recorded,
            recorded,
            wanted: recorded,
            needed: Ceiling::MIN,
            // The former process may have assigned as much.
            had: recorded,
        };
        let rules = former.into_iter().map(|(rule, recorded)| (rule, of_rule(recorded))).collect();
        let period_ends = now.saturating_add(PERIOD);
        Self::Recorded(Recorded { rules, period_ends, is_changed: false, is_awaited: false })
    }

    pub(super) fn are_recorded(&self) -> bool {
        matches!(self, Self::Recorded(_))
    }

    /// The ceiling of a rule.
    pub(super) fn of(&self, rule: RuleId, unrecorded: Percent) -> Ceiling {
        match self {
            Self::None => Ceiling::ALL,
            Self::Unrecorded => Ceiling::of_both(unrecorded),
            Self::Recorded(recorded) => {
                recorded.rules.get(&rule).map_or(Ceiling::MIN, |of_rule| of_rule.goal)
            }
        }
    }

    /// Notes what a bucket of a rule needs, and what its clients may have.
    pub(super) fn note(&mut self, rule: RuleId, needed: Ceiling, had: Ceiling) {
        let Self::Recorded(recorded) = self else { return };
        if needed == Ceiling::MIN && had == Ceiling::MIN && !recorded.rules.contains_key(&rule) {
            return;
        }
        let [goal, recorded_yet, wanted] = [Ceiling::MIN; 3];
        let unlisted = OfRule { goal, recorded: recorded_yet, wanted, needed, had };
        let of_rule = recorded.rules.entry(rule).or_insert(unlisted);
        (of_rule.needed, of_rule.had) = (of_rule.needed.max(needed), of_rule.had.max(had));
        of_rule.goal = of_rule.goal.max(needed.min(of_rule.recorded));
        if !needed.is_within(of_rule.wanted) {
            of_rule.wanted = of_rule.wanted.max(needed);
            recorded.is_changed = true;
        }
    }

    /// The ceilings to record, if they have changed and no other record is being written.
    pub(super) fn take_record(&mut self, now: Timestamp) -> Option<Vec<(RuleId, Ceiling)>> {
        let Self::Recorded(recorded) = self else { return None };
        if recorded.is_awaited {
            return None;
        }
        if now >= recorded.period_ends {
            recorded.lower();
            recorded.period_ends = now.saturating_add(PERIOD);
        }
        if !std::mem::take(&mut recorded.is_changed) {
            return None;
        }
        recorded.is_awaited = true;
        Some(recorded.rules.iter().map(|(rule, of_rule)| (*rule, of_rule.wanted)).collect())
    }

    /// Notes that these ceilings are recorded. Returns the rules whose ceilings are higher now.
    pub(super) fn note_recorded(&mut self, ceilings: &[(RuleId, Ceiling)]) -> Vec<RuleId> {
        let Self::Recorded(recorded) = self else { return Vec::new() };
        recorded.is_awaited = false;
        let mut raised = Vec::new();
        for (rule, ceiling) in ceilings {
            if let Some(of_rule) = recorded.rules.get_mut(rule) {
                of_rule.recorded = *ceiling;
                let before = of_rule.goal;
                of_rule.goal = before.max(of_rule.needed.min(*ceiling));
                raised.extend((of_rule.goal != before).then_some(*rule));
            }
        }
        raised
    }
}

impl Recorded {
    /// Lowers what is recorded if clients have less, and then the ceilings that are not needed: clients first give up what is beyond.
    fn lower(&mut self) {
        for of_rule in self.rules.values_mut() {
            if of_rule.had.is_within(of_rule.goal) && of_rule.goal != of_rule.recorded {
                (of_rule.recorded, of_rule.wanted) = (of_rule.goal, of_rule.goal);
                self.is_changed = true;
            }
            of_rule.goal = of_rule.goal.min(of_rule.needed);
            (of_rule.needed, of_rule.had) = (Ceiling::MIN, Ceiling::MIN);
        }
        self.rules.retain(|_, of_rule| of_rule.goal != Ceiling::MIN || of_rule.wanted != Ceiling::MIN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: RuleId = RuleId(7);

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + secs * 1_000)
    }

    fn of(ceilings: &Ceilings) -> (u8, u8) {
        let Ceiling { rate, burst } = ceilings.of(RULE, Percent::ALL);
        (rate.get(), burst.get())
    }

    /// Notes the need of a rate and of a burst, and what clients have of both.
    fn note(ceilings: &mut Ceilings, (rate, burst): (u64, u64), had: u64) {
        ceilings.note(RULE, Ceiling::least(rate, burst), Ceiling::least(had, had));
    }

    #[test]
    fn a_ceiling_is_raised_once_it_is_recorded_and_recorded_as_lower_once_clients_have_less() {
        let mut ceilings = Ceilings::recorded(Vec::new(), at(0));
        note(&mut ceilings, (50, 50), 50);
        assert_eq!((of(&ceilings), ceilings.take_record(at(1))), ((50, 50), None));
        note(&mut ceilings, (50, 72), 50);
        let raised = ceilings.take_record(at(1)).expect("it is needed");
        let ceiling = |rate, burst| Ceiling { rate: percent(rate), burst: percent(burst) };
        assert_eq!((of(&ceilings), &*raised), ((50, 50), &[(RULE, ceiling(50, 75))][..]));
        note(&mut ceilings, (99, 60), 50);
        assert_eq!(ceilings.take_record(at(2)), None, "one after the other");
        ceilings.note_recorded(&raised);
        assert_eq!(of(&ceilings), (50, 75));
        let raised = ceilings.take_record(at(3)).expect("more is needed");
        ceilings.note_recorded(&raised);
        assert_eq!((of(&ceilings), &*raised), ((100, 75), &[(RULE, ceiling(100, 75))][..]));
        // No longer needed: first the ceiling in force is lowered. The record follows once clients have no more.
        note(&mut ceilings, (61, 61), 70);
        assert_eq!((ceilings.take_record(at(20)), of(&ceilings)), (None, (100, 75)));
        note(&mut ceilings, (61, 61), 70);
        assert_eq!((ceilings.take_record(at(40)), of(&ceilings)), (None, (65, 65)));
        note(&mut ceilings, (10, 10), 70);
        assert_eq!((ceilings.take_record(at(60)), of(&ceilings)), (None, (50, 50)));
        note(&mut ceilings, (10, 10), 40);
        assert_eq!(ceilings.take_record(at(80)), Some(Vec::new()));
        assert_eq!(of(&ceilings), (50, 50));
    }
}
