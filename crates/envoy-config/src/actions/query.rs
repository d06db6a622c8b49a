//! Parameters of the query, decoded as Envoy does.

use super::text_match::TextMatch;
use crate::node::{Node, Problems};
use std::borrow::Cow;

/// The value of the first parameter of that name.
pub(super) fn first<'p>(path: &'p [u8], name: &str) -> Option<Cow<'p, [u8]>> {
    first_by(path, name, percent_decoded)
}

/// Value of the first parameter with that name; `read` decodes names and values.
fn first_by<'p>(path: &'p [u8], name: &str, read: fn(&[u8]) -> Cow<'_, [u8]>) -> Option<Cow<'p, [u8]>> {
    let query = path.iter().position(|byte| *byte == b'?').map(|mark| &path[mark + 1..])?;
    if query.is_empty() {
        return None;
    }
    // Text after a final `&` is not a parameter.
    let query = query.strip_suffix(b"&").unwrap_or(query);
    query.split(|byte| *byte == b'&').find_map(|parameter| {
        let equals = parameter.iter().position(|byte| *byte == b'=');
        let (own, value) = match equals {
            Some(at) => (&parameter[..at], &parameter[at + 1..]),
            None => (parameter, &[][..]),
        };
        (*read(own) == *name.as_bytes()).then(|| read(value))
    })
}

/// Decodes `%xx`; other text stays as it is. A plus is a plus, as in Envoy.
pub fn percent_decoded(text: &[u8]) -> Cow<'_, [u8]> {
    percent_encoding::percent_decode(text).into()
}

/// `QueryParameterMatcher`.
#[derive(Debug, PartialEq)]
pub(crate) struct QueryMatch {
    name: String,
    kind: Kind,
}

#[derive(Debug, PartialEq)]
enum Kind {
    Present(bool),
    Text(TextMatch),
}

impl QueryMatch {
    pub(crate) fn read(node: &Node, problems: &Problems) -> Option<Self> {
        let name = node.required("name", problems);
        let kind = match node.node("string_match") {
            Some(text) => Kind::Text(TextMatch::read(text, problems)?),
            None => Kind::Present(node.bool_or("present_match", true)),
        };
        Some(Self { name, kind })
    }

    pub(crate) fn matches(&self, path: &[u8]) -> bool {
        self.matches_value(first(path, &self.name))
    }

    /// Whether the parameters match undecoded: that is how routes match.
    pub(crate) fn matches_undecoded(&self, path: &[u8]) -> bool {
        self.matches_value(first_by(path, &self.name, |text| Cow::Borrowed(text)))
    }

    fn matches_value(&self, value: Option<Cow<'_, [u8]>>) -> bool {
        match &self.kind {
            Kind::Present(present) => value.is_some() == *present,
            Kind::Text(text) => value.is_some_and(|value| text.matches(&value)),
        }
    }
}
