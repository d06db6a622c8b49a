//! `request_limits` of a domain or a descriptor: how limits count that requests bring along.

use super::{
    algorithm::{Counting, is_from_first_hit, precision},
    walk::{Walk, home},
};
use crate::{
    algorithm::Algorithm,
    limit::Unit,
    rules::{
        own_limits::{OwnAlgorithm, OwnLimitSettings},
        semantics::ChargePolicy,
        yaml::{Field, Fields, nearest, quoted},
    },
};

/// Its algorithms.
const ALGORITHMS: [&str; 2] = ["sliding_window", "fixed_window"];

impl Walk<'_, '_> {
    pub(super) fn own_limits(&mut self, field: &Field<'_>) -> Option<OwnLimitSettings> {
        let mut fields = field.fields(&mut self.report)?;
        let algorithm = self.own_algorithm(&mut fields);
        // A number that no estimate exceeds.
        let window = Unit::Minute.window();
        let counting = Counting { requests: 0, window, algorithm: Algorithm::sliding_window(0, window, 1) };
        let reserve = self.reserve(&mut fields, &counting);
        let charge = if reserve.is_some() { ChargePolicy::Admitted } else { self.charge(&mut fields) };
        let debt_max = self.debt_max(&mut fields, &counting, charge, reserve);
        fields.finish(&mut self.report, |name| match name {
            "requests_per_unit" | "unit" | "per" | "unit_multiplier" => {
                Some("the request states the number and the unit of its limit; remove the key")
            }
            "max_hold" | "on_lost_end" => Some("it belongs beside `reserve`"),
            name if home(name).is_some() => {
                Some("it does not apply to limits that requests bring along; remove it")
            }
            _ => None,
        });
        Some(OwnLimitSettings { algorithm: algorithm?, charge, debt_max, reserve })
    }

    fn own_algorithm(&mut self, fields: &mut Fields<'_>) -> Option<OwnAlgorithm> {
        let default = OwnLimitSettings::new(self.semantics).algorithm;
        let named = fields.take("algorithm");
        let name = match &named {
            Some(field) => Some(field.text(&mut self.report)?),
            None => None,
        };
        match (name, default) {
            (Some("sliding_window"), _) | (None, OwnAlgorithm::Sliding { .. }) => {
                let precision = precision(fields, &mut self.report).unwrap_or(1);
                Some(OwnAlgorithm::Sliding { precision })
            }
            (Some("fixed_window"), _) | (None, OwnAlgorithm::Fixed { .. }) => {
                let aligned = fields.take("aligned");
                let from_first_hit = is_from_first_hit(aligned.as_ref(), &mut self.report);
                Some(OwnAlgorithm::Fixed { from_first_hit })
            }
            (Some(name), _) => {
                let message = refusal(name);
                if let Some(field) = &named {
                    field.reject(&mut self.report, message);
                }
                None
            }
        }
    }
}

/// The reason why limits of requests do not count by this algorithm, and the remedy.
fn refusal(name: &str) -> String {
    match name {
        "token_bucket" | "leaky_bucket" => format!(
            "a {name} drains at the rate of its limit, which each request may change; write sliding_window or fixed_window"
        ),
        "sliding_log" => {
            "a log has every hit of its window, and a request may bring any number; write sliding_window, \
                          and `precision: 60` beside it"
                .to_owned()
        }
        "concurrency" => {
            "limits that requests bring along are of a window; write sliding_window or fixed_window"
                .to_owned()
        }
        name => match nearest(name, &ALGORITHMS) {
            Some(meant) => format!("{} is not an algorithm; did you mean `{meant}`?", quoted(name)),
            None => format!("{} is not an algorithm; write one of {}", quoted(name), ALGORITHMS.join(", ")),
        },
    }
}
