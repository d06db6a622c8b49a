//! `reserve` of a limit: an estimate is charged when a request starts, and its actual cost when it ends.

use super::{
    algorithm::{Counting, choice_or, hold},
    walk::Walk,
};
use crate::rules::{
    Reserve,
    yaml::{Field, Fields, quoted},
};
use std::num::NonZeroU32;

/// Until the end of a slow response, by default.
const RESERVED_DEFAULT_SECS: u64 = 600;

impl Walk<'_> {
    /// Reads `reserve` and the keys that belong to it.
    pub(super) fn reserve(&self, fields: &mut Fields<'_>, counting: &Counting) -> Option<Reserve> {
        let field = fields.take("reserve")?;
        if counting.algorithm.holds_slots() {
            let message = "requests in flight have slots; remove it, or write the limit of the cost as another of `rate_limits`";
            return field.refuse(message);
        }
        let max_hold = hold(fields, RESERVED_DEFAULT_SECS);
        let returns = fields.take("on_lost_end").map_or(Some(false), |field| {
            let choices = [("keep", false), ("return", true)];
            choice_or(&field, "a value of on_lost_end", "write keep or return", &choices)
        });
        let hits = hits(&field, counting);
        if counting.algorithm.queue().is_some() {
            return field.refuse("does not apply to a limit that queues requests; remove this or `max_wait`");
        }
        if let Some(charge) = fields.take("charge")
            && charge.text().is_some_and(|charge| charge != "admitted")
        {
            charge.reject("the end of a request is always charged, and a denied one has none; remove it");
        }
        Some(Reserve { hits: hits?, max_hold: max_hold?, returns: returns? })
    }
}

/// A number; none for `hits`, those of the request.
fn hits(field: &Field<'_>, counting: &Counting) -> Option<Option<NonZeroU32>> {
    let text = field.text()?;
    let most = counting.algorithm.capacity().unwrap_or(counting.requests);
    match text.parse::<NonZeroU32>() {
        _ if text == "hits" => Some(None),
        Err(_) => field.refuse(format!(
            "{} is no estimate; write a number such as 2000, or `hits` for those of the request",
            quoted(text)
        )),
        Ok(hits) if most > 0 && hits.get() > most => field.refuse(format!(
            "an estimate of {hits} is never admitted by a limit of {most}; write a smaller one, or a larger limit"
        )),
        Ok(hits) => Some(Some(hits)),
    }
}
