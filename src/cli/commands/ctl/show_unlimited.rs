//! Descriptors without a limit, and descriptors that state no day for their windows: a table of each, and below it a remedy for each path.

use super::{show::time_text, shown::Shown};
use crate::{api::pb::control as pb, cli::output::table};
use std::fmt::Write as _;

pub(super) fn unlimited(response: &pb::ListUnlimitedResponse) -> Shown {
    let mut parts = Vec::new();
    if response.total > 0 || response.others > 0 {
        parts.push(without_limit(response));
    }
    if response.unknown_days_total > 0 || response.unknown_days_others > 0 {
        parts.push(without_day(response));
    }
    let text = match parts.is_empty() {
        true => "no descriptor was without a limit since the start".to_owned(),
        false => parts.join("\n\n"),
    };
    Shown::new(response, text)
}

fn without_limit(response: &pb::ListUnlimitedResponse) -> String {
    let mut rows = table::table(["domain", "keys", "descriptors", "first", "last", "most like it"]);
    for path in &response.paths {
        rows.add_row([
            path.domain.clone(),
            keys(&path.keys),
            path.descriptors.to_string(),
            time_text(path.first.as_ref()),
            time_text(path.last.as_ref()),
            at(&path.nearest, &path.declared_at),
        ]);
    }
    let mut text = rows.to_string();
    for path in &response.paths {
        let (domain, keys) = (&path.domain, keys(&path.keys));
        let yaml: String = path.yaml.lines().map(|line| format!("\n    {line}")).collect();
        // Writing to a string does not fail.
        let _ = write!(text, "\n\n{domain}: {keys}\n  {}\n  in {}:{yaml}", path.reason, path.place);
    }
    text + &rest(response.paths.len(), response.total, response.others)
}

fn without_day(response: &pb::ListUnlimitedResponse) -> String {
    let mut rows = table::table(["domain", "keys without a day", "descriptors", "first", "last", "rule"]);
    for path in &response.unknown_days {
        rows.add_row([
            path.domain.clone(),
            keys(&path.keys),
            path.descriptors.to_string(),
            time_text(path.first.as_ref()),
            time_text(path.last.as_ref()),
            at(&path.rule, &path.declared_at),
        ]);
    }
    let mut text = rows.to_string();
    for path in &response.unknown_days {
        let (domain, keys) = (&path.domain, keys(&path.keys));
        // Writing to a string does not fail.
        let _ = write!(text, "\n\n{domain}: {keys}\n  {}\n  {}", path.reason, path.remedy);
    }
    text + &rest(response.unknown_days.len(), response.unknown_days_total, response.unknown_days_others)
}

/// Notes on paths that are not listed.
fn rest(listed: usize, total: u32, others: u64) -> String {
    let mut text = String::new();
    let unlisted = (total as usize).saturating_sub(listed);
    if unlisted > 0 {
        text += &format!("\n\n{unlisted} more: --limit {total}");
    }
    if others > 0 {
        text += &format!("\n\n{others} descriptors with other keys or domains");
    }
    text
}

fn at(rule: &str, declared_at: &str) -> String {
    match declared_at {
        "" => rule.to_owned(),
        _ => format!("{rule} ({declared_at})"),
    }
}

fn keys(keys: &[String]) -> String {
    keys.join(" → ")
}
