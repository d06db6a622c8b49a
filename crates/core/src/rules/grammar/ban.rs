//! `ban` of a limit: a key that it denies again and again is denied for a while.

use super::{algorithm::Counting, walk::Walk, window};
use crate::{
    algorithm::Ban,
    rules::yaml::{Field, Fields, quoted},
};

impl Walk<'_> {
    /// Reads the ban of a limit.
    pub(super) fn ban(&mut self, fields: &mut Fields<'_>, counting: &Counting) -> Option<Ban> {
        let field = fields.take("ban")?;
        let mut fields = field.fields()?;
        let after = fields.require("after", "write `after: 5 denials`").and_then(|field| denials(&field));
        let within =
            fields.require("within", "write `within: 1m`").and_then(|field| window::of_length(&field));
        let lasts = fields.require("for", "write `for: 10m`").and_then(|field| window::of_length(&field));
        fields.finish(|name| match name {
            "unit" | "per" => {
                Some("write `within` for the time of the denials, and `for` for that of the ban")
            }
            _ => None,
        });
        if counting.algorithm.queue().is_some() {
            return field.refuse("does not apply to a limit that queues requests; remove this or `max_wait`");
        }
        if self.is_shared {
            let message = "cannot be counted in a shared store: denials are counted by one process; remove it, or write \
                           `counters: local` beside `domain`";
            return field.refuse(message);
        }
        Some(Ban { after: after?, within: within?, lasts: lasts?, epoch: 0 })
    }
}

/// `5 denials`, or `5`.
fn denials(field: &Field<'_>) -> Option<u32> {
    let text = field.text()?;
    let number = text.strip_suffix("denials").or_else(|| text.strip_suffix("denial")).unwrap_or(text).trim();
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    match number.parse() {
        _ if !is_number => field.refuse(format!("{} is no number of denials; write 5 denials", quoted(text))),
        Ok(after) if (1..=Ban::AFTER_MAX).contains(&after) => Some(after),
        _ => {
            let most = Ban::AFTER_MAX;
            field.refuse(format!("a ban begins after 1 to {most} denials; write a number from that range"))
        }
    }
}
