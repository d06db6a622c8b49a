//! The values of a descriptor's key: `value`, or a set of values.

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
use std::collections::HashSet;

/// The keys of sets, each instead of `value`.
pub(super) const SETS: [&str; 3] = ["values", "value_network", "value_regex"];

/// What to write as the value of each.
const REMEDIES: [&str; 3] =
    ["list at least one value", "list at least one network", "write a regular expression"];

impl Walk<'_> {
    /// The values, and whether all of them share one counter.
    pub(super) fn value(&self, fields: &mut Fields<'_>, key: &DeclaredKey) -> (DeclaredValue, bool) {
        // An empty value is no value, as with the reference server.
        let value = fields.take("value");
        let text = value.as_ref().and_then(|value| value.text()).unwrap_or_default();
        let sets = SETS.into_iter().zip(REMEDIES);
        let sets: Vec<_> = sets.map(|(name, remedy)| (name, fields.take_narrowing(name, remedy))).collect();
        let has_empty_set = sets.iter().any(|(_, set)| set.is_err());
        let sets: Vec<_> = sets.into_iter().filter_map(|(name, set)| Some((name, set.ok()??))).collect();
        let any_case = fields.take("value_ignore_case");
        let sharing = fields.take("share_threshold");
        let shares_counter = sharing.as_ref().and_then(|field| field.boolean()).unwrap_or(false);
        let ignores_case = any_case.as_ref().and_then(|field| field.boolean()).unwrap_or(false);
        let first = if text.is_empty() { sets.first().map(|(name, _)| *name) } else { Some("value") };
        for (name, field) in sets.iter().filter(|(name, _)| Some(*name) != first) {
            let first = first.unwrap_or_default();
            field.reject(format!("is given beside `{first}`; remove `{name}` or `{first}`"));
        }
        if let (Some(field), true) = (&any_case, ignores_case) {
            match first {
                None => field.reject("has no effect without a value; add one, or remove this"),
                Some("value_network") => field.reject("has no effect on addresses; remove it"),
                Some(_) => {}
            }
        }
        let set = sets.first().filter(|_| text.is_empty());
        if let Some(value) = &value {
            doubt_value(value, key);
        }
        if let DeclaredKey::Wildcard(_) = key {
            let of_set = set.iter().map(|(_, field)| field);
            for field in of_set.chain(any_case.iter().filter(|_| ignores_case)) {
                field.reject("needs a `key` without `*`; write the key in full");
            }
        }
        let values = match set {
            Some((name, field)) => set_of(name, field, key, ignores_case),
            None if has_empty_set => None,
            None if ignores_case && !text.is_empty() => {
                Some(Pattern::new(&folded(text)).map_or_else(|| Values::One(text.into()), Values::Wildcard))
            }
            None => return (self.plain_value(text, key, sharing.as_ref(), shares_counter), shares_counter),
        };
        // After an error: no values, so that no other descriptor has the same.
        let values = values.unwrap_or_else(|| Values::List(Box::default()));
        (DeclaredValue::Set(Box::new(ValueSet::new(values, ignores_case, shares_counter))), shares_counter)
    }

    /// One value as it is, or a wildcard.
    fn plain_value(
        &self,
        text: &str,
        key: &DeclaredKey,
        sharing: Option<&Field<'_>>,
        shared: bool,
    ) -> DeclaredValue {
        // The reference server matches the joined text, whose `*` may be in the key.
        let joins = self.semantics == Semantics::Reference && matches!(key, DeclaredKey::Wildcard(_));
        match (Pattern::new(text), sharing) {
            (Some(pattern), _) => DeclaredValue::Wildcard { pattern, text: text.into(), shared },
            (None, Some(sharing)) if shared && !joins => {
                let message = "only values matched by a `*`, a list, networks or a regular expression can share one \
                               counter; remove share_threshold";
                sharing.reject(message);
                DeclaredValue::Any
            }
            (None, _) if text.is_empty() => DeclaredValue::Any,
            (None, _) => DeclaredValue::Exact(text.into()),
        }
    }
}

fn set_of(name: &str, field: &Field<'_>, key: &DeclaredKey, ignores_case: bool) -> Option<Values> {
    let repeated = |text| format!("{} is in the list already; remove one of the two", quoted(text));
    match name {
        "values" => {
            let mut seen = HashSet::new();
            let items = read_each(&field.list()?, field, "at least one value", |item, text| {
                let compared = if ignores_case { folded(text) } else { text.into() };
                match text {
                    "" => Err("is empty; write a value, or remove it".to_owned()),
                    text if text.contains('*') => {
                        Err(format!("{} has a `*`; write it as `value` of another descriptor", quoted(text)))
                    }
                    text if !seen.insert(compared) => Err(repeated(text)),
                    text => {
                        doubt_value(item, key);
                        Ok(text.into())
                    }
                }
            });
            items.map(Values::List)
        }
        "value_network" => {
            let mut seen = HashSet::new();
            let items = read_each(&field.list_or_text()?, field, "at least one network", |_, text| {
                match Network::exact(text) {
                    Err(error) => Err(format!("{} {error}", quoted(text))),
                    Ok(Err(network)) => {
                        Err(format!("{} has bits beyond its prefix; write {network}", quoted(text)))
                    }
                    Ok(Ok(network)) if !seen.insert(network) => Err(repeated(text)),
                    Ok(Ok(network)) => Ok(network),
                }
            });
            items.map(Values::Networks)
        }
        _ => {
            let text = field.text()?;
            let regex = Regex::new(text, ignores_case);
            regex.map_or_else(
                |reason| field.refuse(format!("{} {reason}", quoted(text))),
                |regex| Some(Values::Regex(Box::new(regex))),
            )
        }
    }
}

/// Reads the text of each item by `read`, and reports items for which `read` returns none. None if no item could be read.
fn read_each<'n, T>(
    items: &[Field<'n>],
    list: &Field<'_>,
    wanted: &str,
    mut read: impl FnMut(&Field<'n>, &'n str) -> Result<T, String>,
) -> Option<Box<[T]>> {
    if items.is_empty() {
        return list.refuse(format!("is empty; list {wanted}"));
    }
    let read = |item: &Field<'n>| read(item, item.text()?).map_err(|message| item.reject(message)).ok();
    let values: Vec<T> = items.iter().filter_map(read).collect();
    (!values.is_empty()).then(|| values.into())
}
