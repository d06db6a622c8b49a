//! One `rate_limit`.

use super::{
    algorithm, limits_file,
    rates::{DeclaredLimit, Rates, Replaced},
    walk::{COUNTING_KEYS, Home, Walk, home},
};
use crate::{
    algorithm::Algorithm,
    rules::{
        semantics::{ChargePolicy, Semantics},
        yaml::{Field, Fields},
    },
};
use std::sync::Arc;

impl Walk<'_> {
    /// Reads a limit into those of its descriptor.
    pub(super) fn rate_limit<'n>(&mut self, field: &Field<'n>, rates: &mut Rates<'n>) {
        let Some(mut fields) = field.fields() else { return };
        fields.replace("unit", "per");
        fields.replace("unit_multiplier", "per");
        let name = fields.text("name").unwrap_or_default();
        let replaces = replaces(&mut fields);
        let unlimited = fields.flag("unlimited");
        let limit = match unlimited {
            true => nothing_else_limits(&mut fields),
            false => self.limit(name, field, &mut fields),
        };
        fields.finish(|name| match home(name)? {
            Home::Descriptor => Some("it belongs to the descriptor, beside `rate_limit`"),
            Home::RateLimit => algorithm::home(name),
            Home::Schedule => Some("it belongs to the items of `schedule`"),
            Home::Ban => Some("it belongs under `ban`"),
            Home::OnDeny => Some("it belongs under `on_deny` of the descriptor, beside `rate_limit`"),
            home => home.remedy(),
        });
        rates.unlimited |= unlimited;
        let by = limit.as_ref().map(|_| rates.limits.len() as u32);
        rates.replaces.extend(replaces.into_iter().map(|replaced| (by, replaced)));
        rates.limits.extend(limit);
    }

    /// None if the limit cannot be read, which is reported.
    fn limit<'n>(
        &mut self,
        name: &'n str,
        field: &Field<'n>,
        fields: &mut Fields<'n>,
    ) -> Option<DeclaredLimit<'n>> {
        let counting = algorithm::counting(fields, self.semantics, self.default_algorithm);
        let when = fields.take_narrowing("when", "write a condition").ok().flatten();
        let when = when.and_then(|field| limits_file::condition(&field)).map(Arc::new);
        let Some(mut counting) = counting else {
            // Read for its errors.
            self.charge(fields);
            return None;
        };
        let reserve = self.reserve(fields, &counting);
        let charge = match reserve {
            None if !counting.algorithm.holds_slots() => self.charge(fields),
            _ => ChargePolicy::Admitted,
        };
        let debt_max = self.debt_max(fields, &counting, charge, reserve);
        let schedule = self.schedule(fields, &counting);
        let ban = self.ban(fields, &counting);
        // Another algorithm has no calendar: the key is then reported as unknown.
        let anchor = counting.algorithm.calendar().and_then(|_| self.anchor(fields));
        counting.algorithm = self.shareable(field, counting.algorithm);
        let field = field.clone();
        Some(DeclaredLimit { name, counting, charge, debt_max, schedule, when, ban, anchor, reserve, field })
    }

    /// The algorithm as it counts in a shared store, if counters are in one; reports an algorithm that cannot.
    fn shareable(&self, field: &Field<'_>, algorithm: Algorithm) -> Algorithm {
        if !self.is_shared {
            return algorithm;
        }
        algorithm.in_microseconds().unwrap_or_else(|reason| {
            let place = if algorithm.queueing().is_some() { "`domain`" } else { "`key` or `domain`" };
            field.reject(format!(
                "cannot be counted in a shared store: {reason}, or write `counters: local` beside {place}"
            ));
            algorithm
        })
    }

    pub(super) fn charge(&mut self, fields: &mut Fields<'_>) -> ChargePolicy {
        let default = match self.semantics {
            Semantics::Exact => ChargePolicy::Admitted,
            Semantics::Reference => ChargePolicy::Always,
        };
        let choices = [("admitted", ChargePolicy::Admitted), ("always", ChargePolicy::Always)];
        let charge = fields.take("charge").and_then(|field| {
            algorithm::choice_or(&field, "a value of charge", "write admitted or always", &choices)
        });
        charge.unwrap_or(default)
    }
}

fn replaces<'n>(fields: &mut Fields<'n>) -> Vec<Replaced<'n>> {
    let items = fields.take("replaces").and_then(|list| list.list()).unwrap_or_default();
    let replaced = |item: &Field<'n>| {
        let mut fields = item.fields()?;
        let remedy = "is empty; write the name of the limit to replace";
        let field = fields.take("name").or_else(|| fields.refuse("name", remedy));
        fields.finish(|_| None);
        let field = field?;
        match field.text()? {
            "" => field.refuse(remedy),
            name => Some(Replaced { name, field }),
        }
    };
    items.iter().filter_map(replaced).collect()
}

/// `requests_per_unit` is allowed beside `unlimited`: the reference server ignores it.
fn nothing_else_limits<T>(fields: &mut Fields<'_>) -> Option<T> {
    let _ = fields.take("requests_per_unit").and_then(|field| field.whole());
    for field in COUNTING_KEYS.into_iter().filter_map(|name| fields.take(name)) {
        field.reject("has no effect in an unlimited rate; remove this or `unlimited`");
    }
    None
}
