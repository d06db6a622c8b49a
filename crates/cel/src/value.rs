//! Values of expressions.

use crate::{Descriptors, EvaluationError};
use std::{borrow::Cow, cmp::Ordering, rc::Rc};

/// A value. Descriptors are read where they are.
#[derive(Clone, Debug)]
pub enum Value<'t> {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number that is not negative.
    Uint(u64),
    /// A floating-point number.
    Double(f64),
    /// A text.
    Text(Cow<'t, str>),
    /// A list.
    List(Rc<[Value<'t>]>),
    /// A map, whose keys differ.
    Map(Rc<[(Value<'t>, Value<'t>)]>),
    /// The descriptors of the request.
    Descriptors,
    /// The descriptor with this index, which exists.
    Descriptor(usize),
}

impl<'t> Value<'t> {
    /// The text for the key of a counter; none for lists and maps.
    pub fn into_text(self) -> Option<Cow<'t, str>> {
        Some(match self {
            Self::Null => Cow::Borrowed("null"),
            Self::Bool(true) => Cow::Borrowed("true"),
            Self::Bool(false) => Cow::Borrowed("false"),
            Self::Int(number) => Cow::Owned(number.to_string()),
            Self::Uint(number) => Cow::Owned(number.to_string()),
            Self::Double(number) => Cow::Owned(number.to_string()),
            Self::Text(text) => text,
            Self::List(_) | Self::Map(_) | Self::Descriptors | Self::Descriptor(_) => return None,
        })
    }

    pub(crate) fn is_list(&self) -> bool {
        matches!(self, Self::List(_) | Self::Descriptors)
    }

    pub(crate) fn is_map(&self) -> bool {
        matches!(self, Self::Map(_) | Self::Descriptor(_))
    }

    /// The order of two values of one type, or of two numbers; none if they are unordered.
    pub(crate) fn order(&self, other: &Self) -> Result<Option<Ordering>, EvaluationError> {
        match (self, other) {
            (Self::Bool(one), Self::Bool(other)) => Ok(Some(one.cmp(other))),
            (Self::Text(one), Self::Text(other)) => Ok(Some(one.cmp(other))),
            _ => self.order_of_numbers(other).ok_or(EvaluationError::Type),
        }
    }

    /// The order of two numbers; none if a value is not a number.
    pub(crate) fn order_of_numbers(&self, other: &Self) -> Option<Option<Ordering>> {
        let whole = |value: &Self| match value {
            Self::Int(number) => Some(i128::from(*number)),
            Self::Uint(number) => Some(i128::from(*number)),
            _ => None,
        };
        if let (Some(one), Some(other)) = (whole(self), whole(other)) {
            return Some(Some(one.cmp(&other)));
        }
        let double = |value: &Self| match value {
            Self::Double(number) => Some(*number),
            _ => whole(value).map(|number| number as f64),
        };
        Some(double(self)?.partial_cmp(&double(other)?))
    }
}

/// The items of a list, or the keys of a map; empty for other values.
pub(crate) fn items<'t>(value: &Value<'t>, descriptors: &dyn Descriptors<'t>) -> Vec<Value<'t>> {
    match value {
        Value::List(items) => items.to_vec(),
        Value::Descriptors => (0..descriptors.len()).map(Value::Descriptor).collect(),
        _ => pairs(value, descriptors).into_iter().map(|pair| pair.0).collect(),
    }
}

/// The pairs of a map; empty for other values.
pub(crate) fn pairs<'t>(value: &Value<'t>, descriptors: &dyn Descriptors<'t>) -> Vec<(Value<'t>, Value<'t>)> {
    match value {
        Value::Map(pairs) => pairs.to_vec(),
        Value::Descriptor(descriptor) => {
            let text = |text: &'t str| Value::Text(Cow::Borrowed(text));
            let entries =
                (0..descriptors.entries(*descriptor)).map(|entry| descriptors.entry(*descriptor, entry));
            let mut pairs: Vec<(&str, &str)> = Vec::new();
            for (key, value) in entries {
                match pairs.iter_mut().find(|pair| pair.0 == key) {
                    Some(pair) => pair.1 = value,
                    None => pairs.push((key, value)),
                }
            }
            pairs.into_iter().map(|(key, value)| (text(key), text(value))).collect()
        }
        _ => Vec::new(),
    }
}
