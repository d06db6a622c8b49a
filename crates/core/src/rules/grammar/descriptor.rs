//! Descriptors: a key, perhaps a value, what limits them, and the descriptors below.

use super::{
    declared::{Declared, DeclaredKey, DeclaredValue, joined},
    extension::Extension,
    rate_limit::{DeclaredLimit, Replaced},
    walk::{Home, Walk, home, is_local},
};
use crate::{
    algorithm::{Algorithm, Ban},
    limit::{MetricLabel, RuleInfo, Unit},
    rules::{
        limits::{LimitIdentity, LimitInfo, LimitNumbers, TAG_UNNAMED, tag_of_ban, tag_of_label},
        pattern::Pattern,
        redaction::Redaction,
        rule::Rule,
        rule_limit::{RuleLimit, Schedule},
        semantics::{Charge, Semantics},
        value_set::unambiguous,
        yaml::{Field, Fields, nearest, quoted},
    },
};
use smallvec::SmallVec;
use std::sync::Arc;

/// The limits of a descriptor, as declared.
#[derive(Default)]
struct Rates<'n> {
    unlimited: bool,
    limits: Vec<DeclaredLimit<'n>>,
    replaces: Vec<Replaced<'n>>,
}

impl Rates<'_> {
    /// Whether a limit may queue requests.
    fn queue(&self) -> bool {
        self.limits.iter().any(|limit| limit.algorithm.queueing().is_some())
    }
}

impl Rates<'_> {
    /// Whether a limit is of requests in flight.
    fn hold_slots(&self) -> bool {
        self.limits.iter().any(|limit| limit.algorithm.holds_slots())
    }

    /// The reason why local counters of these limits cannot be beside shared ones.
    fn of_process(&self) -> Option<&'static str> {
        let holds_slots = self.hold_slots();
        match self.queue() {
            true => Some(
                "a rule that queues requests does not count beside shared ones; write it beside `domain`, or remove \
                 `max_wait`",
            ),
            false if holds_slots => Some(
                "requests in flight are not counted beside shared counters; write it beside `domain`, or put the rule into \
                 a domain of its own",
            ),
            false => self.limits.iter().any(|limit| limit.schedule.is_some() || limit.ban.is_some() || limit.reserve.is_some()).then_some(
                "a limit with a schedule, a ban or `reserve` does not count beside shared ones; write it beside `domain`, or put the rule into \
                 a domain of its own",
            ),
        }
    }
}

impl Walk<'_, '_> {
    /// A list of descriptors. `above` is the rule path of the descriptor that contains it, empty at the root.
    pub(super) fn descriptors(
        &mut self,
        list: &Field<'_>,
        above: &str,
        extensions: &[Extension<'_>],
    ) -> Vec<Declared> {
        let items = list.list(&mut self.report).unwrap_or_default();
        let descriptor = |item| self.descriptor(item, above, Extension::find(extensions, item));
        let mut declared = Vec::with_capacity(items.len());
        declared.extend(items.iter().filter_map(descriptor));
        declared
    }

    fn descriptor(
        &mut self,
        item: &Field<'_>,
        above: &str,
        extension: Option<&Extension<'_>>,
    ) -> Option<Declared> {
        let mut fields = match extension {
            Some(extension) => extension.extend(item, &mut self.report)?,
            None => item.fields(&mut self.report)?,
        };
        let key = self.key(&mut fields);
        let (value, shares_counter) = self.value(&mut fields, &key);
        let path = rule_path(above, &key, &value);
        let counters = fields.take("counters");
        let is_local = is_local(counters.as_ref(), &mut self.report);
        let is_domain_shared = self.is_shared;
        self.is_shared &= !is_local;
        let rates = self.rates(&mut fields);
        self.is_shared = is_domain_shared;
        if let (Some(field), true, Some(message)) =
            (&counters, is_local && is_domain_shared, rates.of_process())
        {
            field.reject(&mut self.report, message);
        }
        let is_limited = ["rate_limit", "rate_limits"].iter().any(|name| fields.take(name).is_some());
        let on_deny = self.on_deny(&mut fields, is_limited && !rates.unlimited);
        let shadow = fields.flag("shadow_mode", &mut self.report);
        let quota = fields.take("quota_mode");
        let is_quota = quota.as_ref().and_then(|field| field.boolean(&mut self.report)).unwrap_or(false);
        if let (Some(field), true) = (&quota, is_quota && rates.queue()) {
            let message = "another quota may admit the request at once, so none of them queues it; remove this or \
                           `max_wait`";
            field.reject(&mut self.report, message);
        }
        if let (Some(field), true) =
            (&quota, is_quota && rates.limits.iter().any(|limit| limit.ban.is_some()))
        {
            let message =
                "another quota may admit what this one denies, which bans nobody; remove this or `ban`";
            field.reject(&mut self.report, message);
        }
        let detailed_metric = fields.flag("detailed_metric", &mut self.report);
        let value_to_metric = fields.flag("value_to_metric", &mut self.report);
        let redaction = self.redaction(&mut fields);
        let metadata = fields.take("metadata").and_then(|field| field.json(&mut self.report));
        self.keys_above.push(match &key {
            DeclaredKey::Exact(key) => Some(key.clone()),
            DeclaredKey::Wildcard(_) => None,
        });
        let shard_by = self.shard_by(&mut fields);
        let is_never_leased = self.is_never_leased(&mut fields);
        let above = self.above;
        self.above = above.and(value_to_metric);
        if self.semantics == Semantics::Reference {
            self.labels_above.push(MetricLabel { text: joined(&key, &value).into(), shares_counter });
        }
        let metric_labels = self.labels_above.clone().into();
        let shown_values = if detailed_metric { u64::MAX } else { self.above.mask };
        let below = extension.map(|extension| &extension.below[..]).unwrap_or_default();
        let below =
            fields.take("descriptors").map(|list| self.descriptors(&list, &path, below)).unwrap_or_default();
        self.above = above;
        self.keys_above.pop();
        self.labels_above.pop();
        fields.finish(&mut self.report, |name| match home(name)? {
            Home::File => Some("it belongs to the file, beside the outermost `descriptors`"),
            Home::Descriptor => None,
            Home::RateLimit => Some("it belongs under `rate_limit`"),
            Home::Ban => Some("it belongs under `ban` of `rate_limit`"),
            Home::Schedule => Some("it belongs to the items of `schedule`, under `rate_limit`"),
            Home::OnDeny => Some("it belongs under `on_deny`"),
        });
        let origin = self.report.origin(item.place());
        let rule = Rule {
            limits: self.register(&rates, &path, is_local),
            info: RuleInfo {
                path,
                declared_at: Box::default(),
                quota: is_quota,
                queues: rates.queue(),
                holds_slots: rates.hold_slots(),
                shown_values,
                metric_labels,
                metadata,
                on_deny,
            },
            origin,
            extended_at: extension.map(|extension| Box::new(extension.origin().clone())),
            unlimited: rates.unlimited,
            shadow,
            replaces: rates.replaces.iter().map(|replaced| replaced.name.into()).collect(),
            detailed_metric,
            value_to_metric,
            shard_by,
            is_never_leased,
            shows_values: shown_values != 0,
            has_plain_limit: false,
        };
        let mut rule = rule.with_plain_limit();
        rule.info.declared_at = rule.declared_at().into();
        Some(Declared {
            key,
            value,
            shares_counter,
            rule,
            below,
            redaction,
            path_in_file: item.path().to_owned(),
        })
    }

    fn key(&mut self, fields: &mut Fields<'_>) -> DeclaredKey {
        let Some(field) = fields.take("key") else {
            let message = "is missing; every descriptor needs a key";
            self.report.at(fields.place(), fields.path_of("key"), message);
            return DeclaredKey::Exact("".into());
        };
        let key = field.text(&mut self.report);
        if key == Some("") {
            field.reject(&mut self.report, "is empty; every descriptor needs a key");
        }
        let key = key.unwrap_or_default();
        Pattern::new(key).map_or_else(|| DeclaredKey::Exact(key.into()), DeclaredKey::Wildcard)
    }

    /// `log`: how the decision log writes the values.
    fn redaction(&mut self, fields: &mut Fields<'_>) -> Option<Redaction> {
        let field = fields.take("log")?;
        let text = field.text(&mut self.report)?;
        let known = Redaction::NAMES.iter().find(|(name, _)| *name == text);
        if known.is_none() {
            let message = match nearest(text, &Redaction::NAMES.map(|(name, _)| name)) {
                Some(meant) => {
                    format!("{} is not plain, hash or omit; did you mean `{meant}`?", quoted(text))
                }
                None => format!("{} is not plain, hash or omit; write one of them", quoted(text)),
            };
            field.reject(&mut self.report, message);
        }
        known.map(|(_, redaction)| *redaction)
    }

    /// `shard_by`: the index of the entry with this key, which the descriptor or one that contains it has.
    fn shard_by(&mut self, fields: &mut Fields<'_>) -> Option<u32> {
        let field = fields.take("shard_by")?;
        let text = field.text(&mut self.report)?;
        let index = self.keys_above.iter().position(|key| key.as_deref() == Some(text));
        if index.is_none() {
            let keys: Vec<&str> = self.keys_above.iter().filter_map(Option::as_deref).collect();
            let message =
                format!("{} is no key of this descriptor; write one of: {}", quoted(text), keys.join(", "));
            field.reject(&mut self.report, message);
        }
        index.and_then(|index| u32::try_from(index).ok())
    }

    /// `lease`: whether shared counters of the rule are never leased.
    fn is_never_leased(&mut self, fields: &mut Fields<'_>) -> bool {
        let Some(field) = fields.take("lease") else { return false };
        match field.text(&mut self.report) {
            Some("off") => true,
            Some("auto") | None => false,
            Some(text) => {
                let message = format!("{} is not off or auto; write one of them", quoted(text));
                field.reject(&mut self.report, message);
                false
            }
        }
    }

    fn rates<'n>(&mut self, fields: &mut Fields<'n>) -> Rates<'n> {
        let mut rates = Rates::default();
        let (one, several) = (fields.take("rate_limit"), fields.take("rate_limits"));
        if let (Some(_), Some(several)) = (&one, &several) {
            let message = "is given beside rate_limit; make that one more item of rate_limits";
            several.reject(&mut self.report, message);
        }
        if let Some(one) = &one {
            self.rate_limit(one, &mut rates);
        }
        if let Some(several) = &several {
            let items = several.list(&mut self.report);
            if items.as_ref().is_some_and(Vec::is_empty) {
                let message = "is empty; list at least one limit, or write `rate_limit: {unlimited: true}`";
                several.reject(&mut self.report, message);
            }
            for item in &items.unwrap_or_default() {
                let unlimited = rates.unlimited;
                self.rate_limit(item, &mut rates);
                if rates.unlimited && !unlimited {
                    let message = "one of several limits cannot be unlimited; remove it from the list";
                    item.reject(&mut self.report, message);
                }
            }
        }
        for replaced in &rates.replaces {
            if rates.limits.iter().any(|limit| limit.name == replaced.name) {
                let message =
                    format!("{} is this descriptor's own limit; name another one", quoted(replaced.name));
                replaced.field.reject(&mut self.report, message);
            }
        }
        rates
    }

    fn rate_limit<'n>(&mut self, field: &Field<'n>, rates: &mut Rates<'n>) {
        let Some(declared) = self.read_rate_limit(field) else {
            return;
        };
        rates.unlimited |= declared.unlimited;
        rates.replaces.extend(declared.replaces);
        rates.limits.extend(declared.limit);
    }

    /// Registers the limits.
    fn register(&mut self, rates: &Rates<'_>, path: &Arc<str>, is_local: bool) -> SmallVec<[RuleLimit; 1]> {
        let mut limits: SmallVec<[RuleLimit; 1]> = SmallVec::with_capacity(rates.limits.len());
        let unnamed = rates.limits.iter().filter(|limit| limit.name.is_empty()).count();
        for declared in &rates.limits {
            let tag = match declared.name {
                "" if unnamed == 1 => TAG_UNNAMED,
                "" => tag_of_label(&declared.window.to_string()),
                name => tag_of_label(name),
            };
            if limits.iter().any(|limit| limit.tag == tag) {
                let message = match declared.name {
                    "" => format!("a second limit per {} without a name; give each a name", declared.window),
                    name => format!("a second limit named {}; give each a name of its own", quoted(name)),
                };
                self.report.at(declared.place, declared.path.as_str(), message);
            }
            let identity = LimitIdentity { domain: Arc::clone(&self.domain), path: Arc::clone(path), tag };
            let label = match declared.name {
                "" if unnamed == 1 => Arc::clone(path),
                "" => format!("{path} ({})", declared.window).into(),
                name => name.into(),
            };
            let info = LimitInfo { identity, algorithm: declared.algorithm.clone() };
            let LimitNumbers { id, index, series } = self.limits.register(info, label);
            let unit = Unit::of_window(declared.window).filter(|_| !declared.algorithm.holds_slots());
            // The joined texts of a counter do not name the limit: one limit of each window can have it.
            let is_joined = self.semantics.joins(&declared.algorithm, declared.charge, unit)
                && declared.when.is_none()
                && !limits.iter().any(|limit| limit.is_joined && limit.window == declared.window);
            let mut limit = RuleLimit {
                continues: false,
                id,
                tag,
                index,
                series,
                name: declared.name.into(),
                requests: declared.requests,
                window: declared.window,
                unit,
                algorithm: declared.algorithm.clone(),
                charge: declared.charge,
                semantics: self.semantics,
                is_local,
                is_joined,
                key_prefix: None,
                schedule: None,
                when: declared.when.clone(),
                ban: None,
                reserve: declared.reserve,
            };
            let schedule = declared.schedule.as_ref();
            limit.schedule = schedule.map(|declared| {
                Box::new(Schedule::new(declared.timetable.clone(), &limit, &declared.requests))
            });
            limit.ban = declared.ban.map(|ban| Box::new(self.register_ban(&limit, path, ban)));
            limits.push(limit);
        }
        limits
    }

    /// Registers the counter of a limit's denials. In statuses and metrics it is the limit.
    fn register_ban(&mut self, limit: &RuleLimit, path: &Arc<str>, ban: Ban) -> RuleLimit {
        let tag = tag_of_ban(limit.tag);
        let identity = LimitIdentity { domain: Arc::clone(&self.domain), path: Arc::clone(path), tag };
        let algorithm = Algorithm::Ban(ban);
        let id = self.limits.register_beside(LimitInfo { identity, algorithm: algorithm.clone() });
        RuleLimit {
            id,
            tag,
            algorithm,
            charge: Charge::Admitted,
            semantics: Semantics::Exact,
            is_joined: false,
            schedule: None,
            reserve: None,
            ..limit.clone()
        }
    }
}

/// The rule's path: `above → key=value`.
fn rule_path(above: &str, key: &DeclaredKey, value: &DeclaredValue) -> Arc<str> {
    let key = match key {
        DeclaredKey::Exact(key) => key,
        DeclaredKey::Wildcard(pattern) => pattern.as_str(),
    };
    let value = match value {
        DeclaredValue::Any => None,
        DeclaredValue::Exact(value) => Some(unambiguous(value)),
        DeclaredValue::Wildcard { pattern, .. } => Some(unambiguous(pattern.as_str())),
        DeclaredValue::Set(set) => Some(set.label().into()),
    };
    let mut path = String::new();
    if !above.is_empty() {
        path = format!("{above} → ");
    }
    path += &unambiguous(key);
    if let Some(value) = value {
        path.push('=');
        path += &value;
    }
    path.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_descriptors_have_the_same_path() {
        let exact = |value: &str| DeclaredValue::Exact(value.into());
        let key = |key: &str| DeclaredKey::Exact(key.into());
        assert_eq!(&*rule_path("", &key("plan"), &exact("gold")), "plan=gold");
        assert_eq!(&*rule_path("plan=gold", &key("user"), &DeclaredValue::Any), "plan=gold → user");
        assert_eq!(&*rule_path("", &key("plan=gold"), &DeclaredValue::Any), "\"plan=gold\"");
        assert_eq!(&*rule_path("", &key("a → b"), &exact("c d")), "\"a → b\"=\"c d\"");
    }
}
