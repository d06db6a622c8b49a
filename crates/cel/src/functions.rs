//! The functions of expressions.

use crate::{Descriptors, EvaluationError as Error, Value};
use std::borrow::Cow;

/// A function; `matches` is not among them, because its pattern is compiled beforehand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Function {
    Size,
    Contains,
    StartsWith,
    EndsWith,
    Bool,
    Double,
    Dyn,
    Int,
    String,
    Uint,
}

/// Names of functions and macros, for errors.
pub(crate) const NAMES: &str = "has, size, contains, startsWith, endsWith, matches, exists, exists_one, all, map, filter, int, uint, \
                                double, string, bool, dyn";

impl Function {
    /// The function that is called as `value.name(…)`, and the number of arguments with the value.
    pub(crate) fn method(name: &str) -> Option<(Self, usize)> {
        Some(match name {
            "size" => (Self::Size, 1),
            "contains" => (Self::Contains, 2),
            "startsWith" => (Self::StartsWith, 2),
            "endsWith" => (Self::EndsWith, 2),
            _ => return None,
        })
    }

    /// The function of one argument that is called as `name(…)`.
    pub(crate) fn global(name: &str) -> Option<Self> {
        Some(match name {
            "size" => Self::Size,
            "bool" => Self::Bool,
            "double" => Self::Double,
            "dyn" => Self::Dyn,
            "int" => Self::Int,
            "string" => Self::String,
            "uint" => Self::Uint,
            _ => return None,
        })
    }
}

/// Calls the function. The parser has checked the number of arguments.
pub(crate) fn call<'t>(
    function: Function,
    arguments: &[Value<'t>],
    descriptors: &dyn Descriptors<'t>,
) -> Result<Value<'t>, Error> {
    if let [Value::Text(text), Value::Text(part)] = arguments {
        return Ok(Value::Bool(match function {
            Function::Contains => text.contains(&**part),
            Function::StartsWith => text.starts_with(&**part),
            Function::EndsWith => text.ends_with(&**part),
            _ => return Err(Error::Type),
        }));
    }
    let [of] = arguments else { return Err(Error::Type) };
    match function {
        Function::Dyn => Ok(of.clone()),
        Function::Size => Ok(Value::Int(match of {
            Value::Text(text) => text.chars().count(),
            Value::List(items) => items.len(),
            Value::Map(pairs) => pairs.len(),
            Value::Descriptors => descriptors.len(),
            Value::Descriptor(_) => crate::value::items(of, descriptors).len(),
            _ => return Err(Error::Type),
        } as i64)),
        Function::Bool => match of {
            Value::Bool(_) => Ok(of.clone()),
            Value::Text(text) => match &**text {
                "true" | "True" | "TRUE" | "t" | "1" => Ok(Value::Bool(true)),
                "false" | "False" | "FALSE" | "f" | "0" => Ok(Value::Bool(false)),
                _ => Err(Error::Conversion),
            },
            _ => Err(Error::Type),
        },
        Function::Int => to_int(of).map(Value::Int),
        Function::Uint => to_uint(of).map(Value::Uint),
        Function::Double => match of {
            Value::Double(_) => Ok(of.clone()),
            Value::Int(number) => Ok(Value::Double(*number as f64)),
            Value::Uint(number) => Ok(Value::Double(*number as f64)),
            Value::Text(text) => text.parse().map(Value::Double).map_err(|_| Error::Conversion),
            _ => Err(Error::Type),
        },
        Function::String => match of {
            Value::Null => Err(Error::Type),
            _ => of
                .clone()
                .into_text()
                .map(|text| Value::Text(Cow::Owned(text.into_owned())))
                .ok_or(Error::Type),
        },
        Function::Contains | Function::StartsWith | Function::EndsWith => Err(Error::Type),
    }
}

fn to_int(of: &Value<'_>) -> Result<i64, Error> {
    match of {
        Value::Int(number) => Ok(*number),
        Value::Uint(number) => i64::try_from(*number).map_err(|_| Error::Number),
        // Truncated, as CEL has it. The bounds are exact as doubles.
        Value::Double(number) if *number > -(2_f64.powi(63)) && *number < 2_f64.powi(63) => {
            Ok(*number as i64)
        }
        Value::Double(_) => Err(Error::Number),
        Value::Text(text) => text.parse().map_err(|_| Error::Conversion),
        _ => Err(Error::Type),
    }
}

fn to_uint(of: &Value<'_>) -> Result<u64, Error> {
    match of {
        Value::Uint(number) => Ok(*number),
        Value::Int(number) => u64::try_from(*number).map_err(|_| Error::Number),
        Value::Double(number) if *number >= 0.0 && *number < 2_f64.powi(64) => Ok(*number as u64),
        Value::Double(_) => Err(Error::Number),
        Value::Text(text) => text.parse().map_err(|_| Error::Conversion),
        _ => Err(Error::Type),
    }
}
