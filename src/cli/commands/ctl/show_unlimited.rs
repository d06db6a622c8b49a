//! Descriptors without a limit: a table, and below it a rule for each.

use super::{show::time_text, shown::Shown};
use crate::{api::pb::control as pb, cli::output::table};

pub(super) fn unlimited(response: &pb::ListUnlimitedResponse) -> Shown {
    if response.total == 0 && response.others == 0 {
        return Shown::new(
            "ListUnlimitedResponse",
            response,
            "no descriptor was without a limit since the start",
        );
    }
    let mut rows = table::table(["domain", "keys", "descriptors", "first", "last", "most like it"]);
    for path in &response.paths {
        let at = if path.declared_at.is_empty() { String::new() } else { format!(" ({})", path.declared_at) };
        rows.add_row([
            path.domain.clone(),
            keys(path),
            path.descriptors.to_string(),
            time_text(path.first.as_ref()),
            time_text(path.last.as_ref()),
            format!("{}{at}", path.nearest),
        ]);
    }
    let mut text = rows.to_string();
    for path in &response.paths {
        let yaml: String = path.yaml.lines().map(|line| format!("\n    {line}")).collect();
        text +=
            &format!("\n\n{}: {}\n  {}\n  in {}:{yaml}", path.domain, keys(path), path.reason, path.place);
    }
    let unlisted = (response.total as usize).saturating_sub(response.paths.len());
    if unlisted > 0 {
        text += &format!("\n\n{unlisted} more: --limit {}", response.total);
    }
    if response.others > 0 {
        text += &format!("\n\n{} descriptors with other keys or domains", response.others);
    }
    Shown::new("ListUnlimitedResponse", response, text)
}

fn keys(path: &pb::UnlimitedPath) -> String {
    path.keys.join(" → ")
}
