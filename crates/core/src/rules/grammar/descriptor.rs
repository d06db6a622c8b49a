//! Descriptors: a key, perhaps a value, what limits them, and the descriptors below.

use super::{
    algorithm::choice_or,
    declared::{Declared, DeclaredKey, DeclaredValue, joined},
    extension::Extension,
    on_deny::on_deny,
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
        yaml::{Field, Fields, quoted},
    },
};
use std::{mem, sync::Arc};

impl Walk<'_> {
    /// A list of descriptors. `above` is the rule path of the descriptor that contains it, empty at the root.
    pub(super) fn descriptors(
        &mut self,
        list: &Field<'_>,
        above: &str,
        extensions: &[Extension<'_>],
    ) -> Vec<Declared> {
        let items = list.list().unwrap_or_default();
        let descriptor = |item| self.descriptor(item, above, Extension::find(extensions, item));
        items.iter().filter_map(descriptor).collect()
    }

    fn descriptor(
        &mut self,
        item: &Field<'_>,
        above: &str,
        extension: Option<&Extension<'_>>,
    ) -> Option<Declared> {
        let mut fields = match extension {
            Some(extension) => extension.extend(item)?,
            None => item.fields()?,
        };
        let key = read_key(&mut fields);
        let (value, shares_counter) = self.value(&mut fields, &key);
        let path = rule_path(above, &key, &value);
        self.enter(&key, &value, shares_counter);
        let (rates, is_local) = self.rates_and_locality(&mut fields);
        let is_limited = ["rate_limit", "rate_limits"].iter().any(|name| fields.take(name).is_some());
        let own_limits = fields.take("request_limits").and_then(|field| self.own_limits(&field));
        let on_deny = on_deny(&mut fields, is_limited && !rates.unlimited);
        let shadow = fields.flag("shadow_mode");
        let is_quota = is_quota(&mut fields, &rates);
        let detailed_metric = fields.flag("detailed_metric");
        let value_to_metric = fields.flag("value_to_metric");
        let redaction = fields.take("log").and_then(|field| {
            choice_or(&field, "plain, hash or omit", "write one of them", &Redaction::NAMES)
        });
        let metadata = fields.take("metadata").and_then(|field| field.json());
        let shown = self.above.and(value_to_metric);
        let above = mem::replace(&mut self.above, shown);
        let shard_by = fields.take("shard_by").and_then(|field| self.index_of_key(field.text()?, &field));
        let leases = [("off", true), ("auto", false)];
        let lease = fields.take("lease");
        let is_never_leased =
            lease.and_then(|field| choice_or(&field, "off or auto", "write one of them", &leases));
        let metric_labels = self.labels_above.clone().into();
        let shown_values = if detailed_metric { u64::MAX } else { self.above.mask };
        let below = extension.map(|extension| &extension.below[..]).unwrap_or_default();
        let below =
            fields.take("descriptors").map(|list| self.descriptors(&list, &path, below)).unwrap_or_default();
        self.leave(above);
        fields.finish(elsewhere);
        let origin = item.origin();
        let limits = self.register(&rates, &path, is_local);
        let mut rule = Rule {
            extended_at: extension.map(|extension| Box::new(extension.origin())),
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
            is_never_leased: is_never_leased.unwrap_or(false),
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

    /// The limits, and whether they count in this process even if the domain counts in a shared store.
    fn rates_and_locality<'n>(&mut self, fields: &mut Fields<'n>) -> (Rates<'n>, bool) {
        let counters = fields.take("counters");
        let is_local = is_local(counters.as_ref());
        let is_domain_shared = self.is_shared;
        self.is_shared &= !is_local;
        let rates = self.rates(fields);
        self.is_shared = is_domain_shared;
        if let (Some(field), true, Some(message)) =
            (&counters, is_local && is_domain_shared, rates.of_process())
        {
            field.reject(message);
        }
        (rates, is_local)
    }

    /// Adds a descriptor to those that contain what is read next.
    fn enter(&mut self, key: &DeclaredKey, value: &DeclaredValue, shares_counter: bool) {
        let key_above = match key {
            DeclaredKey::Exact(key) => Some(key.clone()),
            DeclaredKey::Wildcard(_) => None,
        };
        self.keys_above.push(KeyAbove { key: key_above, shares_counter });
        if self.semantics == Semantics::Reference {
            self.labels_above.push(MetricLabel { text: joined(key, value).into(), shares_counter });
        }
    }

    /// Removes the last descriptor from those that contain what is read next.
    fn leave(&mut self, above: ShownValues) {
        self.above = above;
        self.keys_above.pop();
        self.labels_above.pop();
    }

    /// The index of the entry with this key among those of the descriptor being read; reports a missing entry.
    pub(super) fn index_of_key(&self, key: &str, field: &Field<'_>) -> Option<u32> {
        let index = self.keys_above.iter().position(|above| above.key.as_deref() == Some(key));
        index.and_then(|index| u32::try_from(index).ok()).or_else(|| {
            let keys: Vec<&str> = self.keys_above.iter().filter_map(|above| above.key.as_deref()).collect();
            let (key, keys) = (quoted(key), keys.join(", "));
            field.refuse(format!("{key} is no key of this descriptor; write one of: {keys}"))
        })
    }
}

fn read_key(fields: &mut Fields<'_>) -> DeclaredKey {
    let field = fields.require("key", "every descriptor needs a key");
    let key = field.as_ref().and_then(Field::text);
    if let (Some(field), Some("")) = (&field, key) {
        field.reject("is empty; every descriptor needs a key");
    }
    let key = key.unwrap_or_default();
    Pattern::new(key).map_or_else(|| DeclaredKey::Exact(key.into()), DeclaredKey::Wildcard)
}

/// `quota_mode`: whether the limits are a quota, one of several that a request may use.
fn is_quota(fields: &mut Fields<'_>, rates: &Rates<'_>) -> bool {
    let Some(field) = fields.take("quota_mode").filter(|field| field.boolean() == Some(true)) else {
        return false;
    };
    if rates.queue() {
        field.reject(
            "another quota may admit the request at once, so none of them queues it; remove this or `max_wait`",
        );
    }
    if rates.limits.iter().any(|limit| limit.ban.is_some()) {
        field.reject(
            "another quota may admit what this quota denies, and then there is no ban; remove this or `ban`",
        );
    }
    true
}

/// The place of a key that descriptors do not have.
fn elsewhere(name: &str) -> Option<&'static str> {
    match home(name)? {
        Home::Descriptor => None,
        home => home.remedy(),
    }
}

/// The rule's path: `above → key=value`.
fn rule_path(above: &str, key: &DeclaredKey, value: &DeclaredValue) -> Arc<str> {
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
    path += &unambiguous(key.as_str());
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
