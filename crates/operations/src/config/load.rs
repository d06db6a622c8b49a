//! One load of a feed: reads its declarations, passes them to the owner, and logs the result.

use super::{Config, Feed, Replacement, RulesStatus};
use std::sync::Arc;
use tidegate_core::{
    clock::Clock,
    rules::{RuleChanges, RuleErrors, RuleSet, Source},
};

/// The most names in one log line. Others are counted.
const NAMES_LOGGED_MAX: usize = 20;

/// The most errors of one load in the log.
const ERRORS_LOGGED_MAX: usize = 100;

/// Replaces the last declarations of the feed by those that `read` returns. Returns what was put in force; none if nothing changed. After
/// an error, including one of `read`, the rules stay. If `is_requested`, also logs that nothing changed.
pub fn load(
    config: &Config,
    feed: Feed,
    read: impl FnOnce() -> Result<Vec<Source>, RuleErrors>,
    clock: &dyn Clock,
    is_requested: bool,
) -> Result<Option<Replacement>, Arc<RuleErrors>> {
    let started = clock.now();
    let failing = config.status().failing.remove(&feed);
    let result = match read() {
        Ok(sources) => config.replace(feed, sources, clock.now()),
        Err(errors) => Err(config.failed(feed, errors, clock.now())),
    };
    match &result {
        Ok(Some(replacement)) => {
            let took = clock.now().since(started);
            let Replacement { generation, rules, limits, changes } = replacement;
            let RuleChanges { added, removed, changed, quotas_added, quotas_removed } = changes;
            let [added, removed, changed] = [added, removed, changed].map(|names| listed(names));
            let [quotas_added, quotas_removed] =
                [quotas_added, quotas_removed].map(|domains| (!domains.is_empty()).then(|| listed(domains)));
            tracing::info!(
                generation,
                rules,
                limits,
                added,
                removed,
                changed,
                quotas_added,
                quotas_removed,
                ?took,
                feed = feed.name(),
                "rules reloaded"
            );
            log_warnings(&config.limiter.rules());
        }
        Ok(None) if is_requested => {
            tracing::info!(generation = config.status().generation, "rules unchanged");
        }
        Ok(None) => {}
        // Known errors, as at the start, or after an edit that did not change them.
        Err(errors) if !is_requested && failing.as_ref() == Some(errors) => {}
        Err(errors) => log_errors(errors, &config.status(), feed),
    }
    if result.is_ok() && feed.stays_behind() {
        if failing.is_some() {
            let generation = config.status().generation;
            tracing::info!(generation, feed = feed.name(), "rules are valid again, and in force");
        }
        config.keep(clock.now());
    }
    result
}

/// Warns about extensions that no rule has, about overrides with another effect than they state, and about whatever `tidegate check` warns
/// about.
pub fn log_warnings(rules: &RuleSet) {
    for extension in rules.extensions_without_effect().iter().take(ERRORS_LOGGED_MAX) {
        tracing::warn!("{extension}");
    }
    let warnings = rules.warnings();
    for warning in warnings.iter().take(ERRORS_LOGGED_MAX) {
        tracing::warn!("{warning}");
    }
    if warnings.len() > ERRORS_LOGGED_MAX {
        tracing::warn!("{} more warnings; `tidegate check` prints all", warnings.len() - ERRORS_LOGGED_MAX);
    }
    for overrides in [rules.overrides_not_shareable(), rules.overrides_not_divisible()] {
        for overridden in overrides.iter().take(ERRORS_LOGGED_MAX) {
            tracing::warn!("{overridden}");
        }
    }
}

fn log_errors(errors: &RuleErrors, status: &RulesStatus, feed: Feed) {
    let (count, generation) = (errors.iter().count(), status.generation);
    if status.is_awaiting(feed) {
        tracing::error!(
            errors = count,
            "rules not loaded; requests are refused with UNAVAILABLE until they are"
        );
    } else {
        tracing::error!(
            errors = count,
            generation,
            feed = feed.name(),
            "rules not reloaded; those in force stay"
        );
    }
    for error in errors.iter().take(ERRORS_LOGGED_MAX) {
        tracing::error!("{error}");
    }
    if count > ERRORS_LOGGED_MAX {
        tracing::error!("{} more errors; `tidegate check` prints all", count - ERRORS_LOGGED_MAX);
    }
}

/// `edge: a, edge: b and 3 more`.
fn listed(names: &[String]) -> String {
    let shown = names[..names.len().min(NAMES_LOGGED_MAX)].join(", ");
    match names.len().saturating_sub(NAMES_LOGGED_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_of_names_are_cut() {
        let names = |count: usize| (0..count).map(|number| format!("d: {number}")).collect::<Vec<_>>();
        assert_eq!(listed(&names(0)), "");
        assert_eq!(listed(&names(2)), "d: 0, d: 1");
        assert!(listed(&names(30)).ends_with("d: 19 and 10 more"));
    }
}
