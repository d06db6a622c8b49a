//! HTTP/2 frame by frame, for input that no client library would send.

use super::waiting::PATIENCE;
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

/// The header block of a `ShouldRateLimit`.
pub fn call_head() -> Vec<u8> {
    call_headers(super::http2::SHOULD_RATE_LIMIT)
}

/// The header block of a gRPC call, uncompressed: method POST, scheme http, the path, the content type.
pub fn call_headers(path: &str) -> Vec<u8> {
    let mut block = vec![0x83, 0x86, 0x04, u8::try_from(path.len()).expect("a short path")];
    block.extend_from_slice(path.as_bytes());
    block.extend_from_slice(b"\x0f\x10\x10application/grpc");
    block
}

/// A frame from the server.
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

/// A connection with every byte written by the test.
pub struct RawConnection(TcpStream);

impl RawConnection {
    /// Connects, and sends nothing.
    pub async fn silent(address: &str) -> Self {
        Self(TcpStream::connect(address).await.expect("the server accepts"))
    }

    /// Connects, and sends the preface and empty SETTINGS.
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
        tokio::time::timeout(PATIENCE, self.read()).await.expect("the server sends something, or closes")
    }

    async fn read(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let [l0, l1, l2, kind, flags, stream @ ..] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, l0, l1, l2]) as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        Some(Frame { kind, flags, stream: u32::from_be_bytes(stream), payload })
    }

    /// Waits until the server has sent something that is not read.
    pub async fn has_unread(&self) {
        let peeked = tokio::time::timeout(PATIENCE, self.0.peek(&mut [0])).await;
        assert!(
            peeked.is_ok_and(|peeked| peeked.is_ok_and(|length| length > 0)),
            "the server sends something"
        );
    }

    /// Reads on until a frame of this stream.
    pub async fn next_frame_of(&mut self, stream: u32) -> Frame {
        loop {
            let frame = self.next().await.expect("the connection stands");
            if frame.stream == stream {
                return frame;
            }
        }
    }

    /// Reads on until the server resets a stream; the error code.
    pub async fn reset_code(&mut self) -> u32 {
        loop {
            let frame = self.next().await.expect("the connection stands");
            if frame.kind == RST_STREAM {
                return code(&frame.payload);
            }
        }
    }

    /// Closes the connection as a client does that has read everything: unread bytes would reset it.
    pub async fn leave(mut self) {
        self.0.shutdown().await.expect("the connection stands");
        self.end().await;
    }

    /// Reads on until the server has closed; the error code of its last GOAWAY, if one arrived.
    pub async fn end(&mut self) -> Option<u32> {
        let mut code_sent = None;
        while let Some(frame) = self.next().await {
            if frame.kind == GOAWAY {
                code_sent = Some(code(&frame.payload[4..]));
            }
        }
        code_sent
    }
}

fn code(payload: &[u8]) -> u32 {
    u32::from_be_bytes(payload[..4].try_into().expect("an error code"))
}
