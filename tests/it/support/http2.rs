//! An HTTP/2 client for requests that no gRPC client would send.

use super::waiting::PATIENCE;
use h2::client::SendRequest;
use http::{Request, Response, StatusCode, request::Builder};
use prost::bytes::Bytes;
use std::time::Duration;
use tokio::net::TcpStream;
use tonic::Status;

/// The call that Envoy makes.
pub const SHOULD_RATE_LIMIT: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// An HTTP/2 connection.
pub struct Connection(SendRequest<Bytes>);

/// A response.
#[derive(Debug)]
pub struct Answer {
    pub http: StatusCode,
    /// The gRPC status, from the headers or from the trailers.
    pub grpc: Option<Status>,
    pub body: Vec<u8>,
    pub headers: http::HeaderMap,
}

/// The head of a gRPC call.
pub fn grpc(path: &str) -> Builder {
    Request::post(format!("http://test{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
}

/// A message as gRPC frames it, with a flag (1: compressed) and a claimed length.
pub fn framed(flag: u8, claimed: u32, message: &[u8]) -> Vec<u8> {
    [&[flag], claimed.to_be_bytes().as_slice(), message].concat()
}

/// A message framed with its true length.
pub fn plain(message: &[u8]) -> Vec<u8> {
    framed(0, message.len().try_into().expect("a short message"), message)
}

impl Connection {
    pub async fn open(address: &str) -> Self {
        let stream = TcpStream::connect(address).await.expect("the server accepts");
        Self::over(stream).await.expect("the server speaks HTTP/2")
    }

    /// HTTP/2 over any stream.
    pub async fn over(
        stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    ) -> Result<Self, h2::Error> {
        let (requests, connection) = h2::client::handshake(stream).await?;
        tokio::spawn(connection);
        Ok(Self(requests))
    }

    /// Sends a request, and its body if there is one.
    pub async fn send(&self, head: Builder, body: Vec<u8>) -> Result<Answer, h2::Error> {
        let answered = tokio::time::timeout(PATIENCE, self.exchange(head, body));
        answered.await.expect("the server answers in time")
    }

    async fn exchange(&self, head: Builder, body: Vec<u8>) -> Result<Answer, h2::Error> {
        let mut requests = self.0.clone().ready().await?;
        let head = head.body(()).expect("tests write well-formed heads");
        let (response, mut stream) = requests.send_request(head, body.is_empty())?;
        if !body.is_empty() {
            // The server may have refused the request because of its head, and then accepts no body.
            let _ = stream.send_data(body.into(), true);
        }
        read(response.await?).await
    }

    /// Sends HEADERS, then RST_STREAM.
    pub async fn abandon(&self, head: Builder) {
        let mut requests = self.0.clone().ready().await.expect("the connection stands");
        let head = head.body(()).expect("tests write well-formed heads");
        let (_, mut stream) = requests.send_request(head, false).expect("the connection stands");
        stream.send_reset(h2::Reason::CANCEL);
    }
}

async fn read(response: Response<h2::RecvStream>) -> Result<Answer, h2::Error> {
    let (head, mut stream) = response.into_parts();
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data?;
        body.extend_from_slice(&data);
        let _ = stream.flow_control().release_capacity(data.len());
    }
    let trailers = stream.trailers().await?.unwrap_or_default();
    let grpc = Status::from_header_map(&head.headers).or_else(|| Status::from_header_map(&trailers));
    Ok(Answer { http: head.status, grpc, body, headers: head.headers })
}
