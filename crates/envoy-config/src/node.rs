//! A configuration as a tree of checked values with their paths, from either form.

use super::schema::{Field, Kind, Message};
use serde_json::Value as Json;
use std::{cell::RefCell, time::Duration};

/// All problems of a configuration, with the paths of fields.
#[derive(Default)]
pub struct Problems(RefCell<Vec<String>>);

impl Problems {
    /// Adds a problem at the path of a field.
    pub fn add(&self, path: &str, problem: impl AsRef<str>) {
        let problem = problem.as_ref();
        let line = if path.is_empty() { problem.to_owned() } else { format!("{path}: {problem}") };
        self.0.borrow_mut().push(line);
    }

    /// All of them, as `path: problem`.
    pub(crate) fn into_lines(self) -> Vec<String> {
        self.0.into_inner()
    }

    /// Returns the value, unless there are problems.
    pub fn or<T>(self, value: T) -> Result<T, String> {
        let problems = self.0.into_inner();
        if problems.is_empty() { Ok(value) } else { Err(problems.join("\n")) }
    }
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A boolean.
    Bool(bool),
    /// A whole number from 0.
    Unsigned(u64),
    /// A whole number.
    Signed(i64),
    /// The number of an enumeration's value.
    Enum(u32),
    /// A duration.
    Duration(Duration),
    /// A message.
    Node(Node),
    /// The values of a repeated field.
    List(Vec<Value>),
    /// A value that is not read.
    Opaque,
}

/// A message: the fields that are set. Scalars are as the schema has them; absent ones have their default.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Node {
    /// Place of the message: `rate_limits[0].actions[1]`.
    pub path: String,
    fields: Vec<(&'static str, Value)>,
}

impl Node {
    /// A message without fields at a path.
    pub fn at(path: String) -> Self {
        Self { path, fields: Vec::new() }
    }

    /// The length of a prefix; `max` if it is not set, or too large.
    pub fn prefix_length(&self, name: &str, max: u8, problems: &Problems) -> u8 {
        match self.unsigned(name) {
            None => max,
            Some(length) => u8::try_from(length).ok().filter(|length| *length <= max).unwrap_or_else(|| {
                problems.add(&self.path_of(name), format!("{length} is above {max}"));
                max
            }),
        }
    }

    /// Path of a field.
    pub fn path_of(&self, name: &str) -> String {
        if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) }
    }

    /// Sets a field, or adds to a repeated one.
    pub fn set(&mut self, field: &Field, value: Value) {
        match self.fields.iter_mut().find(|(name, _)| *name == field.name) {
            Some((_, Value::List(list))) => list.push(value),
            Some((_, former)) => *former = value,
            None if field.is_repeated => self.fields.push((field.name, Value::List(vec![value]))),
            None => self.fields.push((field.name, value)),
        }
    }

    /// Number of values of a field so far.
    pub fn count(&self, name: &str) -> usize {
        self.list(name).len()
    }

    /// The value of a field, if it is set.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.fields.iter().find(|(own, _)| *own == name).map(|(_, value)| value)
    }

    /// Whether the field is set.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// The names of the fields that are set.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.fields.iter().map(|(name, _)| *name)
    }

    /// A text; empty if it is not set.
    pub fn text(&self, name: &str) -> &str {
        match self.get(name) {
            Some(Value::Text(text)) => text,
            _ => "",
        }
    }

    /// A text that has to be set.
    pub fn required(&self, name: &str, problems: &Problems) -> String {
        let text = self.text(name);
        if text.is_empty() {
            problems.add(&self.path_of(name), "is empty; set it");
        }
        text.to_owned()
    }

    /// A text, or a default where it is empty.
    pub fn text_or(&self, name: &str, default: &str) -> String {
        let text = self.text(name);
        if text.is_empty() { default.to_owned() } else { text.to_owned() }
    }

    /// A boolean; false if it is not set.
    pub fn bool(&self, name: &str) -> bool {
        self.bool_or(name, false)
    }

    /// A boolean, or a default where it is not set.
    pub fn bool_or(&self, name: &str, default: bool) -> bool {
        match self.get(name) {
            Some(Value::Bool(value)) => *value,
            _ => default,
        }
    }

    /// A whole number from 0, if it is set.
    pub fn unsigned(&self, name: &str) -> Option<u64> {
        match self.get(name) {
            Some(Value::Unsigned(value)) => Some(*value),
            _ => None,
        }
    }

    /// A whole number; 0 if it is not set.
    pub fn signed(&self, name: &str) -> i64 {
        match self.get(name) {
            Some(Value::Signed(value)) => *value,
            _ => 0,
        }
    }

    /// A duration, if it is set.
    pub fn duration(&self, name: &str) -> Option<Duration> {
        match self.get(name) {
            Some(Value::Duration(value)) => Some(*value),
            _ => None,
        }
    }

    /// The number of the value of an enumeration; 0 if it is not set.
    pub fn number_of(&self, name: &str) -> u32 {
        match self.get(name) {
            Some(Value::Enum(value)) => *value,
            _ => 0,
        }
    }

    /// A message, if it is set.
    pub fn node(&self, name: &str) -> Option<&Node> {
        match self.get(name) {
            Some(Value::Node(node)) => Some(node),
            _ => None,
        }
    }

    /// The messages of a list.
    pub fn nodes(&self, name: &str) -> impl Iterator<Item = &Node> {
        self.list(name).iter().filter_map(|value| match value {
            Value::Node(node) => Some(node),
            _ => None,
        })
    }

    fn list(&self, name: &str) -> &[Value] {
        match self.get(name) {
            Some(Value::List(list)) => list,
            _ => &[],
        }
    }
}

/// Reads a message from JSON. Fields that are null are not set.
pub fn from_json(
    json: &serde_json::Map<String, Json>,
    message: &Message,
    path: String,
    problems: &Problems,
) -> Node {
    let mut node = Node::at(path);
    for (name, json) in json {
        if name == "@type" || json.is_null() {
            continue;
        }
        let field_path = node.path_of(name);
        let Some(field) = message.0.iter().find(|field| is_called(field.name, name)) else {
            problems.add(&field_path, "is not a field that Tidegate knows; remove it");
            continue;
        };
        match (field.is_repeated, json) {
            (false, json) => {
                if let Some(value) = value(json, field.kind, field_path, problems) {
                    node.set(field, value);
                }
            }
            (true, Json::Array(list)) => {
                for (index, json) in list.iter().enumerate() {
                    if let Some(value) = value(json, field.kind, format!("{field_path}[{index}]"), problems) {
                        node.set(field, value);
                    }
                }
            }
            (true, _) => problems.add(&field_path, "is not a list"),
        }
    }
    node
}

/// Whether a field may have this name in JSON: `skip_if_absent` or `skipIfAbsent`.
pub(crate) fn is_called(field: &str, name: &str) -> bool {
    if field == name {
        return true;
    }
    let mut name = name.chars();
    let mut is_upper = false;
    for own in field.chars() {
        if own == '_' {
            is_upper = true;
            continue;
        }
        let expected = if is_upper { own.to_ascii_uppercase() } else { own };
        is_upper = false;
        if name.next() != Some(expected) {
            return false;
        }
    }
    name.next().is_none()
}

fn value(json: &Json, kind: Kind, path: String, problems: &Problems) -> Option<Value> {
    let (expected, read) = match kind {
        Kind::Text => ("a text", json.as_str().map(|text| Value::Text(text.to_owned()))),
        Kind::Bool => ("true or false", json.as_bool().map(Value::Bool)),
        Kind::Unsigned => ("a whole number from 0", whole(json).map(Value::Unsigned)),
        Kind::Signed => ("a whole number", whole(json).map(Value::Signed)),
        Kind::Enum(names) => {
            let by_name =
                |text: &str| names.iter().find(|(_, name)| *name == text).map(|(number, _)| *number);
            let by_number = |number: u32| names.iter().any(|(own, _)| *own == number).then_some(number);
            let number = json.as_str().and_then(by_name).or_else(|| whole(json).and_then(by_number));
            ("a value of this enumeration", number.map(Value::Enum))
        }
        Kind::Message(message) => {
            let node = json.as_object().map(|json| from_json(json, message, path.clone(), problems));
            ("an object", node.map(Value::Node))
        }
        Kind::Wrapped(kind) => return value(json, *kind, path, problems),
        Kind::Duration => {
            ("a duration such as \"0.02s\"", json.as_str().and_then(parse_duration).map(Value::Duration))
        }
        Kind::Opaque => ("", Some(Value::Opaque)),
    };
    if read.is_none() {
        problems.add(&path, format!("{json} is not {expected}"));
    }
    read
}

/// A whole number: a JSON number, even if `google.protobuf.Struct` has made it a fraction, or a text, as JSON has 64 bits.
fn whole<N: TryFrom<i128>>(json: &Json) -> Option<N> {
    let number = match json {
        Json::Number(number) => match number.as_i64().map(i128::from).or(number.as_u64().map(i128::from)) {
            Some(number) => number,
            None => number.as_f64().filter(|number| number.fract() == 0.0).map(|number| number as i128)?,
        },
        Json::String(text) => text.parse().ok()?,
        _ => return None,
    };
    N::try_from(number).ok()
}

/// A duration as JSON has it: seconds with up to nine decimals, and `s`.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    let (whole, fraction) = match text.strip_suffix('s')?.split_once('.') {
        Some((whole, fraction)) => (whole, fraction),
        None => (text.strip_suffix('s')?, ""),
    };
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) || fraction.len() > 9 {
        return None;
    }
    let seconds = whole.parse::<u32>().ok()?;
    let nanos = format!("{fraction:0<9}").parse().ok()?;
    Some(Duration::new(seconds.into(), nanos))
}

/// A text in which Envoy would replace `%…%`, if it has none of these: `%%` is a percent sign.
pub fn literal(text: &str, path: &str, problems: &Problems) -> Option<String> {
    let unescaped = text.replace("%%", "\0");
    if unescaped.contains('%') {
        let remedy = "`%…%` can only be evaluated by Envoy; write a constant, with `%%` for a percent sign";
        problems.add(path, format!("{text:?}: {remedy}"));
        return None;
    }
    Some(unescaped.replace('\0', "%"))
}
