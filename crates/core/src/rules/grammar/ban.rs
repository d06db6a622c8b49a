//! `ban` of a limit: a key that it denies again and again is denied for a while.

use super::{algorithm::Counting, walk::Walk, window};
use crate::{
    algorithm::Ban,
    limit::Window,
    rules::yaml::{Field, Fields, Report, quoted},
};

impl Walk<'_, '_> {
    /// Reads the ban of a limit.
    pub(super) fn ban(&mut self, fields: &mut Fields<'_>, counting: &Counting) -> Option<Ban> {
        let field = fields.take("ban")?;
        let report = &mut self.report;
        let mut fields = field.fields(report)?;
        let after =
            required(&mut fields, "after", "5 denials", report).and_then(|field| denials(&field, report));
        let within = duration(&mut fields, "within", "1m", report);
        let lasts = duration(&mut fields, "for", "10m", report);
        fields.finish(report, |name| match name {
            "unit" | "per" => {
                Some("write `within` for the time of the denials, and `for` for that of the ban")
            }
            _ => None,
        });
        if counting.algorithm.queue().is_some() {
            let message = "does not apply to a limit that queues requests; remove this or `max_wait`";
            field.reject(report, message);
            return None;
        }
        if self.is_shared {
            let message = "cannot be counted in a shared store: denials are counted by one process; remove it, or write \
                           `counters: local` beside `domain`";
            field.reject(report, message);
            return None;
        }
        Some(Ban { after: after?, within: within?, lasts: lasts?, epoch: 0 })
    }
}

fn required<'n>(
    fields: &mut Fields<'n>,
    name: &'static str,
    example: &str,
    report: &mut Report<'_>,
) -> Option<Field<'n>> {
    let field = fields.take(name);
    if field.is_none() {
        report.at(fields.place(), fields.path_of(name), format!("is missing; write `{name}: {example}`"));
    }
    field
}

fn duration(
    fields: &mut Fields<'_>,
    name: &'static str,
    example: &str,
    report: &mut Report<'_>,
) -> Option<Window> {
    required(fields, name, example, report).and_then(|field| window::of_length(&field, report))
}

/// `5 denials`, or `5`.
fn denials(field: &Field<'_>, report: &mut Report<'_>) -> Option<u32> {
    let text = field.text(report)?;
    let number = text.strip_suffix("denials").or_else(|| text.strip_suffix("denial")).unwrap_or(text).trim();
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    match number.parse() {
        _ if !is_number => {
            field.reject(report, format!("{} is no number of denials; write 5 denials", quoted(text)));
            None
        }
        Ok(after) if (1..=Ban::AFTER_MAX).contains(&after) => Some(after),
        _ => {
            let message =
                format!("a ban begins after 1 to {} denials; write a number from that range", Ban::AFTER_MAX);
            field.reject(report, message);
            None
        }
    }
}
