//! `request_limits` of a domain or a descriptor: how limits in requests count.

use super::{
    algorithm::{Counting, choice_or, is_from_first_hit, precision},
    walk::{Walk, home},
};
use crate::{
    algorithm::Algorithm,
    limit::Unit,
    rules::{
        own_limits::{OwnAlgorithm, OwnLimitSettings},
        semantics::ChargePolicy,
        yaml::{Field, Fields},
    },
};

impl Walk<'_> {
    pub(super) fn own_limits(&mut self, field: &Field<'_>) -> Option<OwnLimitSettings> {
        let mut fields = field.fields()?;
        let algorithm = self.own_algorithm(&mut fields);
        // A number that no estimate exceeds.
        let window = Unit::Minute.window();
        let counting = Counting { requests: 0, window, algorithm: Algorithm::sliding_window(0, window, 1) };
        let reserve = self.reserve(&mut fields, &counting);
        let charge = if reserve.is_some() { ChargePolicy::Admitted } else { self.charge(&mut fields) };
        let debt_max = self.debt_max(&mut fields, &counting, charge, reserve);
        fields.finish(|name| match name {
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

    fn own_algorithm(&self, fields: &mut Fields<'_>) -> Option<OwnAlgorithm> {
        let fixed = OwnAlgorithm::Fixed { from_first_hit: false };
        let choices = [("sliding_window", OwnAlgorithm::Sliding { precision: 1 }), ("fixed_window", fixed)];
        let algorithm = match fields.take("algorithm") {
            None => OwnLimitSettings::new(self.semantics).algorithm,
            Some(field) => match refusal(field.text()?) {
                Some(message) => return field.refuse(message),
                None => {
                    choice_or(&field, "an algorithm", "write one of sliding_window, fixed_window", &choices)?
                }
            },
        };
        Some(match algorithm {
            OwnAlgorithm::Sliding { .. } => {
                OwnAlgorithm::Sliding { precision: precision(fields).unwrap_or(1) }
            }
            OwnAlgorithm::Fixed { .. } => OwnAlgorithm::Fixed { from_first_hit: is_from_first_hit(fields) },
        })
    }
}

/// The reason why limits of requests do not count by an algorithm that rules have, and the remedy. None for any other name.
fn refusal(name: &str) -> Option<String> {
    let reason = match name {
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
        _ => return None,
    };
    Some(reason)
}
