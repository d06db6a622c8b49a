//! The rules that decide: given ones, or those of a log, put in force in the server's order and kept for decisions that
//! began under them.

use super::{LoggedSource, Place, RulesStep, store_settings::store_settings};
use std::collections::{HashMap, HashSet, VecDeque};
use tidegate_core::{
    limiter::{Compat, Limiter, Pinned, RetiredRules},
    rules::{LoadOptions, RuleErrors, RuleSet, Source},
};

/// The most replaced rules that are kept. Decisions that began under rules have numbers shortly after the replacement.
const RETIRED_MAX: usize = 64;

/// Process and generation.
type RulesKey = (u64, u64);

/// The rules that decide at one line of a log.
#[derive(Default)]
pub(super) struct RulesInForce {
    /// Whether they stay in force, whatever the rules of the log.
    are_given: bool,
    counters_max: usize,
    /// None before the first rules of the log.
    limiter: Option<Limiter>,
    in_force: RulesKey,
    /// The newest is last.
    retired: VecDeque<(RulesKey, RetiredRules)>,
    /// All that were in force so far.
    known: HashSet<RulesKey>,
    /// `--global-shadow` and the options of the reference server, by process.
    switches: HashMap<u64, (bool, Compat)>,
    /// The process whose switches the limiter has.
    switched_to: Option<u64>,
    /// Texts by hash: a log has each text once.
    texts: HashMap<String, String>,
}

/// The rules of a log cannot be put in force.
#[derive(Debug, thiserror::Error)]
pub enum LoggedRulesError {
    /// The log only has hashes.
    #[error("the log lacks the text of the rules {name:?}; replay it under files that have it (--rules)")]
    Text {
        /// The document.
        name: String,
    },
    /// The rules are not valid, as another version of the server accepted them.
    #[error("the rules of the log are not valid: {0}")]
    Rules(RuleErrors),
}

impl RulesInForce {
    pub(super) fn given(limiter: Limiter) -> Self {
        Self { are_given: true, limiter: Some(limiter), ..Self::default() }
    }

    pub(super) fn of_log(counters_max: usize) -> Self {
        Self { counters_max, ..Self::default() }
    }

    /// Puts the rules of a line in force. Each file of a log repeats the current rules at its start.
    pub(super) fn put_in_force(&mut self, step: &RulesStep) -> Result<(), LoggedRulesError> {
        if self.are_given {
            return Ok(());
        }
        for LoggedSource { sha256, text, .. } in &step.sources {
            if let Some(text) = text {
                self.texts.insert(sha256.clone(), text.clone());
            }
        }
        let key = (step.place.run, step.place.generation);
        self.switches.insert(step.place.run, (step.global_shadow, step.compat));
        let is_known = self.limiter.is_some()
            && (key == self.in_force || self.retired.iter().any(|(retired, _)| *retired == key));
        if is_known {
            return Ok(());
        }
        let source = |LoggedSource { id, sha256, .. }: &LoggedSource| match self.texts.get(sha256) {
            Some(text) => Ok(Source::new(id.clone(), text)),
            None => Err(LoggedRulesError::Text { name: id.to_string() }),
        };
        let sources = step.sources.iter().map(source).collect::<Result<Vec<_>, _>>()?;
        let RulesStep { semantics, default_algorithm, merge_domains, .. } = *step;
        let options = LoadOptions { semantics, default_algorithm, merge_domains, ..LoadOptions::default() };
        match &self.limiter {
            None => {
                let rules = RuleSet::parse(&sources, &options).map_err(LoggedRulesError::Rules)?;
                self.limiter = Some(Limiter::new(rules, store_settings(self.counters_max), false));
            }
            Some(limiter) => {
                let next = limiter.update_rules().build(&sources, &options);
                let retired = next.map_err(LoggedRulesError::Rules)?.put_in_force();
                self.retired.push_back((self.in_force, retired));
                if self.retired.len() > RETIRED_MAX {
                    self.retired.pop_front();
                }
            }
        }
        self.in_force = key;
        self.known.insert(key);
        Ok(())
    }

    /// Has the limiter decide by the switches of the process that made the decision at this place.
    #[inline]
    pub(super) fn switch_to(&mut self, place: Option<Place>) {
        let run = place.map_or(self.in_force.0, |place| place.run);
        if !self.are_given && self.switched_to != Some(run) {
            self.set_switches_of(run);
        }
    }

    #[cold]
    fn set_switches_of(&mut self, run: u64) {
        if let (Some(limiter), Some(&(global_shadow, compat))) = (&mut self.limiter, self.switches.get(&run))
        {
            limiter.set_switches(global_shadow, compat);
            self.switched_to = Some(run);
        }
    }

    /// The rules at this place; none before the first of the log, and if the log lacks their line. [`Self::switch_to`] must precede.
    pub(super) fn pin(&self, place: Option<Place>) -> Option<Pinned<'_>> {
        let limiter = self.limiter.as_ref()?;
        let key = place.map_or(self.in_force, |place| (place.run, place.generation));
        if self.are_given || key == self.in_force {
            return Some(limiter.pin());
        }
        match self.retired.iter().find(|(retired, _)| *retired == key) {
            Some((_, rules)) => Some(limiter.pin_retired(rules)),
            // Retired rules that are no longer kept.
            None => self.known.contains(&key).then(|| limiter.pin()),
        }
    }

    pub(super) fn limiter(&self) -> Option<&Limiter> {
        self.limiter.as_ref()
    }
}
