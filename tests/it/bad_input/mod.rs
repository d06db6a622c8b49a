//! What no client should send, sent to a real server: each is refused with the right status and a sentence, the next
//! request is served, and memory returns to where it was.

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

/// A head without the content type.
fn untyped() -> Builder {
    Request::post(format!("http://test{SHOULD_RATE_LIMIT}"))
}

/// A server, and connections to it that are seen to be served still.
struct Besieged {
    server: Server,
    client: Client,
    raw: Connection,
}

impl Besieged {
    async fn start(args: &[&str]) -> Self {
        let server = Server::start(args);
        let (client, raw) = (server.client().await, Connection::open(server.address()).await);
        Self { server, client, raw }
    }

    /// Holds that the server refuses the message with the code and the sentence.
    async fn refuses(&mut self, message: RateLimitRequest, code: Code, sentence: &str) {
        let refusal = self.client.0.should_rate_limit(message).await.expect_err(sentence);
        assert_eq!((refusal.code(), refusal.message()), (code, sentence));
        self.serves().await;
    }

    /// Holds that the server refuses the body with the code and a sentence that has these words.
    async fn refuses_raw(&mut self, head: Builder, body: Vec<u8>, code: Code, words: &str) {
        let answer = self.raw.send(head, body).await.expect("an answer, not the end of the connection");
        let refusal =
            answer.grpc.unwrap_or_else(|| panic!("no gRPC status for what is refused with {words}"));
        assert_eq!(refusal.code(), code, "{refusal:?}");
        assert!(refusal.message().contains(words), "{refusal:?} has not {words}");
        self.serves().await;
    }

    /// Holds that the next request is served, on both connections.
    async fn serves(&mut self) {
        let unlimited = request(vec![descriptor(&[("not_limited", "")])]);
        let answer = self.raw.send(grpc(SHOULD_RATE_LIMIT), plain(&unlimited.encode_to_vec())).await;
        assert_eq!(answer.expect("an answer").grpc.map(|status| status.code()), Some(Code::Ok));
        let answer = self.client.0.should_rate_limit(unlimited).await.expect("the next request is served");
        assert_eq!(answer.get_ref().overall_code(), Verdict::Ok);
    }
}
