//! `HeaderMatcher`.

use super::text_match::TextMatch;
use crate::{
    node::{Node, Problems},
    stream::{Envoy, Headers, Stream},
};
use std::borrow::Cow;

/// A match of a header of the request.
#[derive(Debug, PartialEq)]
pub(crate) struct HeaderMatch {
    pub(super) name: String,
    kind: Kind,
    invert: bool,
    missing_is_empty: bool,
    /// Whether each of several values is matched separately, as in Envoy since 1.39; else all of them as one text.
    by_value: bool,
}

#[derive(Debug, PartialEq)]
enum Kind {
    Present(bool),
    Text(TextMatch),
    /// From the first number, below the second.
    Range(i64, i64),
}

impl HeaderMatch {
    pub(crate) fn read(node: &Node, envoy: &Envoy, problems: &Problems) -> Option<Self> {
        let options = ["name", "invert_match", "treat_missing_header_as_empty"];
        let mut kinds = node.names().filter(|name| !options.contains(name));
        let kind = kinds.next();
        if kinds.next().is_some() {
            problems.add(&node.path, "has more than one match; leave one");
            return None;
        }
        let plain = |name: &str, kind: &str| Kind::Text(TextMatch::plain(kind, node.text(name), false));
        let kind = match kind {
            None => Kind::Present(true),
            Some("present_match") => Kind::Present(node.bool("present_match")),
            Some("string_match") => Kind::Text(TextMatch::read(node.node("string_match")?, problems)?),
            Some("safe_regex_match") => {
                Kind::Text(TextMatch::regex(node.node("safe_regex_match")?, problems)?)
            }
            Some("range_match") => {
                let range = node.node("range_match")?;
                Kind::Range(range.signed("start"), range.signed("end"))
            }
            // `exact_match` and so on, deprecated.
            Some(name) => plain(name, name.trim_end_matches("_match")),
        };
        Some(Self {
            name: node.required("name", problems).to_ascii_lowercase(),
            kind,
            invert: node.bool("invert_match"),
            missing_is_empty: node.bool("treat_missing_header_as_empty"),
            by_value: envoy.matches_each_value,
        })
    }

    pub(crate) fn matches(&self, stream: &dyn Stream) -> bool {
        let count = stream.header(Headers::Request, &self.name, 0).1;
        if let Kind::Present(present) = self.kind {
            let is_there = count > 0 || self.missing_is_empty;
            return (is_there == present) != self.invert;
        }
        // A missing header matches nothing, inverted or not.
        if count == 0 && !self.missing_is_empty {
            return false;
        }
        let is_match = match self.by_value {
            true => (0..count.max(1)).any(|index| {
                self.kind.matches(stream.header(Headers::Request, &self.name, index).0.unwrap_or_default())
            }),
            false => self.kind.matches(&all_values(stream, &self.name).unwrap_or_default()),
        };
        is_match != self.invert
    }
}

impl Kind {
    fn matches(&self, value: &[u8]) -> bool {
        match self {
            Self::Present(present) => *present,
            Self::Text(text) => text.matches(value),
            Self::Range(start, end) => whole(value).is_some_and(|number| (*start..*end).contains(&number)),
        }
    }
}

/// All values of a header of the request, separated by commas.
fn all_values<'h>(stream: &'h dyn Stream, name: &str) -> Option<Cow<'h, [u8]>> {
    let (first, count) = stream.header(Headers::Request, name, 0);
    let first = first?;
    if count < 2 {
        return Some(Cow::Borrowed(first));
    }
    let mut all = first.to_owned();
    for index in 1..count {
        all.push(b',');
        all.extend_from_slice(stream.header(Headers::Request, name, index).0.unwrap_or_default());
    }
    Some(Cow::Owned(all))
}

/// A whole number as Envoy reads it: white space around it and a sign are accepted.
fn whole(text: &[u8]) -> Option<i64> {
    str::from_utf8(text).ok()?.trim_ascii().parse().ok()
}
