//! The most that clients are assigned together of a limit, by rule, so that a later process knows what was: a rule's ceiling is recorded
//! before it is raised, and lowered before that is recorded.
//!
//! Invariants: clients have no more of any limit of a rule than its ceiling, as it is recorded; a raised ceiling is in force only once it is.

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use std::time::Duration;
use tidegate_core::{limit::Timestamp, rules::Percent};

/// A rule, by a number that it has after a restart too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RuleId(pub u64);

/// The ceiling of rules of which no more is demanded; others have one of a few.
pub const CEILING_MIN: Percent = percent(50);

/// Others are multiples of this: a record is written rarely, and has little more than was assigned.
const STEP: u64 = 5;

/// Time in which a ceiling is not needed before it is lowered. Each bucket is divided within it.
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
    /// No process knows what the one before it assigned.
    Unrecorded,
    /// Those that are recorded.
    Recorded(Recorded),
}

/// Ceilings that are recorded; rules that are not listed have [`CEILING_MIN`].
#[derive(Debug)]
pub(super) struct Recorded {
    rules: HashMap<RuleId, Ceiling, RandomState>,
    period_ends: Timestamp,
    is_changed: bool,
    /// Whether it is not known that the last ones are recorded.
    is_awaited: bool,
}

#[derive(Clone, Copy, Debug)]
struct Ceiling {
    /// The one in force: at most that which is recorded.
    goal: Percent,
    recorded: Percent,
    wanted: Percent,
    /// What was needed, and what clients had, in this period at most.
    needed: Percent,
    had: Percent,
}

impl Ceilings {
    /// Of a process that records them, after one that had recorded these.
    pub(super) fn recorded(former: Vec<(RuleId, Percent)>, now: Timestamp) -> Self {
        let ceiling = |recorded| Ceiling {
            goal: recorded,
            recorded,
            wanted: recorded,
            needed: CEILING_MIN,
            // The former process had.
            had: recorded,
        };
        let rules = former.into_iter().map(|(rule, recorded)| (rule, ceiling(recorded))).collect();
        let period_ends = now.saturating_add(PERIOD);
        Self::Recorded(Recorded { rules, period_ends, is_changed: false, is_awaited: false })
    }

    pub(super) fn are_recorded(&self) -> bool {
        matches!(self, Self::Recorded(_))
    }

    /// The ceiling of a rule.
    pub(super) fn of(&self, rule: RuleId, unrecorded: Percent) -> Percent {
        match self {
            Self::None => Percent::ALL,
            Self::Unrecorded => unrecorded,
            Self::Recorded(recorded) => recorded.rules.get(&rule).map_or(CEILING_MIN, |ceiling| ceiling.goal),
        }
    }

    /// Notes what a bucket of a rule needs, and what its clients may have, in hundredths of the limit.
    pub(super) fn note(&mut self, rule: RuleId, needed: u64, had: u64) {
        let Self::Recorded(recorded) = self else { return };
        let (needed, had) = (least(needed), least(had));
        if needed == CEILING_MIN && had == CEILING_MIN && !recorded.rules.contains_key(&rule) {
            return;
        }
        let [goal, recorded_yet, wanted] = [CEILING_MIN; 3];
        let unlisted = Ceiling { goal, recorded: recorded_yet, wanted, needed, had };
        let ceiling = recorded.rules.entry(rule).or_insert(unlisted);
        (ceiling.needed, ceiling.had) = (ceiling.needed.max(needed), ceiling.had.max(had));
        ceiling.goal = ceiling.goal.max(needed.min(ceiling.recorded));
        if needed > ceiling.wanted {
            ceiling.wanted = needed;
            recorded.is_changed = true;
        }
    }

    /// What is to be recorded, if that has changed. The rest waits until that is done.
    pub(super) fn take_record(&mut self, now: Timestamp) -> Option<Vec<(RuleId, Percent)>> {
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
        Some(recorded.rules.iter().map(|(rule, ceiling)| (*rule, ceiling.wanted)).collect())
    }

    /// Notes that the last ones are recorded. Returns the rules whose ceilings are higher now.
    pub(super) fn note_recorded(&mut self, ceilings: &[(RuleId, Percent)]) -> Vec<RuleId> {
        let Self::Recorded(recorded) = self else { return Vec::new() };
        recorded.is_awaited = false;
        let mut raised = Vec::new();
        for (rule, percent) in ceilings {
            if let Some(ceiling) = recorded.rules.get_mut(rule) {
                ceiling.recorded = *percent;
                let before = ceiling.goal;
                ceiling.goal = before.max(ceiling.needed.min(*percent));
                raised.extend((ceiling.goal > before).then_some(*rule));
            }
        }
        raised
    }
}

impl Recorded {
    /// Lowers ceilings that clients are below, and then those that they do not need: they give up what is beyond first.
    fn lower(&mut self) {
        for ceiling in self.rules.values_mut() {
            if ceiling.had <= ceiling.goal && ceiling.goal < ceiling.recorded {
                (ceiling.recorded, ceiling.wanted) = (ceiling.goal, ceiling.goal);
                self.is_changed = true;
            }
            ceiling.goal = ceiling.goal.min(ceiling.needed);
            (ceiling.needed, ceiling.had) = (CEILING_MIN, CEILING_MIN);
        }
        self.rules.retain(|_, ceiling| ceiling.goal > CEILING_MIN || ceiling.wanted > CEILING_MIN);
    }
}

/// The lowest ceiling for so many hundredths.
fn least(hundredths: u64) -> Percent {
    let ceiling = hundredths.next_multiple_of(STEP).clamp(CEILING_MIN.get().into(), 100);
    Percent::new(ceiling as u32).unwrap_or(Percent::ALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: RuleId = RuleId(7);

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_millis(1_000_000 + secs * 1_000)
    }

    fn of(ceilings: &Ceilings) -> u8 {
        ceilings.of(RULE, Percent::ALL).get()
    }

    #[test]
    fn a_ceiling_is_raised_once_it_is_recorded_and_recorded_as_lower_once_clients_have_less() {
        let mut ceilings = Ceilings::recorded(Vec::new(), at(0));
        ceilings.note(RULE, 50, 50);
        assert_eq!((of(&ceilings), ceilings.take_record(at(1))), (50, None));
        ceilings.note(RULE, 72, 50);
        let raised = ceilings.take_record(at(1)).expect("it is needed");
        assert_eq!((of(&ceilings), &*raised), (50, &[(RULE, percent(75))][..]));
        ceilings.note(RULE, 99, 50);
        assert_eq!(ceilings.take_record(at(2)), None, "one after the other");
        ceilings.note_recorded(&raised);
        assert_eq!(of(&ceilings), 75);
        let raised = ceilings.take_record(at(3)).expect("more is needed");
        ceilings.note_recorded(&raised);
        assert_eq!((of(&ceilings), &*raised), (100, &[(RULE, Percent::ALL)][..]));
        // No longer needed: first it is not in force, and recorded once clients have no more.
        ceilings.note(RULE, 61, 90);
        assert_eq!((ceilings.take_record(at(20)), of(&ceilings)), (None, 100));
        ceilings.note(RULE, 61, 90);
        assert_eq!((ceilings.take_record(at(40)), of(&ceilings)), (None, 65));
        ceilings.note(RULE, 10, 90);
        assert_eq!((ceilings.take_record(at(60)), of(&ceilings)), (None, 50));
        ceilings.note(RULE, 10, 40);
        assert_eq!(ceilings.take_record(at(80)), Some(Vec::new()));
        assert_eq!(of(&ceilings), 50);
    }
}
