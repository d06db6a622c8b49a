//! A part of a configuration file, with its place.

use crate::{
    node::{Node, Problems, from_json, is_called, parse_duration},
    schema::Message,
};
use std::time::Duration;
use tidegate_core::rules::{Located, Origin, SourceId};

/// A value of a configuration file. Names of fields are looked up in `snake_case` and `lowerCamelCase`, as protobuf's JSON has them.
#[derive(Clone, Copy, Debug)]
pub struct Part<'d> {
    source: &'d SourceId,
    value: Located<'d>,
}

impl<'d> Part<'d> {
    /// A value of a file.
    pub fn new(source: &'d SourceId, value: Located<'d>) -> Self {
        Self { source, value }
    }

    fn of(self, value: Located<'d>) -> Self {
        Self { value, ..self }
    }

    /// File, line and column.
    pub fn origin(self) -> Origin {
        Origin { source: self.source.clone(), position: Some(self.value.position()) }
    }

    /// The value of a field, if it is set.
    pub fn get(self, name: &str) -> Option<Self> {
        self.value.pairs().find(|(own, ..)| is_called(name, own)).map(|(.., value)| self.of(value))
    }

    /// Whether a field is set.
    pub fn has(self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The value of a field of fields: `get_in(["route", "cluster"])`.
    pub fn get_in<const N: usize>(self, names: [&str; N]) -> Option<Self> {
        names.into_iter().try_fold(self, Self::get)
    }

    /// The value as a text; empty if it is none.
    pub fn as_text(self) -> &'d str {
        self.value.text().unwrap_or_default()
    }

    /// A text; empty if it is not set.
    pub fn text(self, name: &str) -> &'d str {
        self.get(name).map_or("", Self::as_text)
    }

    /// A boolean; false if it is not set.
    pub fn flag(self, name: &str) -> bool {
        self.get(name).is_some_and(|part| part.value.json() == true)
    }

    /// A whole number, if it is set. Protobuf's JSON has numbers of 64 bits as texts.
    pub fn number(self, name: &str) -> Option<u64> {
        self.get(name)?.as_text().parse().ok()
    }

    /// A duration, if it is set.
    pub fn duration(self, name: &str) -> Option<Duration> {
        parse_duration(self.text(name))
    }

    /// The items of a list; none if it is not set.
    pub fn list(self, name: &str) -> impl Iterator<Item = Self> + use<'d> {
        self.get(name).into_iter().flat_map(Self::items)
    }

    /// The items of this list.
    pub fn items(self) -> impl Iterator<Item = Self> + use<'d> {
        self.value.items().map(move |item| self.of(item))
    }

    /// The fields of this map.
    pub fn fields(self) -> impl Iterator<Item = (&'d str, Self)> + use<'d> {
        self.value.pairs().map(move |(name, _, value)| (name, self.of(value)))
    }

    /// The last part of the message name in `@type`, such as `ratelimit.v3.RateLimit`; empty if there is none.
    pub fn message(self) -> &'d str {
        let name = self.value.get("@type").and_then(Located::text).unwrap_or_default();
        name.rsplit('/').next().unwrap_or_default()
    }

    /// The value as JSON.
    pub fn json(self) -> serde_json::Value {
        self.value.json()
    }

    /// The value as a message; none if it is no object.
    pub(crate) fn node(self, message: &Message, problems: &Problems) -> Option<Node> {
        Some(from_json(self.json().as_object()?, message, String::new(), problems))
    }

    /// The part at a path such as `actions[0].generic_key`, or the last existing part on the way.
    pub fn at(self, path: &str) -> Self {
        let mut part = self;
        for step in path.split(['.', '[']).filter(|step| !step.is_empty()) {
            let next = match step.strip_suffix(']').map(str::parse::<usize>) {
                Some(Ok(index)) => part.items().nth(index),
                _ => part.get(step),
            };
            let Some(next) = next else { break };
            part = next;
        }
        part
    }
}
