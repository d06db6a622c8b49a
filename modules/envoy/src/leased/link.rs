//! The thread, and the connection to the server: HTTP/2 by the client half of `tidegate-http2`.
//!
//! A connection that fails is made again, after a pause that doubles up to a second. Meanwhile requests do not wait, and credits in hand
//! are spent until they expire.

use super::{
    exchanges::Exchanges,
    messages::PATH,
    shared::{Shared, now},
    tls,
};
use crate::settings::{Address, Server};
use std::{
    fs, io,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tidegate_envoy_abi::{LogLevel, log};
use tidegate_http2::{
    client::{self, Connection, Finished, RequestEncoder, StreamEnd},
    grpc::PREFIX_BYTES,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    net::{TcpStream, UnixStream},
    runtime::{self, Runtime},
    time::{sleep, timeout},
};

/// The longest wait for a connection, and for the server's SETTINGS on it.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Pauses after failed attempts.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Interval between publications of figures.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of the largest response that is accepted.
const RESPONSE_MAX: usize = 4 << 20;

/// The gRPC status of methods that a server does not have.
const UNIMPLEMENTED: u32 = 12;

/// The runtime of the thread, which polls everything.
pub(super) fn runtime() -> io::Result<Runtime> {
    // Names of hosts are resolved by a thread of the runtime's, which ends with the lookup.
    runtime::Builder::new_current_thread().enable_all().thread_keep_alive(Duration::ZERO).build()
}

/// Serves the connection until the process has no use for it any more.
pub(super) fn run(runtime: Runtime, shared: &Arc<Shared>) {
    let publishing = Arc::clone(shared);
    runtime.spawn(async move {
        loop {
            sleep(PUBLISH_INTERVAL).await;
            publishing.publish();
        }
    });
    runtime.block_on(Link::new(shared).run());
    // A lookup of a name that hangs must not keep the main thread.
    runtime.shutdown_background();
}

/// The token of the module, which a file has; none if no file is configured.
pub(super) fn token(server: &Server) -> Result<Option<String>, String> {
    let Some(path) = &server.token_file else { return Ok(None) };
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let token = text.trim();
    let is_visible = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    is_visible.then(|| Some(token.to_owned())).ok_or_else(|| format!("{}: is not one token", path.display()))
}

/// A connection, by whatever transport.
trait Stream: AsyncRead + AsyncWrite + Unpin {}

impl<S: AsyncRead + AsyncWrite + Unpin> Stream for S {}

struct Link<'s> {
    shared: &'s Shared,
    exchanges: Exchanges,
}

/// The end of a connection.
enum End {
    /// The process has no use for it.
    Stopped,
    /// The server closes it in good order.
    Closed,
    Failed(String),
}

/// The next thing that happens on a connection.
enum Event {
    Read(io::Result<usize>),
    /// So many bytes; none once all are flushed.
    Wrote(io::Result<usize>),
    /// There is something to send, or time has passed.
    Step,
}

impl<'s> Link<'s> {
    fn new(shared: &'s Shared) -> Self {
        Self { shared, exchanges: Exchanges::new(shared.node) }
    }

    async fn run(mut self) {
        let mut pause = PAUSE_MIN;
        while !self.is_stopped() {
            let why = match self.connect().await {
                Ok(stream) => match self.serve(stream, &mut pause).await {
                    End::Stopped => return,
                    End::Closed => continue,
                    End::Failed(why) => why,
                },
                Err(why) => why,
            };
            self.lost(&why);
            self.pause(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn is_stopped(&self) -> bool {
        self.shared.is_stopped.load(Ordering::Acquire)
    }

    /// The connection is lost, or cannot be made: nothing waits for the server.
    fn lost(&mut self, why: &str) {
        if !self.shared.is_away.swap(true, Ordering::Relaxed) && !self.is_stopped() {
            let server = &self.shared.server.address;
            let line = format!("tidegate: no server at {server}: {why}; requests follow the failure mode");
            log(LogLevel::Warn, &line);
        }
        self.take_questions();
        self.exchanges.fail_all(now());
    }

    /// Waits before the next attempt. Requests that have arrived just before the server was lost do not wait.
    async fn pause(&mut self, pause: Duration) {
        let mut slept = pin!(sleep(pause));
        while !self.is_stopped() {
            tokio::select! {
                () = &mut slept => return,
                () = self.shared.wake.notified() => {
                    self.take_questions();
                    self.exchanges.fail_all(now());
                }
            }
        }
    }

    fn take_questions(&mut self) {
        let questions = std::mem::take(&mut *self.shared.questions.lock());
        self.exchanges.push(questions);
    }

    /// Connects. Requests wait meanwhile, unless the server was away before.
    async fn connect(&mut self) -> Result<Box<dyn Stream>, String> {
        let server = self.shared.server.clone();
        let mut connecting = pin!(timeout(CONNECT_TIMEOUT, connect(&server)));
        loop {
            tokio::select! {
                connected = &mut connecting => {
                    return connected.unwrap_or_else(|_| Err("no connection in time".to_owned()));
                }
                () = self.step() => {
                    if self.is_stopped() {
                        return Err("stopped".to_owned());
                    }
                    self.take_questions();
                    self.exchanges.expire(now());
                }
            }
        }
    }

    /// Waits until there is something to do.
    async fn step(&self) {
        let now = now();
        let nanos = self.exchanges.next_step(now).nanos_since(now);
        // An error is that the time is over.
        let _ = timeout(Duration::from_nanos(nanos), self.shared.wake.notified()).await;
    }

    /// Serves calls on a connection until it ends.
    async fn serve(&mut self, stream: Box<dyn Stream>, pause: &mut Duration) -> End {
        let encoder = match encoder(&self.shared.server) {
            Ok(encoder) => encoder,
            Err(why) => return End::Failed(why),
        };
        let mut connection = Connection::<Reply>::new(encoder);
        let (mut reader, mut writer) = tokio::io::split(stream);
        let (mut buffer, mut finished) = (vec![0; 16 << 10], Vec::new());
        let (connected, mut is_flushed) = (now(), true);
        loop {
            let has_unwritten = !connection.unwritten().is_empty();
            let event = tokio::select! {
                biased;
                read = reader.read(&mut buffer) => Event::Read(read),
                wrote = write_some(&mut writer, connection.unwritten()), if has_unwritten || !is_flushed => Event::Wrote(wrote),
                () = self.step() => Event::Step,
            };
            match event {
                Event::Read(Ok(0)) if connection.is_used_up() && connection.in_flight() == 0 => {
                    return End::Closed;
                }
                Event::Read(Ok(0)) => return End::Failed("the connection was closed".to_owned()),
                Event::Read(Ok(count)) => {
                    if let Err(error) = connection.read(&buffer[..count], &mut finished) {
                        return End::Failed(error.to_string());
                    }
                }
                Event::Wrote(Ok(count)) => {
                    connection.wrote(count);
                    is_flushed = !has_unwritten;
                }
                Event::Read(Err(error)) | Event::Wrote(Err(error)) => {
                    return End::Failed(error.to_string());
                }
                Event::Step => {}
            }
            for Finished { token, end } in finished.drain(..) {
                if let Err(why) = self.finish(token, end) {
                    return End::Failed(why);
                }
                if self.shared.is_away.swap(false, Ordering::Relaxed) {
                    log(
                        LogLevel::Info,
                        &format!("tidegate: connected to the server at {}", self.shared.server.address),
                    );
                }
                *pause = PAUSE_MIN;
            }
            if self.is_stopped() {
                self.give_back(&mut connection, &mut writer).await;
                return End::Stopped;
            }
            if !self.exchanges.expire(now()) {
                return End::Failed("the server does not respond".to_owned());
            }
            self.take_questions();
            if connection.is_used_up() && connection.in_flight() == 0 {
                return End::Closed;
            }
            if !connection.is_ready() && now().nanos_since(connected) > CONNECT_TIMEOUT.as_nanos() as u64 {
                return End::Failed("no SETTINGS in time".to_owned());
            }
            if let Err(why) = self.send(&mut connection) {
                return End::Failed(why);
            }
        }
    }

    /// Starts the calls that are due, as far as there is room.
    fn send(&mut self, connection: &mut Connection<Reply>) -> Result<(), String> {
        // For the largest message: a call is not made before it can be sent, so that its claims have the time of sending.
        while connection.has_room(client::BODY_MAX).map_err(|error| error.to_string())? {
            let Some((token, message)) = self.exchanges.next(&self.shared.known, now()) else { break };
            start(connection, token, &message);
        }
        Ok(())
    }

    /// Takes the end of a call. An error is one that the next call would have too.
    fn finish(&mut self, token: u64, end: StreamEnd<Reply>) -> Result<(), String> {
        let now = now();
        match end {
            StreamEnd::Complete(reply) => match reply.message() {
                Ok(message) => self
                    .exchanges
                    .accept(token, message, &self.shared.known, now)
                    .map_err(|_| "a malformed response".to_owned()),
                Err(why) => {
                    self.exchanges.fail(token, now);
                    Err(why)
                }
            },
            StreamEnd::Reset(code) => {
                self.exchanges.fail(token, now);
                Err(format!("a call was reset with {}", tidegate_http2::error_name(code)))
            }
            StreamEnd::Unprocessed => {
                self.exchanges.repeat(token);
                Ok(())
            }
        }
    }

    /// Gives all credits back, as far as the socket takes it at once: the server ends those that it does not get when they expire.
    async fn give_back(
        &mut self,
        connection: &mut Connection<Reply>,
        writer: &mut (impl AsyncWrite + Unpin),
    ) {
        let now = now();
        self.take_questions();
        self.exchanges.retire(now);
        if self.send(connection).is_ok() {
            let write = async {
                writer.write_all(connection.unwritten()).await?;
                writer.flush().await
            };
            let _ = timeout(GIVE_BACK_TIMEOUT, write).await;
        }
        self.exchanges.fail_all(now);
    }
}

/// The longest time for which the end of the thread is delayed by a server that does not read.
const GIVE_BACK_TIMEOUT: Duration = Duration::from_millis(5);

async fn connect(server: &Server) -> Result<Box<dyn Stream>, String> {
    let text = |error: io::Error| error.to_string();
    match &server.address {
        Address::Unix(path) => Ok(Box::new(UnixStream::connect(path).await.map_err(text)?)),
        Address::Tcp { host, port } => {
            let stream = TcpStream::connect((&**host, *port)).await.map_err(text)?;
            stream.set_nodelay(true).map_err(text)?;
            let Some(tls) = &server.tls else { return Ok(Box::new(stream)) };
            let (connector, name) = tls::connector(tls)?;
            Ok(Box::new(connector.connect(name, stream).await.map_err(text)?))
        }
    }
}

/// The headers of calls.
fn encoder(server: &Server) -> Result<RequestEncoder, String> {
    let authority = match &server.address {
        Address::Unix(_) => "localhost".to_owned(),
        address @ Address::Tcp { .. } => address.to_string(),
    };
    let token = token(server)?.map(|token| format!("Bearer {token}"));
    let mut fields =
        vec![(":authority", &*authority), ("te", "trailers"), ("content-type", "application/grpc")];
    fields.extend(token.as_deref().map(|token| ("authorization", token)));
    Ok(RequestEncoder::new(PATH, &fields))
}

/// Writes some of the bytes; without any, what a layer below still has of earlier ones.
async fn write_some(writer: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<usize> {
    if bytes.is_empty() {
        return writer.flush().await.map(|()| 0);
    }
    match writer.write(bytes).await {
        Ok(0) => Err(io::ErrorKind::WriteZero.into()),
        written => written,
    }
}

fn start(connection: &mut Connection<Reply>, token: u64, message: &[u8]) {
    let mut body = Vec::with_capacity(PREFIX_BYTES + message.len());
    body.push(0);
    body.extend_from_slice(&(message.len() as u32).to_be_bytes());
    body.extend_from_slice(message);
    connection.start(&body, token);
}

/// The response to one call, as far as received.
#[derive(Default)]
struct Reply {
    http_status: Option<u16>,
    grpc_status: Option<u32>,
    grpc_message: String,
    body: Vec<u8>,
    is_too_large: bool,
}

impl client::Response for Reply {
    fn field(&mut self, name: &[u8], value: &[u8]) {
        let number = || str::from_utf8(value).ok().and_then(|value| value.parse().ok());
        match name {
            b":status" => self.http_status = number().and_then(|status| u16::try_from(status).ok()),
            // A status that is not a number is UNKNOWN by the gRPC protocol, and never OK.
            b"grpc-status" => self.grpc_status = Some(number().unwrap_or(2)),
            b"grpc-message" => self.grpc_message = String::from_utf8_lossy(value).into_owned(),
            _ => {}
        }
    }

    fn data(&mut self, piece: &[u8]) {
        self.is_too_large |= self.body.len() + piece.len() > RESPONSE_MAX;
        if !self.is_too_large {
            self.body.extend_from_slice(piece);
        }
    }
}

impl Reply {
    /// The message; the error is why there is none.
    fn message(&self) -> Result<&[u8], String> {
        match (self.grpc_status, self.http_status) {
            (Some(0), _) => {}
            (Some(UNIMPLEMENTED), _) => {
                return Err("the server grants no leases there; start it with --leases".to_owned());
            }
            (Some(status), _) => return Err(format!("gRPC status {status}: {}", self.grpc_message)),
            (None, Some(status)) if status != 200 => return Err(format!("HTTP status {status}")),
            (None, _) => return Err("a response without a gRPC status".to_owned()),
        }
        match self.body.split_first_chunk::<PREFIX_BYTES>() {
            Some((&[0, l0, l1, l2, l3], message))
                if !self.is_too_large && message.len() == u32::from_be_bytes([l0, l1, l2, l3]) as usize =>
            {
                Ok(message)
            }
            _ => Err("a response that is not one message".to_owned()),
        }
    }
}
