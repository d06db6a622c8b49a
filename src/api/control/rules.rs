//! `ListRules`: the rules in force with hits and rates.

use super::{
    caller::Admitted,
    convert::duration,
    error::{Error, Result, on_thread},
};
use crate::api::pb::control as pb;
use std::{collections::HashMap, ops::Range, sync::Arc, time::Duration};
use tidegate_core::{
    limit::SeriesId,
    limiter::SlotFigures,
    rules::{Rule, RuleLimit, RuleSet},
};
use tidegate_operations::control::{HitCounts, Rates};

const PAGE_MAX: usize = 1_000;

/// Time between the two readings of a first call.
const READING_INTERVAL: Duration = Duration::from_millis(600);

impl Admitted {
    pub(super) async fn list_rules(&self, message: pb::ListRulesRequest) -> Result<pb::ListRulesResponse> {
        let start = page_start(&message.page_token)?;
        let limiter = Arc::clone(self.control.limiter().ok_or_else(Error::starting)?);
        let control = Arc::clone(&self.control);
        let failed = "the rules could not be read";
        // There may be a hundred thousand rules.
        let mut rates = on_thread(failed, move || control.rates()).await?;
        if rates.is_none() {
            tokio::time::sleep(READING_INTERVAL).await;
            let control = Arc::clone(&self.control);
            rates = on_thread(failed, move || control.rates()).await?;
        }
        let has_store = self.control.service.shared_store().is_some();
        let page = move || {
            let (rules, slots) = (limiter.rules(), limiter.slot_figures());
            Figures { rules: &rules, rates: rates.as_ref(), slots: &slots, has_store }.page(&message, start)
        };
        on_thread(failed, page).await
    }
}

/// The index at which a page starts.
pub(super) fn page_start(token: &str) -> Result<usize> {
    match token {
        "" => Ok(0),
        token => token.parse().map_err(|_| Error::invalid("page_token", "is not from a response before")),
    }
}

/// The items of the page that begins at `start`, and the token of the next page. The token of the last page is empty.
pub(super) fn page(start: usize, size: u32, total: usize) -> (Range<usize>, String) {
    let end = start.saturating_add(page_size(size, PAGE_MAX, PAGE_MAX)).min(total);
    (start.min(end)..end, if end < total { end.to_string() } else { String::new() })
}

/// The number of items of a page. `size` is the number in the request, or 0 for the default.
pub(super) fn page_size(size: u32, default: usize, max: usize) -> usize {
    if size == 0 { default } else { (size as usize).min(max) }
}

/// The rules in force, with the figures of their limits.
struct Figures<'f> {
    rules: &'f RuleSet,
    rates: Option<&'f Rates>,
    slots: &'f HashMap<SeriesId, SlotFigures>,
    /// Whether counters that are not local are in a shared store.
    has_store: bool,
}

impl Figures<'_> {
    fn page(&self, message: &pb::ListRulesRequest, start: usize) -> pb::ListRulesResponse {
        let domains = self
            .rules
            .domains()
            .filter(|domain| message.domain.is_empty() || domain.name() == message.domain);
        let selected: Vec<(&str, &Rule)> = domains
            .flat_map(|domain| domain.rules().into_iter().map(|rule| (domain.name(), rule)))
            .filter(|(_, rule)| rule.info.path.contains(&message.contains))
            .collect();
        let (page, next_page_token) = page(start, message.page_size, selected.len());
        pb::ListRulesResponse {
            rules: selected[page].iter().map(|(domain, rule)| self.rule(domain, rule)).collect(),
            next_page_token,
            total: selected.len() as u32,
        }
    }

    fn rule(&self, domain: &str, rule: &Rule) -> pb::Rule {
        pb::Rule {
            domain: domain.to_owned(),
            rule: rule.info.path.to_string(),
            depth: depth(&rule.info.path),
            limits: rule.limits.iter().map(|limit| self.limit(limit)).collect(),
            unlimited: rule.unlimited,
            shadow_mode: rule.shadow,
            quota_mode: rule.info.quota,
            declared_at: rule.declared_at(),
        }
    }

    fn limit(&self, limit: &RuleLimit) -> pb::Limit {
        let hits = self.rates.and_then(|rates| rates.hits.get(&limit.series)).copied().unwrap_or_default();
        // No server sees all slots in a store.
        let slots = self.slots.get(&limit.series).filter(|_| limit.is_local || !self.has_store);
        pb::Limit {
            limit: self.rules.limit_name(limit).limit.to_string(),
            name: limit.name.to_string(),
            requests: limit.requests,
            window: Some(duration(limit.window.duration())),
            algorithm: limit.algorithm.name().to_owned(),
            rates: self.rates.map(|rates| {
                let [admitted, denied, shadow_denied] = rates.of(limit.series);
                pb::Rates { admitted, denied, shadow_denied }
            }),
            hits: Some(counts(hits)),
            calendar: limit.calendar().unwrap_or_default(),
            ban: limit.ban().map_or_else(String::new, |ban| ban.to_string()),
            reserve: limit.reserve.map_or_else(String::new, |reserve| reserve.to_string()),
            schedule: limit
                .schedule
                .iter()
                .flat_map(|schedule| schedule.entries())
                .map(|entry| entry.to_string())
                .collect(),
            when: limit.when.as_ref().map_or_else(String::new, |when| when.source().to_owned()),
            in_flight: slots.map(|slots| slots.in_flight),
            oldest_slot: slots.and_then(|slots| slots.oldest).map(duration),
        }
    }
}

/// The number of arrows in a path outside quotes.
fn depth(path: &str) -> u32 {
    let (mut depth, mut is_quoted, mut is_escaped) = (0, false, false);
    for character in path.chars() {
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '→' if !is_quoted => depth += 1,
            _ => {}
        }
    }
    depth
}

pub(super) fn counts(hits: HitCounts) -> pb::Counts {
    let HitCounts { admitted, denied, shadow_denied } = hits;
    pb::Counts { admitted, denied, shadow_denied }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_within_quotes_are_no_levels() {
        assert_eq!(depth("user"), 0);
        assert_eq!(depth("plan=gold → user → path"), 2);
        assert_eq!(depth(r#""a → b"="c \" → d" → e"#), 1);
    }
}
