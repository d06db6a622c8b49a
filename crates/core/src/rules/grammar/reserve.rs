//! `reserve` of a limit: an estimate is charged when a request starts, and its actual cost when it ends.

use super::{
    algorithm::{Counting, hold},
    walk::Walk,
};
use crate::{
    limit::Window,
    rules::{
        Reserve,
        yaml::{Field, Fields, Report, nearest, quoted},
    },
};
use std::num::NonZeroU32;

/// Until the end of a slow response, by default.
const RESERVED_DEFAULT_SECS: u64 = 600;

impl Walk<'_, '_> {
    /// Reads `reserve` and the keys that belong to it.
    pub(super) fn reserve(&mut self, fields: &mut Fields<'_>, counting: &Counting) -> Option<Reserve> {
        if counting.algorithm.holds_slots() {
            if let Some(field) = fields.take("reserve") {
                let message = "requests in flight have slots; remove it, or write the limit of the cost as another of `rate_limits`";
                field.reject(&mut self.report, message);
            }
            return None;
        }
        let field = fields.take("reserve")?;
        let report = &mut self.report;
        let max_hold = match fields.take("max_hold") {
            None => Window::from_secs(RESERVED_DEFAULT_SECS).ok(),
            Some(field) => hold(&field, report),
        };
        let returns = fields.take("on_lost_end").map_or(Some(false), |field| returns(&field, report));
        let hits = hits(&field, counting, report);
        if counting.algorithm.queue().is_some() {
            let message = "does not apply to a limit that queues requests; remove this or `max_wait`";
            field.reject(report, message);
            return None;
        }
        if let Some(charge) = fields.take("charge")
            && charge.text(report).is_some_and(|charge| charge != "admitted")
        {
            charge.reject(
                report,
                "the end of a request is always charged, and a denied one has none; remove it",
            );
        }
        Some(Reserve { hits: hits?, max_hold: max_hold?, returns: returns? })
    }
}

/// A number, or `hits` for those of the request, which is none.
fn hits(field: &Field<'_>, counting: &Counting, report: &mut Report<'_>) -> Option<Option<NonZeroU32>> {
    if field.text(report)? == "hits" {
        return Some(None);
    }
    let hits = match field.as_text().and_then(|text| text.parse().ok()).and_then(NonZeroU32::new) {
        Some(hits) => hits,
        None => {
            let text = quoted(field.as_text().unwrap_or_default());
            let message = format!(
                "{text} is no estimate; write a number such as 2000, or `hits` for those of the request"
            );
            field.reject(report, message);
            return None;
        }
    };
    let most = counting.algorithm.capacity().unwrap_or(counting.requests);
    if most > 0 && hits.get() > most {
        let message = format!(
            "an estimate of {hits} is never admitted by a limit of {most}; write a smaller one, or a larger limit"
        );
        field.reject(report, message);
        return None;
    }
    Some(Some(hits))
}

/// Whether hits are returned if no end arrives.
fn returns(field: &Field<'_>, report: &mut Report<'_>) -> Option<bool> {
    match field.text(report)? {
        "keep" => Some(false),
        "return" => Some(true),
        other => {
            let meant = match nearest(other, &["keep", "return"]) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "write keep or return".to_owned(),
            };
            field.reject(report, format!("{} is not a value of on_lost_end; {meant}", quoted(other)));
            None
        }
    }
}
