//! Domains that are served over RLQS: which of their rules a client can enforce by assignments.
//!
//! Invariant: in a domain with quotas each rule has at most one limit, which counts admitted hits of one bucket only, at all times. The
//! exception are overrides whose domain has changed since they were set, of which the log warns.

use super::{
    DomainRules, OverrideRule, QuotaSettings, Rule, RuleLimit, RuleSet, Semantics,
    divided::{Divided, Division, SLICED_MIN},
    error::Problems,
    grammar::{Declared, DeclaredQuotas},
    limits::{LimitTable, Registrar},
    overlay::Context,
    semantics::ChargePolicy,
};
use smallvec::SmallVec;

impl DeclaredQuotas {
    /// Reports the rules that clients cannot enforce.
    pub(super) fn check(&self, descriptors: &[Declared], problems: &Problems) {
        if self.semantics == Semantics::Reference {
            let message = "needs the semantics of Tidegate; remove it, or start without `--compat reference`";
            problems.at(&self.origin, "rlqs", message);
            return;
        }
        if self.is_shared && !self.is_leased {
            let message = "divides counters in a shared store by leases, which are off; start with `--lease auto`, write `counters: local` \
                           beside it, or remove it";
            problems.at(&self.origin, "rlqs", message);
            return;
        }
        descriptors.iter().for_each(|declared| self.check_below(declared, problems));
    }

    fn check_below(&self, declared: &Declared, problems: &Problems) {
        if let Some(refusal) = self.settings.refusal(&declared.rule, self.is_shared) {
            let message = format!("{refusal}, or put the descriptor into a domain without `rlqs`");
            problems.at(&declared.rule.origin, declared.path_in_file.as_str(), message);
        }
        declared.below.iter().for_each(|below| self.check_below(below, problems));
    }
}

impl DomainRules {
    /// The reason why clients cannot enforce an override, and the remedy; none in a domain that is not served over RLQS.
    pub fn not_divisible(&self, declared: &OverrideRule, semantics: Semantics) -> Option<String> {
        let quotas = self.quotas()?;
        let behind = self.follow(&declared.as_entries(), &mut SmallVec::new());
        let name = self.name().into();
        let context = Context { domain: &name, semantics, is_shared: self.is_shared() };
        // Its limits count nothing, and need no numbers that others know.
        let mut limits = Registrar::new(LimitTable::default(), 1, &[]);
        let (path, id) = (declared.id.as_str().into(), &declared.id);
        let rule = context.rule(path, id, &declared.action, behind, &mut limits);
        quotas.refusal(&rule, self.is_shared())
    }

    /// The reason why clients cannot enforce a rule of this domain, such as an override that is older than its `rlqs`.
    pub fn refusal_by_quotas(&self, rule: &Rule) -> Option<String> {
        self.quotas()?.refusal(rule, self.is_shared())
    }
}

impl RuleSet {
    /// Overrides that clients of RLQS cannot enforce.
    pub fn overrides_not_divisible(&self) -> Vec<String> {
        let of_domain = |domain: &DomainRules| {
            let rules = domain.overlay().into_iter().flat_map(|overlay| overlay.rules());
            let text = |rule: &Rule| {
                let (path, reason) = (&rule.info.path, domain.refusal_by_quotas(rule)?);
                let name = domain.name();
                Some(format!(
                    "the rule {path} of the domain {name} {reason}; Envoy denies all of its requests, or gets little of the limit"
                ))
            };
            rules.filter_map(text).collect::<Vec<_>>()
        };
        self.domains().flat_map(of_domain).collect()
    }
}

impl QuotaSettings {
    /// The reason why clients cannot enforce a rule, and the remedy.
    fn refusal(&self, rule: &Rule, is_shared: bool) -> Option<String> {
        if !rule.replaces.is_empty() {
            return Some(
                "replaces limits of other descriptors, but a bucket is one descriptor; remove `replaces`"
                    .into(),
            );
        }
        if rule.info.quota {
            return Some(
                "has `quota_mode`, but a bucket has no other descriptors that could admit; remove it".into(),
            );
        }
        if rule.is_never_leased && !rule.limits.is_empty() {
            return Some("has `lease: off`, but quotas are leases; remove it".into());
        }
        if rule.is_local() {
            return Some("has `counters: local`; write it beside `domain`".into());
        }
        let limit = match &*rule.limits {
            [] => return None,
            [limit] => limit,
            _ => {
                return Some(
                    "has several limits, but clients of RLQS enforce one for each bucket; keep one".into(),
                );
            }
        };
        if let Some(key) = unenforced_key(limit) {
            return Some(format!("has `{key}`, which clients of RLQS do not enforce; remove it"));
        }
        if is_shared && !is_divided_in_store(limit) {
            return Some(
                "is counted in a shared store, where buckets with `refill: intervals` cannot be divided; remove `refill`, make it a \
                 `fixed_window`, write `counters: local` beside `domain`"
                    .into(),
            );
        }
        let clients = self.clients;
        match Divided::new(limit).division(clients) {
            Division::Fits => self.waste(limit),
            Division::LowRate => Some(format!(
                "has less than one request for each client (`rlqs.clients`: {clients}) in 5 s, the time between two reports of Envoy; \
                 raise its requests, lower `rlqs.clients`"
            )),
            Division::FewHits => Some(format!(
                "has too few requests to be divided, {} or more are needed (`rlqs.clients`: {clients}); raise them",
                clients.max(SLICED_MIN)
            )),
        }
    }

    /// The reason why a limit is not worth its division, and the remedies.
    fn waste(&self, limit: &RuleLimit) -> Option<String> {
        let (divided, clients, least) = (Divided::new(limit), self.clients, self.min_use.get());
        let part = divided.part_at_worst(clients);
        if divided.is_zero() || part >= least.into() {
            return None;
        }
        let is_token_bucket = limit.algorithm.name() == "token_bucket";
        let remedy = match divided.size_for(clients, least.into()) {
            None => "raise its requests, lower `rlqs.clients`".to_owned(),
            Some(size) if !is_token_bucket => {
                format!("make it a `token_bucket` with a `size` of {size} or more")
            }
            Some(size) if !limit.algorithm.drains_evenly() => {
                format!("remove `refill` and raise its `size` to {size} or more")
            }
            Some(size) => format!("raise its `size` to {size} or more"),
        };
        Some(format!(
            "is divided by `rlqs`, and clients (`rlqs.clients`: {clients}) together get {part} % of it at worst, less than `rlqs.min_use`, \
             {least}%; {remedy}, accept less by `min_use`, decide in Envoy by the module (docs/envoy-module.md)"
        ))
    }
}

/// Whether servers that share a store can have parts of a limit.
fn is_divided_in_store(limit: &RuleLimit) -> bool {
    let is_refilled_at_once = limit.algorithm.is_bucket() && !limit.algorithm.drains_evenly();
    limit.requests == 0 || !is_refilled_at_once || Divided::new(limit).is_sliced()
}

/// A key of the limit that clients do not enforce.
fn unenforced_key(limit: &RuleLimit) -> Option<&'static str> {
    let keys = [
        (limit.algorithm.holds_slots(), "requests_in_flight"),
        (limit.algorithm.queueing().is_some(), "max_wait"),
        (limit.charge == ChargePolicy::Always, "charge: always"),
        (limit.anchor_entry().is_some(), "entry"),
        (limit.schedule.is_some(), "schedule"),
        (limit.when.is_some(), "when"),
        (limit.ban.is_some(), "ban"),
        (limit.reserve.is_some(), "reserve"),
    ];
    keys.into_iter().find(|(has_key, _)| *has_key).map(|(_, key)| key)
}
