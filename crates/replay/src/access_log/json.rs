//! Fields of lines that are JSON objects.

use super::element::{element, name_and_index, place_of, present};
use crate::{LineError, line::syntax};
use serde_json::Value;
use smol_str::SmolStr;
use std::borrow::Cow;

/// The name of a field: a member, or nested members and elements such as `headers.tags[0]`.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct JsonPath {
    /// The name as it was given. A member may have exactly this name.
    name: SmolStr,
    steps: Vec<Step>,
}

#[derive(Clone, PartialEq, Debug)]
enum Step {
    Member(SmolStr),
    /// Counted from the end if it is negative.
    Element(i64),
}

/// Reads a line.
pub(super) fn parse(line: &[u8]) -> Result<Value, LineError> {
    serde_json::from_slice(line).map_err(|error| syntax(&error))
}

impl JsonPath {
    pub(super) fn parse(name: &str) -> Self {
        let mut steps = Vec::new();
        for part in name.split('.') {
            let (mut member, mut elements) = (part, Vec::new());
            while let Some((rest, index)) = name_and_index(member) {
                elements.push(Step::Element(index));
                member = rest;
            }
            steps.push(Step::Member(member.into()));
            steps.extend(elements.into_iter().rev());
        }
        Self { name: name.into(), steps }
    }

    /// The value, and the index of an element to take from its text.
    fn find<'v>(&self, object: &'v Value) -> Option<(&'v Value, Option<i64>)> {
        if let Some(value) = object.get(&*self.name) {
            return Some((value, None));
        }
        let (mut value, mut steps) = (object, self.steps.iter());
        while let Some(step) = steps.next() {
            value = match (step, value) {
                (Step::Member(name), _) => value.get(&**name)?,
                (Step::Element(index), Value::Array(values)) => &values[place_of(*index, values.len())?],
                (Step::Element(index), Value::String(_)) if steps.len() == 0 => {
                    return Some((value, Some(*index)));
                }
                (Step::Element(_), _) => return None,
            };
        }
        Some((value, None))
    }

    /// The text of the field in an object.
    pub(super) fn text<'v>(&self, object: &'v Value) -> Option<Cow<'v, str>> {
        let (value, index) = self.find(object)?;
        present(match value {
            Value::String(text) => return element(Cow::Borrowed(text), index),
            Value::Number(number) => Cow::Owned(number.to_string()),
            Value::Bool(bool) => Cow::Owned(bool.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        })
    }
}
