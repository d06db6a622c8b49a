//! The values of its key that a descriptor is for: `value`, or a set of values.

use super::{
    declared::{DeclaredKey, DeclaredValue},
    doubts::doubt_value,
    walk::Walk,
};
use crate::rules::{
    Network, Semantics,
    letter_case::folded,
    pattern::Pattern,
    regexes::Regex,
    value_set::{ValueSet, Values},
    yaml::{Field, Fields, quoted},
};
use smol_str::SmolStr;
use std::collections::HashSet;

/// The keys of sets, each instead of `value`.
pub(super) const SETS: [&str; 3] = ["values", "value_network", "value_regex"];

impl Walk<'_, '_> {
    /// The values, and whether all of them share one counter.
    pub(super) fn value(&mut self, fields: &mut Fields<'_>, key: &DeclaredKey) -> (DeclaredValue, bool) {
        // An empty value is no value, as with the reference server.
        let value = fields.take("value");
        let text = value.as_ref().and_then(|value| value.text(&mut self.report)).unwrap_or_default();
        let mut sets =
            SETS.into_iter().filter_map(|name| Some((name, fields.take(name)?))).collect::<Vec<_>>();
        let any_case = fields.take("value_ignore_case");
        let sharing = fields.take("share_threshold");
        let shares_counter =
            sharing.as_ref().and_then(|field| field.boolean(&mut self.report)).unwrap_or(false);
        let ignores_case =
            any_case.as_ref().and_then(|field| field.boolean(&mut self.report)).unwrap_or(false);
        let first = if text.is_empty() { sets.first().map(|(name, _)| *name) } else { Some("value") };
        for (name, field) in sets.iter().filter(|(name, _)| Some(*name) != first) {
            let first = first.unwrap_or_default();
            field
                .reject(&mut self.report, format!("is given beside `{first}`; remove `{name}` or `{first}`"));
        }
        if let (Some(field), true) = (&any_case, ignores_case) {
            let message = match first {
                None => Some("has no effect without a value; add one, or remove this"),
                Some("value_network") => Some("has no effect on addresses; remove it"),
                Some(_) => None,
            };
            message.into_iter().for_each(|message| field.reject(&mut self.report, message));
        }
        let set = sets.drain(..).next().filter(|_| text.is_empty());
        if let Some(value) = &value {
            doubt_value(value, key, &mut self.report);
        }
        if let DeclaredKey::Wildcard(_) = key {
            let of_set = set.iter().map(|(_, field)| field);
            for field in of_set.chain(any_case.iter().filter(|_| ignores_case)) {
                field.reject(&mut self.report, "needs a `key` without `*`; write the key in full");
            }
        }
        let values = match &set {
            Some((name, field)) => self.set(name, field, key, ignores_case),
            None if ignores_case && !text.is_empty() => {
                Some(Pattern::new(&folded(text)).map_or_else(|| Values::One(text.into()), Values::Wildcard))
            }
            None => return (self.plain_value(text, key, sharing.as_ref(), shares_counter), shares_counter),
        };
        // After an error: no values, which are the same as those of no other descriptor.
        let values = values.unwrap_or_else(|| Values::List(Box::default()));
        (DeclaredValue::Set(Box::new(ValueSet::new(values, ignores_case, shares_counter))), shares_counter)
    }

    /// One value as it is, or a wildcard.
    fn plain_value(
        &mut self,
        text: &str,
        key: &DeclaredKey,
        sharing: Option<&Field<'_>>,
        shared: bool,
    ) -> DeclaredValue {
        // The reference server matches the joined text, in which the key may have the `*`.
        let joins = self.semantics == Semantics::Reference && matches!(key, DeclaredKey::Wildcard(_));
        match (Pattern::new(text), sharing) {
            (Some(pattern), _) => DeclaredValue::Wildcard { pattern, text: text.into(), shared },
            (None, Some(sharing)) if shared && !joins => {
                let message = "only values matched by a `*`, a list, networks or a regular expression can share one \
                               counter; remove share_threshold";
                sharing.reject(&mut self.report, message);
                DeclaredValue::Any
            }
            (None, _) if text.is_empty() => DeclaredValue::Any,
            (None, _) => DeclaredValue::Exact(text.into()),
        }
    }

    fn set(
        &mut self,
        name: &str,
        field: &Field<'_>,
        key: &DeclaredKey,
        ignores_case: bool,
    ) -> Option<Values> {
        match name {
            "values" => {
                let list = self.list(field, ignores_case).map(Values::List);
                if list.is_some() {
                    let items = field.list(&mut self.report).unwrap_or_default();
                    items.iter().for_each(|item| doubt_value(item, key, &mut self.report));
                }
                list
            }
            "value_network" => self.networks(field).map(Values::Networks),
            _ => {
                let text = field.text(&mut self.report)?;
                match Regex::new(text, ignores_case) {
                    Ok(regex) => Some(Values::Regex(Box::new(regex))),
                    Err(reason) => {
                        field.reject(&mut self.report, format!("{} {reason}", quoted(text)));
                        None
                    }
                }
            }
        }
    }

    fn list(&mut self, field: &Field<'_>, ignores_case: bool) -> Option<Box<[SmolStr]>> {
        let items = field.list(&mut self.report)?;
        if items.is_empty() {
            field.reject(&mut self.report, "is empty; list at least one value");
        }
        let (mut texts, mut seen) = (Vec::with_capacity(items.len()), HashSet::new());
        for item in &items {
            let Some(text) = item.text(&mut self.report) else { continue };
            let compared = if ignores_case { folded(text) } else { text.into() };
            let message = match text {
                "" => Some("is empty; write a value, or remove it".to_owned()),
                text if text.contains('*') => {
                    Some(format!("{} has a `*`; write it as `value` of another descriptor", quoted(text)))
                }
                text if !seen.insert(compared) => {
                    Some(format!("{} is in the list already; remove one of the two", quoted(text)))
                }
                _ => None,
            };
            match message {
                Some(message) => item.reject(&mut self.report, message),
                None => texts.push(text.into()),
            }
        }
        (!texts.is_empty()).then(|| texts.into())
    }

    /// One network, or a list of them.
    fn networks(&mut self, field: &Field<'_>) -> Option<Box<[Network]>> {
        let items = match field.as_text() {
            Some(_) => vec![field.clone()],
            None => field.list(&mut self.report)?,
        };
        if items.is_empty() {
            field.reject(&mut self.report, "is empty; list at least one network");
        }
        let (mut networks, mut seen) = (Vec::with_capacity(items.len()), HashSet::new());
        for item in &items {
            let Some(text) = item.text(&mut self.report) else { continue };
            let message = match Network::exact(text) {
                Err(error) => Some(format!("{} {error}", quoted(text))),
                Ok(Err(network)) => {
                    Some(format!("{} has bits beyond its prefix; write {network}", quoted(text)))
                }
                Ok(Ok(network)) if !seen.insert(network) => {
                    Some(format!("{} is in the list already; remove one of the two", quoted(text)))
                }
                Ok(Ok(network)) => {
                    networks.push(network);
                    None
                }
            };
            message.into_iter().for_each(|message| item.reject(&mut self.report, message));
        }
        (!networks.is_empty()).then(|| networks.into())
    }
}
