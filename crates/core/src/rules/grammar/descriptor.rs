//! Descriptors: a key, perhaps a value, what limits them, and the descriptors below.

use super::{
    declared::{Declared, DeclaredKey, DeclaredValue, joined},
    extension::Extension,
    rates::Rates,
    walk::{Home, KeyAbove, ShownValues, Walk, home, is_local},
};
use crate::{
    limit::{MetricLabel, RuleInfo},
    rules::{
        pattern::Pattern,
        redaction::Redaction,
        rule::{Replaced, Rule},
        semantics::Semantics,
        value_set::unambiguous,
        yaml::{Field, Fields, nearest, quoted},
    },
};
use std::sync::Arc;

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
        let (mut rates, is_local) = self.rates_and_locality(&mut fields);
        let is_limited = ["rate_limit", "rate_limits"].iter().any(|name| fields.take(name).is_some());
        let own_limits = fields.take("request_limits").and_then(|field| self.own_limits(&field));
        let on_deny = self.on_deny(&mut fields, is_limited && !rates.unlimited);
        let shadow = fields.flag("shadow_mode", &mut self.report);
        let is_quota = self.is_quota(&mut fields, &rates);
        let detailed_metric = fields.flag("detailed_metric", &mut self.report);
        let value_to_metric = fields.flag("value_to_metric", &mut self.report);
        let redaction = self.redaction(&mut fields);
        let metadata = fields.take("metadata").and_then(|field| field.json(&mut self.report));
        let above = self.enter(&key, &value, shares_counter, value_to_metric);
        let shard_by = self.shard_by(&mut fields);
        rates
            .limits
            .iter_mut()
            .filter_map(|limit| limit.anchor.as_mut())
            .for_each(|anchor| self.find_anchor(anchor));
        let is_never_leased = self.is_never_leased(&mut fields);
        let metric_labels = self.labels_above.clone().into();
        let shown_values = if detailed_metric { u64::MAX } else { self.above.mask };
        let below = extension.map(|extension| &extension.below[..]).unwrap_or_default();
        let below =
            fields.take("descriptors").map(|list| self.descriptors(&list, &path, below)).unwrap_or_default();
        self.leave(above);
        fields.finish(&mut self.report, elsewhere);
        let origin = self.report.origin(item.place());
        let limits = self.register(&rates, &path, is_local);
        let mut rule = Rule {
            extended_at: extension.map(|extension| Box::new(extension.origin().clone())),
            unlimited: rates.unlimited,
            shadow,
            replaces: rates
                .replaces
                .iter()
                .map(|(by, replaced)| Replaced { name: replaced.name.into(), by: *by })
                .collect(),
            detailed_metric,
            value_to_metric,
            own_limits: own_limits.map(Box::new),
            shard_by,
            is_never_leased,
            shows_values: shown_values != 0,
            ..Rule::new(path, limits, origin)
        };
        rule.info = RuleInfo {
            declared_at: rule.declared_at().into(),
            quota: is_quota,
            shown_values,
            metric_labels,
            metadata,
            on_deny,
            ..rule.info
        };
        let rule = rule.with_plain_limit();
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

    /// The limits, and whether they count in this process, where the domain counts in a shared store or not.
    fn rates_and_locality<'n>(&mut self, fields: &mut Fields<'n>) -> (Rates<'n>, bool) {
        let counters = fields.take("counters");
        let is_local = is_local(counters.as_ref(), &mut self.report);
        let is_domain_shared = self.is_shared;
        self.is_shared &= !is_local;
        let rates = self.rates(fields);
        self.is_shared = is_domain_shared;
        if let (Some(field), true, Some(message)) =
            (&counters, is_local && is_domain_shared, rates.of_process())
        {
            field.reject(&mut self.report, message);
        }
        (rates, is_local)
    }

    /// `quota_mode`: whether the limits are a quota, one of several that a request may use.
    fn is_quota(&mut self, fields: &mut Fields<'_>, rates: &Rates<'_>) -> bool {
        let Some(field) = fields.take("quota_mode") else { return false };
        let is_quota = field.boolean(&mut self.report).unwrap_or(false);
        if is_quota && rates.queue() {
            let message = "another quota may admit the request at once, so none of them queues it; remove this or \
                           `max_wait`";
            field.reject(&mut self.report, message);
        }
        if is_quota && rates.limits.iter().any(|limit| limit.ban.is_some()) {
            let message =
                "another quota may admit what this one denies, which bans nobody; remove this or `ban`";
            field.reject(&mut self.report, message);
        }
        is_quota
    }

    /// Adds a descriptor to those that contain what is read next. Returns what [`Walk::leave`] restores.
    fn enter(
        &mut self,
        key: &DeclaredKey,
        value: &DeclaredValue,
        shares_counter: bool,
        value_to_metric: bool,
    ) -> ShownValues {
        let key_above = match key {
            DeclaredKey::Exact(key) => Some(key.clone()),
            DeclaredKey::Wildcard(_) => None,
        };
        self.keys_above.push(KeyAbove { key: key_above, shares_counter });
        if self.semantics == Semantics::Reference {
            self.labels_above.push(MetricLabel { text: joined(key, value).into(), shares_counter });
        }
        let above = self.above;
        self.above = above.and(value_to_metric);
        above
    }

    /// Removes the last descriptor from those that contain what is read next.
    fn leave(&mut self, above: ShownValues) {
        self.above = above;
        self.keys_above.pop();
        self.labels_above.pop();
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
        self.index_of_key(text, &field)
    }

    /// The index of the entry with this key among those of the descriptor being read; reports that there is none.
    pub(super) fn index_of_key(&mut self, key: &str, field: &Field<'_>) -> Option<u32> {
        let index = self.keys_above.iter().position(|above| above.key.as_deref() == Some(key));
        if index.is_none() {
            let keys: Vec<&str> = self.keys_above.iter().filter_map(|above| above.key.as_deref()).collect();
            let message =
                format!("{} is no key of this descriptor; write one of: {}", quoted(key), keys.join(", "));
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
}

/// The place of a key that descriptors do not have.
fn elsewhere(name: &str) -> Option<&'static str> {
    match home(name)? {
        Home::File => Some("it belongs to the file, beside the outermost `descriptors`"),
        Home::Descriptor => None,
        Home::RateLimit => Some("it belongs under `rate_limit`"),
        Home::Ban => Some("it belongs under `ban` of `rate_limit`"),
        Home::Schedule => Some("it belongs to the items of `schedule`, under `rate_limit`"),
        Home::OnDeny => Some("it belongs under `on_deny`"),
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
