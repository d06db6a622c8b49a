//! Invalid input to a real server: each input is refused with the right status and message, the next request is served, and memory does not
//! grow.

mod abuse;
mod connections;
#[cfg(target_os = "linux")]
mod floods;
mod framing;
mod messages;

use crate::support::{
    Client, Server, descriptor,
    http2::{Connection, SHOULD_RATE_LIMIT, grpc, plain},
};
use flate2::{Compression, write::GzEncoder};
use http::{Request, request::Builder};
use prost::Message;
use std::io::Write;
use tidegate::api::pb::{
    common::RateLimitDescriptor,
    service::{RateLimitRequest, rate_limit_response::Code as Verdict},
};
use tonic::Code;

const MEGABYTE: usize = 1 << 20;

fn request(descriptors: Vec<RateLimitDescriptor>) -> RateLimitRequest {
    RateLimitRequest { domain: "demo".into(), descriptors, hits_addend: 0 }
}

fn good() -> RateLimitDescriptor {
    descriptor(&[("api_key", "alice")])
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("a vector can be written to")
}

/// Request headers without content-type.
fn untyped() -> Builder {
    Request::post(format!("http://test{SHOULD_RATE_LIMIT}"))
}

/// A server under attack, and two connections that must still be served.
struct Target {
    server: Server,
    client: Client,
    raw: Connection,
}

impl Target {
    async fn start(args: &[&str]) -> Self {
        let server = Server::start(args);
        let (client, raw) = (server.client().await, Connection::open(server.address()).await);
        Self { server, client, raw }
    }

    /// Asserts that the server refuses the message with this code and status message.
    async fn refuses(&mut self, message: RateLimitRequest, code: Code, sentence: &str) {
        let refusal = self.client.0.should_rate_limit(message).await.expect_err(sentence);
        assert_eq!((refusal.code(), refusal.message()), (code, sentence));
        self.serves().await;
    }

    /// Asserts that the server refuses the body with this code and a status message that contains the words.
    async fn refuses_raw(&mut self, head: Builder, body: Vec<u8>, code: Code, words: &str) {
        let answer = self.raw.send(head, body).await.expect("a response, not the end of the connection");
        let refusal = answer.grpc.unwrap_or_else(|| panic!("no gRPC status; expected {words}"));
        assert_eq!(refusal.code(), code, "{refusal:?}");
        assert!(refusal.message().contains(words), "{refusal:?} does not contain {words}");
        self.serves().await;
    }

    /// Asserts that the next request is served, on both connections.
    async fn serves(&mut self) {
        let unlimited = request(vec![descriptor(&[("not_limited", "")])]);
        let answer = self.raw.send(grpc(SHOULD_RATE_LIMIT), plain(&unlimited.encode_to_vec())).await;
        assert_eq!(answer.expect("an answer").grpc.map(|status| status.code()), Some(Code::Ok));
        let answer = self.client.0.should_rate_limit(unlimited).await.expect("the next request is served");
        assert_eq!(answer.get_ref().overall_code(), Verdict::Ok);
    }
}
