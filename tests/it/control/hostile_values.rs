//! Values that protobuf can express and its JSON mapping cannot, in requests of the control API.

use super::{Controlled, RULES, descriptors, grpc};
use crate::support::{descriptor, eventually};
use prost_reflect::{
    DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, Value,
};
use serde_json::json;
use std::process::Command;
use tidegate::api::pb::{self, control as messages};
use tonic::Code;
use tonic_prost::ProstCodec;

/// Beyond the ten thousand years of the JSON mapping.
const TOO_LONG: prost_types::Duration = prost_types::Duration { seconds: 60_479_999_395_200, nanos: 0 };

fn block(of: messages::SetBlockRequest) -> messages::SetBlockRequest {
    let block = messages::Block { key: "user".into(), value: "u".into(), ..of.block.unwrap_or_default() };
    messages::SetBlockRequest { block: Some(block), ..of }
}

#[tokio::test]
async fn a_time_beyond_the_json_mapping_is_refused_by_field() {
    let shop = Controlled::start(RULES, &[]);
    let (mut client, token) = grpc(&shop).await;
    let request = |message| {
        let mut request = tonic::Request::new(message);
        request.metadata_mut().insert("authorization", token());
        request
    };
    let of_expires = |seconds, nanos| {
        let expires = Some(prost_types::Timestamp { seconds, nanos });
        let of = messages::Block { expires, ..messages::Block::default() };
        block(messages::SetBlockRequest { block: Some(of), ..messages::SetBlockRequest::default() })
    };
    let of_length = block(messages::SetBlockRequest {
        expires_in: Some(TOO_LONG),
        ..messages::SetBlockRequest::default()
    });
    for (message, field) in [
        (of_length, "expires_in"),
        (of_expires(i64::MAX, 0), "block.expires"),
        (of_expires(2_000_000_000, -1), "block.expires"),
    ] {
        let status = client.set_block(request(message)).await.expect_err("it is out of range");
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().starts_with(&format!("{field}: ")), "{status}");
    }
    let of =
        json!({ "domain": "shop", "denied": true, "entries": descriptors(&[("user", "u")])[0]["entries"] });
    for (method, body, field) in [
        ("SetOverride", json!({ "override": of, "expiresIn": "60479999395200s" }), "expires_in"),
        (
            "SetBlock",
            json!({ "block": { "key": "user", "value": "u", "expires": "99999-01-01T00:00:00Z" } }),
            "block.expires",
        ),
        ("SetBlock", json!({ "block": { "key": 1, "value": "u" } }), "block.key"),
        (
            "Peek",
            json!({ "descriptors": [{ "entries": [{ "key": "a" }, { "key": {} }] }] }),
            "descriptors[0].entries[1].key",
        ),
        ("WhatIf", json!({ "last": "60479999395200s" }), "last"),
    ] {
        let (status, error) = shop.call(&shop.operate, method, &body).await;
        assert_eq!((status, &error["fields"][0]["field"]), (400, &json!(field)), "{body}: {error}");
    }
    let ctl = |length: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
        command.args(["ctl", "--addr", shop.server.address(), "block", "set", "user=u", "--for", length]);
        let output = command.env("TIDEGATE_TOKEN", &shop.operate).output().expect("the command runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (is_ok, shown) = ctl("99999999w");
    assert!(!is_ok && shown.contains("--for") && shown.contains("99999999w"), "{shown}");
    assert_eq!(ctl("1h"), (true, String::new()));
    assert!(!shop.server.log().iter().any(|line| line.contains("panicked")));
}

/// Numbers in an order that looks random and is the same in every run.
struct Choices(u64);

impl Choices {
    fn of<T: Clone>(&mut self, values: &[T]) -> T {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        values[(self.0 >> 33) as usize % values.len()].clone()
    }

    fn message(&mut self, of: &MessageDescriptor, depth: usize) -> DynamicMessage {
        let mut message = DynamicMessage::new(of.clone());
        for field in of.fields() {
            if depth > 5 || self.of(&[false, false, false, true]) {
                continue;
            }
            let values = self.of(&[1, 1, 2]);
            let value = if field.is_list() {
                Value::List((0..values).map(|_| self.value(&field, depth)).collect())
            } else if field.is_map() {
                let key = MapKey::String(self.of(&["", "user"]).into());
                Value::Map([(key, Value::String("u".into()))].into_iter().collect())
            } else {
                self.value(&field, depth)
            };
            message.set_field(&field, value);
        }
        message
    }

    fn value(&mut self, field: &FieldDescriptor, depth: usize) -> Value {
        let (is_time, name) = match field.kind() {
            Kind::Message(of) => (of.full_name().starts_with("google.protobuf."), field.name().to_owned()),
            _ => (false, field.name().to_owned()),
        };
        match field.kind() {
            Kind::Message(of) => {
                let mut message = self.message(&of, depth + 1);
                if is_time {
                    let seconds =
                        [i64::MIN, -1, 0, 1, 315_576_000_000, 315_576_000_001, 253_402_300_800, i64::MAX];
                    message.set_field_by_name("seconds", Value::I64(self.of(&seconds)));
                    let nanos = [i32::MIN, -1, 0, 999_999_999, 1_000_000_000, i32::MAX];
                    message.set_field_by_name("nanos", Value::I32(self.of(&nanos)));
                }
                Value::Message(message)
            }
            Kind::Double => {
                Value::F64(self.of(&[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.5, f64::MAX]))
            }
            Kind::Float => Value::F32(self.of(&[f32::NAN, f32::INFINITY, 0.5])),
            Kind::Int32 => Value::I32(self.of(&[i32::MIN, 0, i32::MAX])),
            Kind::Int64 => Value::I64(self.of(&[i64::MIN, 0, i64::MAX])),
            Kind::Uint32 => Value::U32(self.of(&[0, 1, u32::MAX])),
            Kind::Uint64 => Value::U64(self.of(&[0, 1, 1 << 53, u64::MAX])),
            Kind::Bool => Value::Bool(self.of(&[false, true])),
            Kind::Enum(_) => Value::EnumNumber(self.of(&[i32::MIN, 0, 1, i32::MAX])),
            Kind::String if name == "domain" => Value::String(self.of(&["", "shop"]).into()),
            Kind::String if name == "key" => Value::String(self.of(&["user", "plan", ""]).into()),
            Kind::String => Value::String(self.of(&["", "a", "*", "\u{10ffff}", "day"]).into()),
            Kind::Bytes => Value::Bytes(vec![0xff; 3].into()),
            kind => panic!("no value of {kind:?}"),
        }
    }
}

/// The code of a call of the method with that message. INTERNAL would mean a panic or a fault of the server.
async fn code(
    channel: &tonic::transport::Channel,
    token: tonic::metadata::MetadataValue<tonic::metadata::Ascii>,
    method: &str,
    message: DynamicMessage,
) -> Code {
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await.expect("the connection is open");
    let mut request = tonic::Request::new(message);
    request.metadata_mut().insert("authorization", token);
    let path = format!("/tidegate.v1.Control/{method}").parse().expect("a path");
    let called = client.unary(request, path, ProstCodec::<DynamicMessage, ()>::default()).await;
    called.map_or_else(|status| status.code(), |_| Code::Ok)
}

/// SetBlock and SetOverride panicked in seven of eight such calls.
#[tokio::test]
async fn no_value_of_a_caller_makes_a_handler_panic() {
    let shop = Controlled::start(RULES, &[]);
    let channel = shop.server.channel().await;
    let (_, token) = grpc(&shop).await;
    let pool = DescriptorPool::decode(pb::CONTROL_DESCRIPTORS).expect("compiled with the server");
    let service = pool.get_service_by_name("tidegate.v1.Control").expect("declared");
    let mut choices = Choices(41);
    let mut ok = 0;
    for method in service.methods().filter(|method| !method.is_server_streaming()) {
        for _ in 0..60 {
            let message = choices.message(&method.input(), 0);
            let shown = format!("{}: {message:?}", method.name());
            let code = code(&channel, token(), method.name(), message).await;
            assert!(!matches!(code, Code::Internal | Code::Unknown), "{code:?}: {shown}");
            ok += usize::from(code == Code::Ok);
        }
    }
    assert!(ok > 100, "only {ok} calls passed the checks of their fields");
    assert_eq!(shop.call(&shop.read, "Status", &json!({})).await.0, 200);
    let log = shop.server.log();
    assert!(!log.iter().any(|line| line.contains("panicked")), "{log:#?}");
}

/// 6,000 calls of 2^50 hits hid a key with 5,000 denied calls.
#[tokio::test]
async fn a_request_of_many_hits_hides_no_other_key() {
    let shop = Controlled::start(RULES, &[]);
    let mut client = shop.server.client().await;
    for _ in 0..20 {
        let mut big = descriptor(&[("user", "big")]);
        big.hits_addend = Some(1 << 50);
        client.should_rate_limit("shop", vec![big]).await.expect("a response");
    }
    for _ in 0..103 {
        client.hit("shop", &[("user", "mallory")]).await.expect("a response");
    }
    eventually("the keys of both", async || {
        let top = shop.operate("TopKeys", json!({})).await;
        let hits = |index: usize| top["keys"][index]["hits"].as_str().unwrap_or_default().to_owned();
        // For each call at most the three hits of the limit count.
        if (hits(0), hits(1)) == ("100".into(), "60".into()) { Ok(()) } else { Err(top) }
    })
    .await;
}
