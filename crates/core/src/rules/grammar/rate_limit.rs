//! One `rate_limit`.

use super::{
    algorithm,
    anchors::DeclaredAnchor,
    limits_file,
    schedule::DeclaredSchedule,
    walk::{Home, Walk, home},
};
use crate::{
    algorithm::{Algorithm, Ban},
    limit::Window,
    rules::{
        Reserve,
        semantics::{ChargePolicy, Semantics},
        yaml::{Field, Fields, Place, nearest, quoted},
    },
};
use std::sync::Arc;
use tidegate_cel::Expression;

/// The content of a `rate_limit`.
pub(super) struct RateLimit<'n> {
    pub(super) unlimited: bool,
    pub(super) limit: Option<DeclaredLimit<'n>>,
    pub(super) replaces: Vec<Replaced<'n>>,
}

/// A limit that has no number yet.
pub(super) struct DeclaredLimit<'n> {
    /// Empty if it has none.
    pub(super) name: &'n str,
    pub(super) requests: u32,
    pub(super) window: Window,
    pub(super) algorithm: Algorithm,
    pub(super) charge: ChargePolicy,
    pub(super) debt_max: Option<u32>,
    pub(super) schedule: Option<DeclaredSchedule>,
    /// Its condition.
    pub(super) when: Option<Arc<Expression>>,
    pub(super) ban: Option<Ban>,
    pub(super) anchor: Option<DeclaredAnchor<'n>>,
    pub(super) reserve: Option<Reserve>,
    pub(super) place: Place<'n>,
    /// Its path through the keys of the file.
    pub(super) path: String,
}

/// The name of a limit that does not apply, and its position.
pub(super) struct Replaced<'n> {
    pub(super) name: &'n str,
    pub(super) field: Field<'n>,
}

/// The keys for counting.
const COUNTING_KEYS: [&str; 22] = [
    "unit",
    "unit_multiplier",
    "per",
    "algorithm",
    "charge",
    "debt_max",
    "when",
    "precision",
    "aligned",
    "calendar",
    "time_zone",
    "size",
    "refill",
    "burst",
    "max_wait",
    "max_queue",
    "requests_in_flight",
    "max_hold",
    "schedule",
    "ban",
    "reserve",
    "on_lost_end",
];

impl Walk<'_, '_> {
    pub(super) fn read_rate_limit<'n>(&mut self, field: &Field<'n>) -> Option<RateLimit<'n>> {
        let mut fields = field.fields(&mut self.report)?;
        fields.replace("unit", "per");
        fields.replace("unit_multiplier", "per");
        let name = fields.text("name", &mut self.report).unwrap_or_default();
        let replaces = self.replaces(&mut fields);
        let unlimited = fields.flag("unlimited", &mut self.report);
        let limit = if unlimited {
            self.nothing_else_limits(&mut fields);
            None
        } else {
            let default = self.default_algorithm;
            let counting = algorithm::counting(&mut fields, self.semantics, default, &mut self.report);
            let reserve = counting.as_ref().and_then(|counting| self.reserve(&mut fields, counting));
            let charge = match &counting {
                Some(counting) if counting.algorithm.holds_slots() => ChargePolicy::Admitted,
                _ if reserve.is_some() => ChargePolicy::Admitted,
                _ => self.charge(&mut fields),
            };
            let debt_max =
                counting.as_ref().and_then(|counting| self.debt_max(&mut fields, counting, charge, reserve));
            let schedule = counting.as_ref().and_then(|counting| self.schedule(&mut fields, counting));
            let when =
                fields.take("when").and_then(|field| limits_file::expression(&field, &mut self.report));
            let when = when.map(Arc::new);
            let ban = counting.as_ref().and_then(|counting| self.ban(&mut fields, counting));
            let anchor = counting.as_ref().and_then(|_| self.anchor(&mut fields));
            counting.map(|counting| DeclaredLimit {
                name,
                requests: counting.requests,
                window: counting.window,
                algorithm: self.shareable(field, counting.algorithm),
                charge,
                debt_max,
                schedule,
                when,
                ban,
                anchor,
                reserve,
                place: field.place(),
                path: field.path().to_owned(),
            })
        };
        fields.finish(&mut self.report, |name| match home(name)? {
            Home::File => Some("it belongs to the file, beside the outermost `descriptors`"),
            Home::Descriptor => Some("it belongs to the descriptor, beside `rate_limit`"),
            Home::RateLimit => algorithm::home(name),
            Home::Schedule => Some("it belongs to the items of `schedule`"),
            Home::Ban => Some("it belongs under `ban`"),
            Home::OnDeny => Some("it belongs under `on_deny` of the descriptor, beside `rate_limit`"),
        });
        Some(RateLimit { unlimited, limit, replaces })
    }

    /// The algorithm as it counts in a shared store, if counters are in one; reports one that cannot.
    fn shareable(&mut self, field: &Field<'_>, algorithm: Algorithm) -> Algorithm {
        if !self.is_shared {
            return algorithm;
        }
        algorithm.in_microseconds().unwrap_or_else(|reason| {
            let place = if algorithm.queueing().is_some() { "`domain`" } else { "`key` or `domain`" };
            let message = format!(
                "cannot be counted in a shared store: {reason}, or write `counters: local` beside {place}"
            );
            field.reject(&mut self.report, message);
            algorithm
        })
    }

    fn replaces<'n>(&mut self, fields: &mut Fields<'n>) -> Vec<Replaced<'n>> {
        let items = fields.take("replaces").and_then(|list| list.list(&mut self.report)).unwrap_or_default();
        let mut replaces = Vec::new();
        for item in items {
            let Some(mut item_fields) = item.fields(&mut self.report) else {
                continue;
            };
            let field = item_fields.take("name");
            let name = field.as_ref().and_then(|field| field.text(&mut self.report));
            match (field, name) {
                (Some(field), Some(name)) if !name.is_empty() => replaces.push(Replaced { name, field }),
                (Some(_), None) => {}
                (field, _) => {
                    let place = field.map_or(item_fields.place(), |field| field.place());
                    let message = "is empty; write the name of the limit to replace";
                    self.report.at(place, item_fields.path_of("name"), message);
                }
            }
            item_fields.finish(&mut self.report, |_| None);
        }
        replaces
    }

    /// `requests_per_unit` is allowed beside `unlimited`: the reference server ignores it.
    fn nothing_else_limits(&mut self, fields: &mut Fields<'_>) {
        let _ = fields.take("requests_per_unit").and_then(|field| field.whole(&mut self.report));
        for name in COUNTING_KEYS {
            if let Some(field) = fields.take(name) {
                field.reject(
                    &mut self.report,
                    "has no effect in an unlimited rate; remove this or `unlimited`",
                );
            }
        }
    }

    pub(super) fn charge(&mut self, fields: &mut Fields<'_>) -> ChargePolicy {
        let default = match self.semantics {
            Semantics::Exact => ChargePolicy::Admitted,
            Semantics::Reference => ChargePolicy::Always,
        };
        let Some(field) = fields.take("charge") else {
            return default;
        };
        match field.text(&mut self.report) {
            Some("admitted") => ChargePolicy::Admitted,
            Some("always") => ChargePolicy::Always,
            Some(other) => {
                let meant = match nearest(other, &["admitted", "always"]) {
                    Some(meant) => format!("did you mean `{meant}`?"),
                    None => "write admitted or always".to_owned(),
                };
                field
                    .reject(&mut self.report, format!("{} is not a value of charge; {meant}", quoted(other)));
                default
            }
            None => default,
        }
    }
}
