//! The response to denied requests: its status and headers.

use http::{HeaderName, HeaderValue};
use tidegate_envoy_config::{Node, Problems, literal};

/// A header of denials.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AddedHeader {
    pub(crate) name: HeaderName,
    pub(crate) value: HeaderValue,
    pub(crate) merge: Merge,
}

/// The effect on a header that exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Merge {
    Append,
    AddIfAbsent,
    Overwrite,
    OverwriteIfPresent,
}

/// A status of the response. Those below `least` count as not configured, as in Envoy's filter.
pub(super) fn status(node: Option<&Node>, default: u16, least: u16) -> u16 {
    let code = node.map_or(0, |node| node.number_of("code"));
    u16::try_from(code).ok().filter(|code| *code >= least).unwrap_or(default)
}

/// `response_headers_to_add`.
pub(super) fn headers(node: &Node, problems: &Problems) -> Vec<AddedHeader> {
    node.nodes("response_headers_to_add").filter_map(|node| header(node, problems)).collect()
}

fn header(node: &Node, problems: &Problems) -> Option<AddedHeader> {
    let empty = Node::at(node.path_of("header"));
    let header = node.node("header").unwrap_or(&empty);
    if header.has("raw_value") {
        problems.add(&header.path_of("raw_value"), "is not supported by the module; write `value`");
    }
    let name = header.required("key", problems);
    let name = match HeaderName::try_from(name.as_str()) {
        Ok(name) => name,
        Err(_) if name.is_empty() => return None,
        Err(_) => {
            problems.add(&header.path_of("key"), format!("{name:?} is not a name of a header"));
            return None;
        }
    };
    let own = [http::header::CONTENT_TYPE, http::header::CONTENT_LENGTH];
    if own.contains(&name) {
        problems.add(&header.path_of("key"), format!("{name} of a denial cannot be changed by the module"));
    }
    let text = literal(header.text("value"), &header.path_of("value"), problems)?;
    if text.is_empty() && !node.bool("keep_empty_value") {
        // As Envoy: the header is not added.
        return None;
    }
    let Ok(value) = HeaderValue::from_str(&text) else {
        problems.add(&header.path_of("value"), format!("{text:?} is not a value of a header"));
        return None;
    };
    let merge = match (node.has("append"), node.number_of("append_action")) {
        (true, 0) if !node.bool("append") => Merge::Overwrite,
        (_, 0) => Merge::Append,
        (_, 1) => Merge::AddIfAbsent,
        (_, 2) => Merge::Overwrite,
        (_, _) => Merge::OverwriteIfPresent,
    };
    Some(AddedHeader { name, value, merge })
}
