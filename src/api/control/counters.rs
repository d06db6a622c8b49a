//! Requests and their counters: `Explain`, `Peek`, `ListCounters`, `Reset`, `GiveBack`.

use super::{
    caller::Admitted,
    convert::{code, duration, request, reset, statuses},
    error::{Error, Result, on_thread},
    overlays::{block_to_message, override_to_message, stored_block_to_message},
};
use crate::api::pb::control as pb;
use std::{fmt::Write as _, num::NonZeroU64, sync::Arc, time::Duration};
use tidegate_core::{
    limit::{Descriptor, HeldSlot, Hits, Request, ReservedHits, ServiceLimit},
    limiter::{Limiter, ResetError},
    rules::{Applied, AppliedLimit, DomainRules, NamedRules, OverlayMatch, RuleSet},
};
use tidegate_service::{CallOrigin, NotReady};
use tidegate_shared::store::Failure;
use tonic::Code as StatusCode;

impl Admitted {
    pub(super) async fn explain(&self, message: pb::ExplainRequest) -> Result<pb::ExplainResponse> {
        let limits = self.control.service.request_limits();
        let peek = request(&message.domain, &message.descriptors, Hits::Peek, limits)?;
        let (code, statuses) = self.peek_now(&peek).await?;
        let limiter = self.control.limiter().ok_or_else(Error::starting)?;
        let owned = limiter.pin_owned();
        let applied = applied(owned.rules(), &peek)?;
        // Without the store, the rest is explained.
        let (counters, counters_unknown) = match self.control.service.limits_now(&owned, &peek).await {
            Ok(counters) => (counters, String::new()),
            Err(failure) => (Vec::new(), failure.to_string()),
        };
        let overlays = self.control.overlays();
        let explained = |(index, (applied, status)): (usize, (&Applied<'_>, &pb::DescriptorStatus))| {
            let of_descriptor = counters.iter().filter(|counter| counter.descriptor == index);
            let rule = applied.rule();
            let domain = owned.rules().domain(peek.domain());
            let entries = &peek.descriptors()[index].entries;
            let applied_by = domain.and_then(|domain| domain.overlay_match(entries));
            pb::ExplainedDescriptor {
                steps: applied.matching.iter().flat_map(|matching| &matching.steps).map(step).collect(),
                outcome: outcome(owned.rules(), domain, applied),
                rule: rule.map_or_else(String::new, |rule| rule.info.path.to_string()),
                declared_at: rule.map_or_else(String::new, |rule| rule.declared_at()),
                unlimited: rule.is_some_and(|rule| rule.unlimited),
                shadow_mode: applied.is_shadow(),
                quota_mode: applied.is_quota(),
                counters: counters_of(owned.rules(), (applied, applied_by), of_descriptor),
                override_id: applied_by.and_then(override_id).unwrap_or_default().to_owned(),
                block_id: applied_by.and_then(block_id).unwrap_or_default().to_owned(),
                code: status.code,
                cause: status.cause.clone(),
                r#override: applied_by
                    .and_then(override_id)
                    .and_then(|id| overlays.overrides.get(id).cloned().map(override_to_message)),
                block: applied_by.and_then(block_id).and_then(|id| {
                    let set = overlays.blocks.get(id).cloned().map(stored_block_to_message);
                    let in_file = || owned.rules().file_blocks().find(|block| block.id == id);
                    set.or_else(|| in_file().cloned().map(block_to_message))
                }),
            }
        };
        let descriptors = applied.iter().zip(&statuses).enumerate().map(explained).collect();
        Ok(pb::ExplainResponse { code, descriptors, counters_unknown })
    }

    pub(super) async fn peek(&self, message: pb::PeekRequest) -> Result<pb::PeekResponse> {
        let limits = self.control.service.request_limits();
        let peek = request(&message.domain, &message.descriptors, Hits::Peek, limits)?;
        let (code, mut statuses) = self.peek_now(&peek).await?;
        let owned = self.control.limiter().ok_or_else(Error::starting)?.pin_owned();
        if owned.rules().domain(peek.domain()).is_some_and(|domain| domain.features.tickets) {
            // Without the store, the rest is shown.
            let limits = self.control.service.limits_now(&owned, &peek).await.unwrap_or_default();
            for limit in &limits {
                statuses[limit.descriptor].slot_count += slot_count(limit);
                statuses[limit.descriptor].slots.extend(slots(limit));
                if let Some(reserved) = limit.reserved {
                    statuses[limit.descriptor].reserved += reserved.hits;
                    statuses[limit.descriptor].reservation_count += reservation_count(reserved);
                }
            }
        }
        Ok(pb::PeekResponse { code, statuses })
    }

    /// The decision on a request without hits. It is not counted as a decision, unless a shared store makes it.
    async fn peek_now(&self, peek: &Request<'_>) -> Result<(i32, Vec<pb::DescriptorStatus>)> {
        let limiter = self.control.limiter().ok_or_else(Error::starting)?;
        {
            let pinned = limiter.pin();
            let Some(domain) = pinned.rules().domain(peek.domain()) else {
                return Err(unknown_domain(pinned.rules(), peek.domain()));
            };
            if !domain.is_shared() {
                let decision = pinned.decide(peek, self.control.now());
                return Ok((code(decision.code).into(), statuses(&decision)));
            }
        }
        self.decide(peek).await
    }

    /// Decides a request as a client's, without queueing it. For a shared store it waits as long as the store may take.
    async fn decide(&self, request: &Request<'_>) -> Result<(i32, Vec<pb::DescriptorStatus>)> {
        let is_remote = self.control.limiter().is_some_and(|limiter| limiter.pin().is_remote(request));
        let wait_max = if is_remote { Duration::MAX } else { Duration::ZERO };
        let decided = self.control.service.decide(request, CallOrigin::default(), wait_max, |decision| {
            (code(decision.code).into(), statuses(decision))
        });
        decided.await.map_err(|error| match error {
            NotReady::Restoring | NotReady::NoRules => Error::starting(),
            NotReady::Store(failure) => without_store(failure),
        })
    }

    pub(super) async fn list_counters(
        &self,
        message: pb::ListCountersRequest,
    ) -> Result<pb::ListCountersResponse> {
        let limits = self.control.service.request_limits();
        let peek = request(&message.domain, &message.descriptors, Hits::Peek, limits)?;
        let limiter = self.control.limiter().ok_or_else(Error::starting)?;
        let owned = limiter.pin_owned();
        let applied = applied(owned.rules(), &peek)?;
        let counters = self.control.service.limits_now(&owned, &peek).await.map_err(without_store)?;
        let domain = owned.rules().domain(peek.domain());
        let of = |(index, (descriptor, applied)): (usize, (&pb::Descriptor, &Applied<'_>))| {
            let of_descriptor = counters.iter().filter(|counter| counter.descriptor == index);
            let applied_by =
                domain.and_then(|domain| domain.overlay_match(&peek.descriptors()[index].entries));
            pb::DescriptorCounters {
                descriptor: Some(descriptor.clone()),
                rule: applied.rule().map_or_else(String::new, |rule| rule.info.path.to_string()),
                counters: counters_of(owned.rules(), (applied, applied_by), of_descriptor),
            }
        };
        let descriptors = message.descriptors.iter().zip(&applied).enumerate().map(of).collect();
        Ok(pb::ListCountersResponse { descriptors })
    }

    pub(super) async fn reset(&self, message: pb::ResetRequest) -> Result<pb::ResetResponse> {
        let pb::ResetRequest { domain, descriptors, rule, reason: _ } = message;
        let limiter = self.control.limiter().ok_or_else(Error::starting)?.clone();
        if descriptors.is_empty() {
            return self.reset_rule(limiter, domain, rule).await;
        }
        if !rule.is_empty() {
            return Err(Error::invalid("rule", "is given beside descriptors; leave one of both out"));
        }
        let limits = self.control.service.request_limits();
        let request = request(&domain, &descriptors, Hits::Peek, limits)?;
        // Shared counters first: if the store fails, the caller may repeat the whole call.
        let shared = limiter.pin_owned().shared_counters(&request);
        let in_store = match self.control.service.shared_store() {
            Some(store) if !shared.is_empty() => store.reset(&shared).await.map_err(without_store)?,
            _ => 0,
        };
        let (pinned, now) = (limiter.pin(), self.control.now());
        let removed = pinned.reset(&request, now);
        let removed = removed.map_err(|error| not_reset(error, pinned.rules(), &domain))?;
        let texts = |descriptor: &Descriptor<'_>| -> Vec<(String, String)> {
            descriptor.entries.iter().map(|entry| (entry.key.to_owned(), entry.value.to_owned())).collect()
        };
        let of_descriptors = request.descriptors().iter().map(texts).collect();
        self.control.log_reset(removed, pinned.generation(), (domain.clone(), String::new(), of_descriptors));
        Ok(pb::ResetResponse { counters: removed.counters as u64 + in_store, in_new_keys: false })
    }

    /// Resets all counters of a rule, or without one of the domain.
    async fn reset_rule(
        &self,
        limiter: Arc<Limiter>,
        domain: String,
        rule: String,
    ) -> Result<pb::ResetResponse> {
        let rule = match &*rule {
            "" => rule,
            name => match &mut *paths_named(&limiter.rules(), Some(&domain), name)? {
                [path] => std::mem::take(path),
                paths => {
                    let message = format!(
                        "is the name of limits of several rules: {}; name one by its path",
                        paths.join(", ")
                    );
                    return Err(Error::invalid("rule", message));
                }
            },
        };
        let path = (!rule.is_empty()).then_some(&*rule);
        let is_shared = {
            let pinned = limiter.pin();
            let found = pinned.has_rule(&domain, path);
            found.map_err(|error| not_reset(error, pinned.rules(), &domain))?;
            pinned.rules().domain(&domain).is_some_and(|domain| domain.is_shared())
        };
        let resets = match self.control.service.shared_store() {
            Some(store) if is_shared => {
                Some((store.seed(), store.reset_rule(&domain, path).await.map_err(without_store)?))
            }
            _ => None,
        };
        let control = Arc::clone(&self.control);
        // Every counter is read.
        let reset = move || {
            let in_new_keys = resets.is_some();
            if let (Some(config), Some((seed, resets))) = (control.config(), resets) {
                config.put_shared_keys(seed, resets);
            }
            let path = (!rule.is_empty()).then_some(&*rule);
            let pinned = limiter.pin();
            let removed = pinned.reset_rule(&domain, path, control.now());
            let removed = removed.map_err(|error| not_reset(error, pinned.rules(), &domain))?;
            control.log_reset(removed, pinned.generation(), (domain, rule, Vec::new()));
            Ok(pb::ResetResponse { counters: removed.counters as u64, in_new_keys })
        };
        on_thread("the reset failed", reset).await?
    }

    pub(super) async fn give_back(&self, message: pb::GiveBackRequest) -> Result<pb::GiveBackResponse> {
        let hits = NonZeroU64::new(message.hits.into()).unwrap_or(NonZeroU64::MIN);
        let limits = self.control.service.request_limits();
        let request = request(&message.domain, &message.descriptors, Hits::GiveBack(hits), limits)?;
        let owned = self.control.limiter().ok_or_else(Error::starting)?.pin_owned();
        applied(owned.rules(), &request)?;
        let statuses = match self.control.service.give_back_to_store(&owned, &request).await {
            Some(Ok(decision)) => statuses(&decision),
            Some(Err(failure)) => return Err(not_given_back(failure)),
            None => self.decide(&request).await?.1,
        };
        Ok(pb::GiveBackResponse { statuses })
    }
}

/// Explains how the rules apply to a request.
fn applied<'r>(rules: &'r RuleSet, request: &Request<'_>) -> Result<Vec<Applied<'r>>> {
    let domain = rules.domain(request.domain()).ok_or_else(|| unknown_domain(rules, request.domain()))?;
    Ok(domain.explain_request(request.descriptors()))
}

/// The rule or why there is none, and the limits whose condition does not hold.
fn outcome(rules: &RuleSet, domain: Option<&DomainRules>, applied: &Applied<'_>) -> String {
    let mut text =
        applied.matching.as_ref().map_or_else(String::new, |matching| matching.outcome.to_string());
    for AppliedLimit { limit, .. } in applied.limits.iter().filter(|limit| limit.is_unmet) {
        let name = &rules.limit_name(limit).limit;
        let _ = write!(text, "; the limit {name} does not apply: its `when` does not hold");
    }
    // Those of rule files are errors there. Envoy decides by its assignments, and not as this request is decided.
    let refusal = domain.zip(applied.rule()).and_then(|(domain, rule)| domain.refusal_by_quotas(rule));
    if let Some(reason) = refusal {
        let _ = write!(
            text,
            "; over RLQS, Envoy denies all of these requests, or gets little of the limit: the rule {reason}"
        );
    }
    text
}

/// Paths of the rules that a path, or the name of a limit, stands for; at least one.
pub(super) fn paths_named(rules: &RuleSet, domain: Option<&str>, name: &str) -> Result<Vec<String>> {
    if let Some(domain) = domain.filter(|domain| rules.domain(domain).is_none()) {
        return Err(unknown_domain(rules, domain));
    }
    match rules.named(domain, name) {
        NamedRules::Paths(paths) => Ok(paths),
        NamedRules::Unknown(meant) => {
            let remedy = match meant {
                Some(meant) => format!("did you mean {meant:?}?"),
                None => "ListRules lists both".to_owned(),
            };
            Err(Error::not_found(format!(
                "no rule has the path {name:?}, and no limit has that name; {remedy}"
            )))
        }
    }
}

fn unknown_domain(rules: &RuleSet, domain: &str) -> Error {
    const NAMES_MAX: usize = 8;
    let known: Vec<&str> = rules.domains().map(|domain| domain.name()).take(NAMES_MAX).collect();
    Error::not_found(format!("no rules for the domain {domain:?}; domains with rules: {}", known.join(", ")))
}

fn not_reset(error: ResetError, rules: &RuleSet, domain: &str) -> Error {
    match error {
        ResetError::UnknownDomain => unknown_domain(rules, domain),
        ResetError::UnknownRule => {
            Error::not_found("the domain has no rule of this path; ListRules lists them")
        }
    }
}

/// Error of a call that the store of shared counters did not serve.
fn without_store(failure: Failure) -> Error {
    Error::new(
        StatusCode::Unavailable,
        format!("{failure}; repeat the call when /readyz shows the store as available"),
    )
}

/// Error of a store that may have given no hits back.
fn not_given_back(failure: Failure) -> Error {
    let state = match failure {
        Failure::Timeout | Failure::Failed => {
            "the hits may have been given back: compare the counters with ListCounters before you repeat the call"
        }
        Failure::Unavailable | Failure::Learning | Failure::Damaged | Failure::Clocks | Failure::TooLarge => {
            "nothing was given back"
        }
    };
    Error::new(StatusCode::Unavailable, format!("{failure}; {state}"))
}

fn override_id(applied: OverlayMatch<'_>) -> Option<&str> {
    if let OverlayMatch::Override(id) = applied { Some(id) } else { None }
}

fn block_id(applied: OverlayMatch<'_>) -> Option<&str> {
    if let OverlayMatch::Block(id) = applied { Some(id) } else { None }
}

fn step(step: &tidegate_core::rules::Step<'_>) -> pb::Step {
    pb::Step {
        entry: Some(pb::Entry { key: step.key.clone(), value: step.value.clone() }),
        matched: step.matched.to_string(),
        declared_at: step.rule.declared_at(),
    }
}

/// The slots of a limit that are listed.
fn slots<'l>(limit: &'l ServiceLimit<'_>) -> impl Iterator<Item = pb::Slot> + use<'l> {
    limit.slots.iter().flat_map(|slots| &slots.first).map(|&HeldSlot { hits, age, left }| pb::Slot {
        hits,
        age: Some(duration(age)),
        ends_in: Some(duration(left)),
    })
}

/// The number of its slots.
fn slot_count(limit: &ServiceLimit<'_>) -> u32 {
    limit.slots.as_ref().map_or(0, |slots| u32::try_from(slots.count).unwrap_or(u32::MAX))
}

fn reservation_count(reserved: ReservedHits) -> u32 {
    u32::try_from(reserved.requests).unwrap_or(u32::MAX)
}

/// The limits of a descriptor, with the counters of those that apply. A block denies without a counter.
fn counters_of<'c>(
    rules: &RuleSet,
    (applied, applied_by): (&Applied<'_>, Option<OverlayMatch<'_>>),
    mut counters: impl Iterator<Item = &'c ServiceLimit<'c>>,
) -> Vec<pb::Counter> {
    if let Some(OverlayMatch::Block(_)) = applied_by {
        return Vec::new();
    }
    let one = |AppliedLimit { limit, replaced_by, .. }: &AppliedLimit<'_>| {
        // Both are in the order of the rule.
        let counter = if replaced_by.is_none() { counters.next() } else { None };
        let reserved = counter.and_then(|counter| counter.reserved);
        pb::Counter {
            limit: rules.limit_name(limit).limit.to_string(),
            name: limit.name.to_string(),
            // With a schedule, the number that applies now.
            requests: counter.map_or(limit.requests, |counter| counter.limit.requests),
            window: Some(duration(limit.window.duration())),
            algorithm: limit.algorithm.name().to_owned(),
            is_unknown: counter.is_none() && replaced_by.is_none(),
            used: counter.map_or(0, |counter| counter.quota - counter.available),
            remaining: counter.map_or(0, |counter| counter.available),
            reset_after: counter
                .filter(|counter| counter.available < counter.quota)
                .and_then(|counter| reset(Some(counter.effective_window))),
            replaced_by: replaced_by.map_or_else(String::new, |rule| rule.info.path.to_string()),
            banned_for: counter.and_then(|counter| counter.banned_for).map(duration),
            slot_count: counter.map_or(0, slot_count),
            slots: counter.into_iter().flat_map(slots).collect(),
            reserved: reserved.map_or(0, |reserved| reserved.hits),
            reservation_count: reserved.map_or(0, reservation_count),
        }
    };
    applied.limits.iter().filter(|limit| !limit.is_unmet).map(one).collect()
}
