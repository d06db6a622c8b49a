//! HTTP/2 by hand: for what no client library would send.

use std::time::Duration;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

pub const END_STREAM: u8 = 1;
pub const END_HEADERS: u8 = 4;

pub const CANCEL: u32 = 8;
pub const ENHANCE_YOUR_CALM: u32 = 11;

/// How long the server may take to do what it should before the test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// The head of a `ShouldRateLimit`, without compression: method POST, scheme http, the path, the content type.
pub fn call_head() -> Vec<u8> {
    let path = super::http2::SHOULD_RATE_LIMIT;
    let mut block = vec![0x83, 0x86, 0x04, u8::try_from(path.len()).expect("a short path")];
    block.extend_from_slice(path.as_bytes());
    block.extend_from_slice(b"\x0f\x10\x10application/grpc");
    block
}

/// A frame from the server.
pub struct Frame {
    pub kind: u8,
    pub payload: Vec<u8>,
}

/// A connection of which every byte is the test's.
pub struct RawConnection(TcpStream);

impl RawConnection {
    /// Connects, and says nothing.
    pub async fn silent(address: &str) -> Self {
        Self(TcpStream::connect(address).await.expect("the server accepts"))
    }

    /// Connects, and says the preface and empty SETTINGS.
    pub async fn open(address: &str) -> Self {
        let mut connection = Self::silent(address).await;
        connection.send_bytes(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
        connection.send(SETTINGS, 0, 0, &[]).await;
        connection
    }

    /// Sends a frame; false once the server takes nothing more.
    pub async fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> bool {
        let length = u32::try_from(payload.len()).expect("a short payload").to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.send_bytes(&[&head, payload].concat()).await
    }

    pub async fn send_bytes(&mut self, bytes: &[u8]) -> bool {
        let sent = tokio::time::timeout(PATIENCE, self.0.write_all(bytes)).await;
        sent.is_ok_and(|sent| sent.is_ok())
    }

    /// The next frame; none once the server has closed.
    pub async fn next(&mut self) -> Option<Frame> {
        tokio::time::timeout(PATIENCE, self.read()).await.expect("the server says something, or closes")
    }

    async fn read(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let [l0, l1, l2, kind, ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, l0, l1, l2]) as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        Some(Frame { kind, payload })
    }

    /// Reads on until the server has reset a stream; why.
    pub async fn reset_code(&mut self) -> u32 {
        loop {
            let frame = self.next().await.expect("the connection stands");
            if frame.kind == RST_STREAM {
                return code(&frame.payload);
            }
        }
    }

    /// Reads on until the server has closed; the error of its GOAWAY, if one came through.
    pub async fn end(&mut self) -> Option<u32> {
        let mut said = None;
        while let Some(frame) = self.next().await {
            if frame.kind == GOAWAY {
                said = Some(code(&frame.payload[4..]));
            }
        }
        said
    }
}

fn code(payload: &[u8]) -> u32 {
    u32::from_be_bytes(payload[..4].try_into().expect("an error code"))
}
