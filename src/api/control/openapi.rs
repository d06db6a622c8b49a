//! The OpenAPI document of the control API, made from its messages; `docs/openapi-control.json` must equal it.

use super::{TAIL, error::Error, role_of};
use crate::api::pb;
use prost_reflect::{
    DescriptorPool, EnumDescriptor, FieldDescriptor, FileDescriptor, Kind, MessageDescriptor,
    MethodDescriptor, ServiceDescriptor,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use tidegate_http2::grpc::status_name;
use tidegate_operations::control::Role;
use tonic::Code;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/openapi-control.json");

type Schemas = BTreeMap<String, Value>;

fn service() -> ServiceDescriptor {
    let pool = DescriptorPool::decode(pb::CONTROL_DESCRIPTORS).expect("compiled with this crate");
    pool.get_service_by_name("tidegate.v1.Control").expect("declared")
}

fn document() -> Value {
    let (service, mut schemas) = (service(), Schemas::new());
    let operations = service.methods().map(|method| {
        let operation = json!({ "post": operation(&method, &mut schemas) });
        (format!("/control/v1/{}", method.name()), operation)
    });
    let paths: Map<String, Value> = operations.collect();
    let error = service.parent_pool().get_message_by_name("tidegate.v1.Error").expect("declared");
    add(&error, &mut schemas);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate control API",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Operations on a running server, on the HTTP port of one with `--control`: docs/control.md. \
                Bodies are in the JSON mapping of protobuf: fields with default values are left out of responses; requests \
                may have names in snake_case and 64-bit integers as numbers, too.",
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
        },
        "servers": [{ "url": "http://127.0.0.1:8082" }],
        "security": [{ "token": [] }],
        "paths": paths,
        "components": {
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            "schemas": schemas,
        },
    })
}

fn operation(method: &MethodDescriptor, schemas: &mut Schemas) -> Value {
    let (input, output) = (method.input(), method.output());
    add(&input, schemas);
    add(&output, schemas);
    let role = match role_of(method.name()).expect("every method has a role") {
        Role::Operate => "operate",
        Role::Read | Role::Lease | Role::None => "read",
    };
    let (media_type, meaning) = match method.name() {
        TAIL => ("application/x-ndjson", "Objects of this schema without end, one on each line."),
        _ => ("application/json", "The call succeeded."),
    };
    let success =
        json!({ "description": meaning, "content": { media_type: { "schema": reference(&output) } } });
    let mut responses = Map::from_iter([("200".to_owned(), success)]);
    responses.extend(failures());
    json!({
        "operationId": method.name(),
        "description": comment(&method.parent_file(), method.path()),
        "x-role": role,
        "requestBody": { "content": { "application/json": { "schema": reference(&input) } } },
        "responses": responses,
    })
}

/// The codes of errors: those with an HTTP status of their own, and INTERNAL, which has that of all others.
fn codes() -> impl Iterator<Item = Code> {
    let is_used = |code: &Code| *code == Code::Internal || http_status(*code) != http_status(Code::Internal);
    (1..=16).map(Code::from).filter(is_used)
}

fn http_status(code: Code) -> String {
    Error::new(code, "").http_status().as_str().to_owned()
}

fn name(code: Code) -> &'static str {
    status_name(code as u32).expect("every code has a name")
}

fn failures() -> Map<String, Value> {
    let mut by_status: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    codes().for_each(|code| by_status.entry(http_status(code)).or_default().push(name(code)));
    let text = json!({ "schema": { "type": "string" } });
    let response = |(status, codes): (String, Vec<&str>)| {
        let error = json!({ "schema": { "$ref": "#/components/schemas/Error" } });
        let mut response = json!({
            "description": format!("The `code` is {}.", codes.join(" or ")),
            "content": { "application/json": error },
        });
        match &*status {
            "400" => response["content"]["text/plain"] = text.clone(),
            "401" => {
                let challenge = json!({ "type": "string", "pattern": "^Bearer realm=\"tidegate\"" });
                response["headers"] =
                    json!({ "WWW-Authenticate": { "required": true, "schema": challenge } });
            }
            _ => {}
        }
        (status, response)
    };
    let of_codes: Vec<_> = by_status.into_iter().map(response).collect();
    let of_bodies = [
        ("408", "The body was not complete within `--http-timeout`."),
        ("413", "The body is longer than `--http-max-body-bytes`."),
    ];
    let of_bodies = of_bodies.map(|(status, description)| {
        (status.to_owned(), json!({ "description": description, "content": { "text/plain": text.clone() } }))
    });
    of_codes.into_iter().chain(of_bodies).collect()
}

fn reference(message: &MessageDescriptor) -> Value {
    json!({ "$ref": format!("#/components/schemas/{}", message.name()) })
}

/// The comment above a declaration, on one line.
fn comment(file: &FileDescriptor, path: &[i32]) -> String {
    let info = file.file_descriptor_proto().source_code_info.as_ref().expect("compiled with comments");
    let location = info.location.iter().find(|location| location.path == path);
    let text = location.and_then(|location| location.leading_comments.as_deref()).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Adds the schemas of a message and of those in its fields.
fn add(message: &MessageDescriptor, schemas: &mut Schemas) {
    if schemas.contains_key(message.name()) {
        return;
    }
    // In place before those of the fields, so that a recursive message ends.
    schemas.insert(message.name().to_owned(), Value::Null);
    let mut properties = Map::new();
    for field in message.fields() {
        properties.insert(field.json_name().to_owned(), field_schema(&field, schemas));
    }
    let mut schema = json!({ "type": "object", "additionalProperties": false, "properties": properties });
    describe(&mut schema, comment(&message.parent_file(), message.path()));
    schemas.insert(message.name().to_owned(), schema);
}

fn describe(schema: &mut Value, description: String) {
    if !description.is_empty() {
        schema["description"] = description.into();
    }
}

fn field_schema(field: &FieldDescriptor, schemas: &mut Schemas) -> Value {
    let one = match field.kind() {
        Kind::String if field.full_name() == "tidegate.v1.Error.code" => {
            json!({ "type": "string", "enum": codes().map(name).collect::<Vec<_>>() })
        }
        Kind::String => json!({ "type": "string" }),
        Kind::Bytes => json!({ "type": "string", "contentEncoding": "base64" }),
        Kind::Bool => json!({ "type": "boolean" }),
        Kind::Double => json!({ "type": "number" }),
        Kind::Uint32 => json!({ "type": "integer", "minimum": 0, "maximum": u32::MAX }),
        Kind::Uint64 => json!({ "type": "string", "pattern": "^(0|[1-9][0-9]{0,19})$" }),
        Kind::Enum(of) => enumeration(&of),
        Kind::Message(of) => match of.full_name() {
            "google.protobuf.Timestamp" => json!({ "type": "string", "format": "date-time" }),
            "google.protobuf.Duration" => {
                json!({ "type": "string", "pattern": "^-?[0-9]{1,12}([.][0-9]{1,9})?s$" })
            }
            _ => {
                add(&of, schemas);
                reference(&of)
            }
        },
        kind => panic!("no schema for {kind:?}"),
    };
    let mut schema = if field.is_list() { json!({ "type": "array", "items": one }) } else { one };
    let file = field.parent_message().parent_file();
    describe(&mut schema, comment(&file, field.path()));
    schema
}

fn enumeration(of: &EnumDescriptor) -> Value {
    let names: Vec<String> = of.values().map(|value| value.name().to_owned()).collect();
    json!({ "type": "string", "enum": names })
}

fn kept() -> Value {
    serde_json::from_str(&std::fs::read_to_string(FILE).expect("the file exists")).expect("JSON")
}

/// Writes the file with TIDEGATE_UPDATE=1.
#[test]
fn the_openapi_file_equals_the_document_of_the_messages() {
    let text = serde_json::to_string_pretty(&document()).expect("JSON") + "\n";
    if std::env::var_os("TIDEGATE_UPDATE").is_some() {
        std::fs::write(FILE, &text).expect("written");
    }
    let kept = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(kept == text, "docs/openapi-control.json differs: TIDEGATE_UPDATE=1 cargo test --lib openapi");
}

#[test]
fn the_openapi_file_has_every_method_and_every_field() {
    let (kept, service) = (kept(), service());
    let methods = service.methods().map(|method| format!("/control/v1/{}", method.name()));
    let described = kept["paths"].as_object().expect("paths").keys().cloned();
    assert_eq!(described.collect::<std::collections::BTreeSet<_>>(), methods.collect());
    let mut missing = Vec::new();
    for message in service.parent_file().messages() {
        for field in message.fields() {
            let schema = &kept["components"]["schemas"][message.name()]["properties"][field.json_name()];
            if !schema.is_object() {
                missing.push(field.full_name().to_owned());
            }
        }
    }
    assert_eq!(missing, [""; 0]);
}

#[test]
fn the_openapi_file_has_every_error_code_of_the_documentation() {
    let documented = include_str!("../../../docs/control.md").lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let (code, status) = (cells.next()?, cells.next()?);
        status.parse::<u16>().ok().map(|_| (code, status))
    });
    let documented: BTreeMap<&str, &str> = documented.collect();
    let kept = kept();
    let of_schema = kept["components"]["schemas"]["Error"]["properties"]["code"]["enum"].as_array();
    let of_schema: Vec<&str> = of_schema.expect("an enum").iter().filter_map(Value::as_str).collect();
    assert_eq!(of_schema.len(), documented.len(), "{of_schema:?} {documented:?}");
    for (path, methods) in kept["paths"].as_object().expect("paths") {
        for (code, status) in &documented {
            let described = methods["post"]["responses"][*status]["description"].as_str().unwrap_or_default();
            assert!(of_schema.contains(code) && described.contains(code), "{path} lacks {code} {status}");
        }
    }
}
