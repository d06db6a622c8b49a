//! Requests in flight: their number, and how long a request holds its slot.

use super::{super::window, common::Counting, queue::queue};
use crate::{
    algorithm::{Algorithm, Concurrency, HOLD_MAX},
    limit::Window,
    rules::{semantics::Semantics, yaml::Fields},
};

/// The longest time that a slot is held, by default.
const HOLD_DEFAULT_SECS: u64 = 60;

pub(super) fn concurrency(fields: &mut Fields<'_>, _: Semantics) -> Option<Counting> {
    let mut has_number = false;
    for (name, remedy) in [
        ("requests_per_unit", "write the number in `requests_in_flight`"),
        ("unit", "remove it; `max_hold` bounds how long a request is in flight"),
        ("unit_multiplier", "remove it; `max_hold` bounds how long a request is in flight"),
        ("per", "remove it; `max_hold` bounds how long a request is in flight"),
    ] {
        if let Some(field) = fields.take(name) {
            has_number |= name == "requests_per_unit";
            field.reject(format!("requests in flight have no window; {remedy}"));
        }
    }
    if let Some(charge) = fields.take("charge")
        && charge.text().is_some_and(|charge| charge != "admitted")
    {
        charge.reject("only admitted requests are in flight; remove it");
    }
    let max_hold = hold(fields, HOLD_DEFAULT_SECS);
    let queue = queue(fields, Some(Concurrency::WAIT_DEFAULT));
    // A number in the wrong key is reported there.
    let field = match has_number {
        true => fields.take("requests_in_flight"),
        false => fields
            .require("requests_in_flight", "write how many requests may be in flight at once (0 denies all)"),
    }?;
    let limit = match field.whole() {
        Some(many) if many > Concurrency::LIMIT_MAX => {
            let most = Concurrency::LIMIT_MAX;
            field.refuse(format!("at most {most} requests are in flight; write a number up to that"))
        }
        limit => limit,
    };
    let (limit, max_hold) = limit.zip(max_hold)?;
    let algorithm = Algorithm::Concurrency(Concurrency { limit, max_hold, queue });
    Some(Counting { requests: limit, window: max_hold, algorithm })
}

/// `max_hold`, the longest time that a request is in flight; none if it is not valid, which is reported.
pub(in super::super) fn hold(fields: &mut Fields<'_>, default_secs: u64) -> Option<Window> {
    let Some(field) = fields.take("max_hold") else { return Window::from_secs(default_secs).ok() };
    match window::of_length(&field)? {
        hold if hold.duration() <= HOLD_MAX => Some(hold),
        _ => field.refuse("a request is in flight for at most 24h; write 24h or less"),
    }
}
