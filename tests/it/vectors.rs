//! Plays the scenarios of `tests/vectors/` to the limiter. Clients in other languages play the same files.

use crate::support::vectors::{Expected, START_UNIX_MS, Scenario, Step, VectorRequest, scenarios};
use std::{collections::BTreeMap, time::Duration};
use tidegate_core::{
    limit::Timestamp,
    limiter::{Due, Limiter, QueueDecision, QueuePosition},
    rules::RuleSet,
    store::{OnFull, Seed, StoreSettings},
};

/// Plays a scenario; panics at the first difference.
fn play(scenario: &Scenario) {
    let store = StoreSettings { seed: Seed::from_bytes([5; 16]), counters_max: 1_000, on_full: OnFull::Deny };
    let (sources, options) = scenario.rule_sources(&scenario.rules);
    let rules = RuleSet::parse(&sources, &options).unwrap_or_else(|errors| panic!("{errors}"));
    let limiter = Limiter::new(rules, store, false);
    let start = Timestamp::from_millis(scenario.start_unix_ms.unwrap_or(START_UNIX_MS));
    let mut player = Player { limiter, queued: BTreeMap::new(), before: start };
    for (number, step) in scenario.steps.iter().enumerate() {
        if let Some(rules) = &step.rules {
            let (sources, options) = scenario.rule_sources(rules);
            let next = player.limiter.update_rules().build(&sources, &options);
            drop(next.unwrap_or_else(|errors| panic!("{errors}")).put_in_force());
        }
        for time in 0..step.times.unwrap_or(1) {
            let millis = step.at_ms + time * step.every_ms;
            let now = start.saturating_add_nanos(millis * 1_000_000 + step.at_ns);
            if let Err(difference) = player.play(step, now) {
                panic!("{}, step {number} at {millis} ms + {} ns: {difference}", scenario.name, step.at_ns);
            }
            player.before = now;
        }
    }
}

/// The limiter that a scenario is played to.
struct Player<'s> {
    limiter: Limiter,
    /// Queued requests by the names that the scenario gives them.
    queued: BTreeMap<&'s str, (&'s VectorRequest, QueuePosition)>,
    /// Time of the step before.
    before: Timestamp,
}

impl<'s> Player<'s> {
    fn play(&mut self, step: &'s Step, now: Timestamp) -> Result<(), String> {
        if let Some(name) = &step.cancel {
            let (_, position) = self.take(name)?;
            self.limiter.cancel(position, now);
        }
        match (&step.request, &step.release, &step.response) {
            (Some(request), None, _) => self.send(step, request, now),
            (None, Some(name), Some(response)) => self.release(name, response, now),
            (None, None, None) => Ok(()),
            _ => Err("a response belongs to a request or to a release".to_owned()),
        }
    }

    fn send(&mut self, step: &'s Step, request: &'s VectorRequest, now: Timestamp) -> Result<(), String> {
        let (sent, wait_max) = (request.as_request(), Duration::from_millis(step.wait_max_ms));
        match (self.limiter.pin().decide_or_queue(&sent, wait_max, now), step.queued_ms, &step.response) {
            (QueueDecision::Decided(decision), None, Some(response)) => response.is(&decision),
            (QueueDecision::Queued(position), Some(millis), None) => {
                let expected = now.saturating_add_nanos(millis * 1_000_000 + step.queued_ns);
                let due = self.limiter.due(&position);
                let name = step.queued_as.as_deref().ok_or("a queued request needs a name")?;
                let former = self.queued.insert(name, (request, position));
                match former {
                    Some(_) => Err(format!("two requests are queued as {name}")),
                    None if due == Due::At(expected) => Ok(()),
                    None => Err(format!("queued: {due:?} is not {:?}", Due::At(expected))),
                }
            }
            (verdict, _, _) => Err(format!("{verdict:?} was not expected")),
        }
    }

    /// Releases a queued request, which is due now and was not before.
    fn release(&mut self, name: &str, response: &Expected, now: Timestamp) -> Result<(), String> {
        let (request, position) = self.take(name)?;
        // A release time that was moved to the past counts as the time of the step.
        let is_now = |release: Timestamp| release.max(self.before) == now;
        let due = self.limiter.due(&position);
        if !matches!(due, Due::At(release) if is_now(release)) {
            return Err(format!("{due:?} is another release time"));
        }
        let compared =
            response.is(&self.limiter.pin().queued_decision(&request.as_request(), &position, now));
        self.limiter.release(position);
        compared
    }

    fn take(&mut self, name: &str) -> Result<(&'s VectorRequest, QueuePosition), String> {
        self.queued.remove(name).ok_or_else(|| format!("no request is queued as {name}"))
    }
}

#[test]
fn every_scenario_has_the_expected_responses() {
    let scenarios = scenarios();
    assert!(scenarios.len() >= 60, "{} scenarios", scenarios.len());
    let failed = scenarios.iter().filter(|scenario| {
        // All failures are reported, not only the first.
        std::panic::catch_unwind(|| play(scenario)).is_err()
    });
    assert_eq!(failed.count(), 0, "scenarios failed");
}

#[test]
fn no_two_scenarios_have_one_name() {
    let mut names: Vec<_> = scenarios().into_iter().map(|scenario| scenario.name).collect();
    names.sort();
    let before = names.len();
    names.dedup();
    assert_eq!(names.len(), before);
}
