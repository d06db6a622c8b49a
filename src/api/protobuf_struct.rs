//! `google.protobuf.Struct` from and to JSON.

use prost_types::{ListValue, Struct, value::Kind};
use serde_json::{Map, Value};

/// Largest whole number up to which a double represents every one.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// The Struct of a JSON object.
pub(crate) fn to_struct(object: Map<String, Value>) -> Struct {
    Struct { fields: object.into_iter().map(|(key, value)| (key, to_value(value))).collect() }
}

fn to_value(value: Value) -> prost_types::Value {
    let kind = match value {
        Value::Null => Kind::NullValue(0),
        Value::Bool(boolean) => Kind::BoolValue(boolean),
        // The JSON mapping of protobuf has doubles only.
        Value::Number(number) => Kind::NumberValue(number.as_f64().unwrap_or(f64::MAX)),
        Value::String(text) => Kind::StringValue(text),
        Value::Array(items) => {
            Kind::ListValue(ListValue { values: items.into_iter().map(to_value).collect() })
        }
        Value::Object(object) => Kind::StructValue(to_struct(object)),
    };
    prost_types::Value { kind: Some(kind) }
}

/// The JSON object of a Struct. Its numbers are doubles; whole numbers become integers.
pub(crate) fn to_object(fields: &Struct) -> Map<String, Value> {
    fields.fields.iter().map(|(key, field)| (key.clone(), to_json(field))).collect()
}

fn to_json(value: &prost_types::Value) -> Value {
    match &value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::NumberValue(number)) if number.fract() == 0.0 && number.abs() < EXACT_MAX => {
            (*number as i64).into()
        }
        Some(Kind::NumberValue(number)) => (*number).into(),
        Some(Kind::StringValue(text)) => text.as_str().into(),
        Some(Kind::BoolValue(boolean)) => (*boolean).into(),
        Some(Kind::StructValue(fields)) => Value::Object(to_object(fields)),
        Some(Kind::ListValue(list)) => list.values.iter().map(to_json).collect(),
    }
}
