//! The rule by which an override or a block replaces another.

use super::{OverrideAction, OverrideLimit};
use crate::{
    algorithm::{Algorithm, NotShareable},
    limit::RuleInfo,
    rules::{
        ChargePolicy, LimitIdentity, LimitInfo, Origin, Replaced, Rule, RuleLimit, Semantics, SourceId,
        grammar::debt_max_default,
        limits::{Registrar, tag_of_label},
    },
};
use smallvec::SmallVec;
use std::sync::Arc;

/// The domain that rules are for.
pub(in crate::rules) struct Context<'d> {
    pub(in crate::rules) domain: &'d Arc<str>,
    pub(in crate::rules) semantics: Semantics,
    pub(in crate::rules) is_shared: bool,
}

impl Context<'_> {
    /// The first limit of an override that a shared store cannot count instead of the rule `behind`, by its index, and the
    /// reason. The rule of such an override counts as if it named no algorithm.
    pub(in crate::rules) fn not_shareable(
        &self,
        action: &OverrideAction,
        behind: Option<&Rule>,
    ) -> Option<(usize, NotShareable)> {
        let OverrideAction::Limits(declared) = action else { return None };
        let windows: Vec<_> = declared.iter().map(OverrideLimit::window).collect();
        declared.iter().enumerate().find_map(|(index, limit)| {
            let behind = behind.and_then(|behind| behind.overridden_limit(index, &windows));
            self.algorithm(limit, behind).err().map(|reason| (index, reason))
        })
    }

    fn algorithm(
        &self,
        declared: &OverrideLimit,
        behind: Option<&RuleLimit>,
    ) -> Result<Algorithm, NotShareable> {
        let algorithm =
            declared.algorithm(self.semantics, behind.map(|behind| (behind.requests, &behind.algorithm)));
        let is_local = behind.is_some_and(|behind| behind.is_local);
        if self.is_shared && !is_local { algorithm.in_microseconds() } else { Ok(algorithm) }
    }

    /// The rule with this path for the action, instead of the rule `behind` if there is one.
    pub(in crate::rules) fn rule(
        &self,
        path: Arc<str>,
        id: &str,
        action: &OverrideAction,
        behind: Option<&Rule>,
        limits: &mut Registrar,
    ) -> Rule {
        let denied = [OverrideLimit::none()];
        let (declared, continues) = match action {
            OverrideAction::Limits(declared) => (&declared[..], true),
            OverrideAction::Denied => (&denied[..], false),
            OverrideAction::Unlimited => (&[][..], false),
        };
        // Denying everything leaves nothing of the rule: its `on_deny` might admit, and so might other quotas.
        let behind = behind.filter(|_| *action != OverrideAction::Denied);
        let all = declared.iter().enumerate();
        let all = all.map(|(index, limit)| {
            let mut built = self.limit(&path, index, limit, behind, declared, limits);
            built.continues = continues;
            built
        });
        let all: SmallVec<[RuleLimit; 1]> = all.collect();
        let origin = Origin { source: SourceId::Override(id.into()), position: None };
        let mut rule = Rule {
            unlimited: *action == OverrideAction::Unlimited,
            replaces: behind.map(|behind| replaces(behind, declared)).unwrap_or_default(),
            shard_by: behind.and_then(|behind| behind.shard_by),
            is_never_leased: behind.is_some_and(|behind| behind.is_never_leased),
            ..Rule::new(path, all, origin)
        };
        if let Some(RuleInfo { quota, metadata, on_deny, .. }) = behind.map(|behind| &behind.info) {
            let (metadata, on_deny) = (metadata.clone(), on_deny.clone());
            rule.info = RuleInfo { quota: *quota, metadata, on_deny, ..rule.info };
        }
        rule.with_plain_limit()
    }

    fn limit(
        &self,
        path: &Arc<str>,
        index: usize,
        declared: &OverrideLimit,
        behind: Option<&Rule>,
        all: &[OverrideLimit],
        limits: &mut Registrar,
    ) -> RuleLimit {
        let (requests, window) = (declared.requests(), declared.window());
        let windows: Vec<_> = all.iter().map(OverrideLimit::window).collect();
        let of_rule = behind.map(|behind| &behind.info.path);
        let behind = behind.and_then(|behind| behind.overridden_limit(index, &windows));
        let continued = behind.filter(|behind| behind.is_continued_by(window));
        let is_local = behind.is_some_and(|behind| behind.is_local);
        let algorithm =
            self.algorithm(declared, behind).unwrap_or_else(|_| self.semantics.algorithm(requests, window));
        let name: Arc<str> = match index {
            0 => Arc::clone(path),
            _ => format!("{path} per {}", declared.window_text()).into(),
        };
        let tag = tag_of_label(&name);
        // A counter that it continues stays the rule's: a reset of the rule frees it.
        let path = Arc::clone(continued.and(of_rule).unwrap_or(path));
        let identity = LimitIdentity { domain: Arc::clone(self.domain), path, tag };
        let info = LimitInfo { identity, algorithm: algorithm.clone() };
        let numbers = limits.register(info, name);
        let can_reserve = algorithm.can_reserve();
        let limit = RuleLimit {
            charge: behind.map_or(ChargePolicy::Admitted, |behind| behind.charge),
            debt_max: behind.and_then(|behind| behind.debt_max).or_else(|| debt_max_default(&algorithm)),
            semantics: self.semantics,
            is_local,
            when: behind.and_then(|behind| behind.when.clone()),
            instead_of: behind.map(|behind| behind.name.clone()).unwrap_or_default(),
            reserve: behind.and_then(|behind| behind.reserve).filter(|_| can_reserve),
            ..RuleLimit::new(numbers, tag, (requests, window), algorithm)
        };
        limit.with_anchors(behind.and_then(RuleLimit::anchor_entry))
    }
}

/// The limits that a rule replaces, each by the limit of the override that stands instead of the limit which replaces it.
fn replaces(behind: &Rule, declared: &[OverrideLimit]) -> Box<[Replaced]> {
    let windows: Vec<_> = declared.iter().map(OverrideLimit::window).collect();
    let instead_of = |by: u32| {
        let replacing = behind.limits.get(by as usize);
        let stands_instead = |index: &usize| behind.overridden_limit(*index, &windows).eq(&replacing);
        (0..windows.len()).find(stands_instead).and_then(|index| u32::try_from(index).ok())
    };
    let replaced =
        |Replaced { name, by }: &Replaced| Replaced { name: name.clone(), by: by.and_then(instead_of) };
    behind.replaces.iter().map(replaced).collect()
}
