//! `faulty-server FAULT`: responds to every gRPC call with one fault, for tests of clients. Listens on a free port of loopback, and prints
//! its address as the server logs its own with `--log-format json`.
//!
//! It speaks just enough HTTP/2 to misbehave exactly: frames are written by hand, and requests are not decoded.

use std::{
    env, io,
    str::FromStr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::Mutex,
};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Fault {
    /// Reads, and sends nothing.
    Blackhole,
    /// Resets the connection.
    Reset,
    /// Responds with UNAVAILABLE.
    Unavailable,
    /// Admits after this time.
    Slow(Duration),
    /// Admits one call, sends GOAWAY, and closes the connection at once.
    Goaway,
    /// Admits one call, sends GOAWAY, and lets the client close the connection.
    Drain,
    /// Admits the first call of a connection, and excludes the second by a GOAWAY.
    Exclude,
    /// Counts each call that arrives. Admits every other call, with 1000 less its number as remaining, and loses the others after counting
    /// them: by UNAVAILABLE, by closing the connection and by resetting it, in turn.
    Lost,
    /// Responds with bytes that are no message.
    Garbage,
}

const FAULTS: &str =
    "write blackhole, reset, unavailable, slow=TIME, goaway, drain, exclude, lost or garbage";

impl FromStr for Fault {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some(("slow", time)) => {
                humantime::parse_duration(time).map(Self::Slow).map_err(|error| error.to_string())
            }
            None if text == "blackhole" => Ok(Self::Blackhole),
            None if text == "reset" => Ok(Self::Reset),
            None if text == "unavailable" => Ok(Self::Unavailable),
            None if text == "goaway" => Ok(Self::Goaway),
            None if text == "drain" => Ok(Self::Drain),
            None if text == "exclude" => Ok(Self::Exclude),
            None if text == "lost" => Ok(Self::Lost),
            None if text == "garbage" => Ok(Self::Garbage),
            _ => Err(FAULTS.into()),
        }
    }
}

fn main() -> Result<(), String> {
    let fault = env::args().nth(1).ok_or(FAULTS)?.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.and_then(|runtime| runtime.block_on(listen(fault))).map_err(|error| error.to_string())
}

async fn listen(fault: Fault) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    eprintln!(r#"{{"message":"listening","address":"{}"}}"#, listener.local_addr()?);
    eprintln!(r#"{{"message":"serving"}}"#);
    let arrived = Arc::new(AtomicU32::new(0));
    loop {
        let (stream, _) = listener.accept().await?;
        // A failure ends only its own connection; the others are still served.
        tokio::spawn(serve(stream, fault, arrived.clone()));
    }
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const PREFACE_BYTES: usize = 24;
const FRAME_HEADER_BYTES: usize = 9;

/// A `RateLimitResponse` with the overall code OK.
const ADMITTED: &[u8] = &[0x08, 0x01];
/// A field with the number 0, which protobuf does not allow.
const NO_MESSAGE: &[u8] = &[0x07, 0xff, 0xff];

/// Serves one connection. `arrived` is the number of calls on all connections.
async fn serve(stream: TcpStream, fault: Fault, arrived: Arc<AtomicU32>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    if fault == Fault::Blackhole {
        let (mut read, _write) = stream.into_split();
        return discard(&mut read).await;
    }
    if fault == Fault::Reset {
        // A connection that is closed with unread or unsent bytes is then reset.
        stream.set_zero_linger()?;
    }
    let (mut read, write) = stream.into_split();
    let writer = Writer(Arc::new(Mutex::new(write)));
    read.read_exact(&mut [0; PREFACE_BYTES]).await?;
    writer.frame(SETTINGS, 0, 0, &[]).await?;
    let mut admitted = 0;
    loop {
        let frame = Frame::read(&mut read).await?;
        match frame.kind {
            SETTINGS if frame.flags & ACK == 0 => writer.frame(SETTINGS, ACK, 0, &[]).await?,
            PING if frame.flags & ACK == 0 => writer.frame(PING, ACK, 0, &frame.payload).await?,
            DATA if !frame.payload.is_empty() => {
                let read = u32::try_from(frame.payload.len()).unwrap_or(u32::MAX);
                writer.frame(WINDOW_UPDATE, 0, 0, &read.to_be_bytes()).await?;
            }
            _ => {}
        }
        if matches!(frame.kind, HEADERS | DATA) && frame.flags & END_STREAM != 0 {
            match fault {
                Fault::Reset => return Ok(()),
                Fault::Goaway | Fault::Drain => {
                    writer.response(frame.stream, ADMITTED).await?;
                    writer.go_away(frame.stream).await?;
                    return if fault == Fault::Drain { discard(&mut read).await } else { Ok(()) };
                }
                Fault::Exclude if admitted == 0 => {
                    writer.response(frame.stream, ADMITTED).await?;
                    admitted = frame.stream;
                }
                Fault::Exclude => {
                    writer.go_away(admitted).await?;
                    return discard(&mut read).await;
                }
                Fault::Slow(time) => {
                    let writer = writer.clone();
                    tokio::spawn(async move {
                        tokio::time::sleep(time).await;
                        writer.response(frame.stream, ADMITTED).await
                    });
                }
                Fault::Lost => {
                    let number = arrived.fetch_add(1, Ordering::Relaxed) + 1;
                    match Loss::of(number) {
                        None => writer.response(frame.stream, &counted(number)).await?,
                        Some(Loss::Unavailable) => writer.unavailable(frame.stream).await?,
                        Some(Loss::Closed) => return Ok(()),
                        Some(Loss::Reset) => return read.as_ref().set_zero_linger(),
                    }
                }
                Fault::Garbage => writer.response(frame.stream, NO_MESSAGE).await?,
                Fault::Unavailable => writer.unavailable(frame.stream).await?,
                Fault::Blackhole => {}
            }
        }
    }
}

/// The way in which the response to a counted call is lost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Loss {
    Unavailable,
    Closed,
    Reset,
}

impl Loss {
    /// Every other call is lost, in each of the ways in turn.
    fn of(number: u32) -> Option<Self> {
        match number % 6 {
            2 => Some(Self::Unavailable),
            4 => Some(Self::Closed),
            0 => Some(Self::Reset),
            _ => None,
        }
    }
}

/// A `RateLimitResponse` that is OK, with one status: a limit of 1,000 requests an hour, of which the arrived calls are used.
fn counted(number: u32) -> Vec<u8> {
    let remaining = 1_000_u32.saturating_sub(number);
    let [low, high] = [remaining & 0x7f | 0x80, remaining >> 7].map(|byte| byte as u8);
    // The status: its code OK; its limit, 1,000 as a varint of two bytes and the unit HOUR; and the number of remaining requests.
    let status = [0x08, 0x01, 0x12, 5, 0x08, 0xe8, 0x07, 0x10, 3, 0x18, low, high];
    [ADMITTED, &[0x12, status.len() as u8], &status].concat()
}

/// Reads until the client closes the connection.
async fn discard(read: &mut OwnedReadHalf) -> io::Result<()> {
    let mut discarded = [0; 4096];
    while read.read(&mut discarded).await? > 0 {}
    Ok(())
}

struct Frame {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

impl Frame {
    async fn read(read: &mut OwnedReadHalf) -> io::Result<Self> {
        let mut header = [0; FRAME_HEADER_BYTES];
        read.read_exact(&mut header).await?;
        let [length @ .., kind, flags, s0, s1, s2, s3] = header;
        let mut payload = vec![0; u32::from_be_bytes([0, length[0], length[1], length[2]]) as usize];
        read.read_exact(&mut payload).await?;
        Ok(Self { kind, flags, stream: u32::from_be_bytes([s0, s1, s2, s3]) & (u32::MAX >> 1), payload })
    }
}

/// The writing half of a connection, shared with responses that are sent later.
#[derive(Clone)]
struct Writer(Arc<Mutex<OwnedWriteHalf>>);

impl Writer {
    async fn frame(&self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        self.0.lock().await.write_all(&frame(kind, flags, stream, payload)).await
    }

    /// A gRPC response with one message, and the status OK.
    async fn response(&self, stream: u32, message: &[u8]) -> io::Result<()> {
        let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
        let body = [&[0], &length.to_be_bytes()[..], message].concat();
        let frames = [
            frame(HEADERS, END_HEADERS, stream, &response_headers()),
            frame(DATA, 0, stream, &body),
            frame(HEADERS, END_HEADERS | END_STREAM, stream, &field("grpc-status", "0")),
        ];
        self.0.lock().await.write_all(&frames.concat()).await
    }

    /// A GOAWAY without an error, which excludes the streams after one.
    async fn go_away(&self, last: u32) -> io::Result<()> {
        self.frame(GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat()).await
    }

    async fn unavailable(&self, stream: u32) -> io::Result<()> {
        let fields = [response_headers(), field("grpc-status", "14"), field("grpc-message", "a fault")];
        self.frame(HEADERS, END_HEADERS | END_STREAM, stream, &fields.concat()).await
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn response_headers() -> Vec<u8> {
    // The static table's entry 8 is `:status: 200`.
    [vec![0x88], field("content-type", "application/grpc")].concat()
}

/// A literal field without indexing; names and values are shorter than 127 bytes.
fn field(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap_or(0)], text.as_bytes()].concat();
    [vec![0], text(name), text(value)].concat()
}
