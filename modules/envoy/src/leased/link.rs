//! The thread, and the connection to the server: HTTP/2 by the client half of `tidegate-http2`.
//!
//! After a failed connection another is made, to another address if there is one, after a pause that doubles up to a second. Meanwhile
//! requests do not wait, and credits in hand are spent until they expire. A connection that the server closes in order is followed by
//! another at once, unless it lasted for less than a second: then after the same pauses, while requests wait.

use super::{
    dial::{Connected, Dialer},
    exchanges::{Exchanges, Question, Renewed},
    reply::Reply,
    shared::{Shared, now},
};
use crate::metrics::{ConnectionEvent, Event as Counted, RenewalEvent};
use std::{
    io,
    net::SocketAddr,
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use tidegate_envoy_abi::{LogLevel, log};
use tidegate_http2::{
    client::{self, Connection, Finished, StreamEnd},
    grpc::PREFIX_BYTES,
};
use tidegate_shared::lease::Monotonic;
use tokio::{
    io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    runtime::{self, Runtime},
    task::LocalSet,
    time::{sleep, timeout},
};

/// Pauses after failed attempts.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// Interval between publications of figures.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// The most renewals that are sent at once.
const RENEWALS_MAX: usize = 1_024;

/// The runtime of the thread, which polls everything.
pub(super) fn runtime() -> io::Result<Runtime> {
    // The runtime resolves names of hosts on a thread of its own, which ends with the lookup.
    runtime::Builder::new_current_thread().enable_all().thread_keep_alive(Duration::ZERO).build()
}

/// Serves connections until the process has no use for them any more.
pub(super) fn run(runtime: Runtime, shared: &Arc<Shared>) {
    let publishing = Arc::clone(shared);
    runtime.spawn(async move {
        loop {
            sleep(PUBLISH_INTERVAL).await;
            publishing.publish();
        }
    });
    // Connections stay on one thread.
    LocalSet::new().block_on(&runtime, Link::new(shared).run());
    // A name lookup that hangs must not delay the main thread.
    runtime.shutdown_background();
}

struct Link<'s> {
    shared: &'s Shared,
    exchanges: Exchanges,
    /// Whether the log states that the server's counters are in a shared store.
    is_store_logged: bool,
}

/// The end of a connection.
enum End {
    /// The process has no use for it.
    Stopped,
    /// The server closes it in order.
    Closed,
    /// The server does not respond.
    Unresponsive,
    Failed(String),
}

/// The next thing that happens on a connection.
enum Event {
    Read(io::Result<usize>),
    /// Bytes written; none once all are flushed.
    Wrote(io::Result<usize>),
    /// There is something to send, or time has passed.
    Step,
}

impl<'s> Link<'s> {
    fn new(shared: &'s Shared) -> Self {
        Self { shared, exchanges: Exchanges::new(shared.node), is_store_logged: false }
    }

    async fn run(mut self) {
        let (mut dialer, mut pause) = (Dialer::new(&self.shared.server), PAUSE_MIN);
        while !self.is_stopped() {
            let failure = match self.connect(&mut dialer).await {
                Ok(connected) => {
                    let address = connected.address;
                    self.shared.count(Counted::Connection(ConnectionEvent::Connected));
                    let begun = now();
                    let end = self.serve(connected).await;
                    let is_brief = now().nanos_since(begun) < PAUSE_MAX.as_nanos() as u64;
                    if !is_brief {
                        pause = PAUSE_MIN;
                    }
                    let failure = match end {
                        End::Stopped => return,
                        End::Closed if !is_brief => continue,
                        End::Closed => None,
                        End::Unresponsive => Some((ConnectionEvent::Unresponsive, UNRESPONSIVE.to_owned())),
                        End::Failed(why) => Some((ConnectionEvent::Lost, why)),
                    };
                    address.into_iter().for_each(|address| dialer.suspect(address));
                    failure.map(|(event, why)| (event, format!("{}{why}", shown(address, "", ": "))))
                }
                Err(why) => Some((ConnectionEvent::Failed, why)),
            };
            match failure {
                Some((event, why)) => {
                    self.lost(event, &why);
                    self.pause(pause).await;
                }
                // A server that closes each connection at once is not asked in a loop.
                None => _ = self.wait(sleep(pause)).await,
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn is_stopped(&self) -> bool {
        self.shared.is_stopped.load(Ordering::Acquire)
    }

    /// Handles a connection that is lost, or cannot be made: no request waits for the server.
    fn lost(&mut self, event: ConnectionEvent, why: &str) {
        self.shared.count(Counted::Connection(event));
        if !self.shared.is_away.swap(true, Ordering::Relaxed) && !self.is_stopped() {
            let server = &self.shared.server.address;
            let line = format!("tidegate: no server at {server}: {why}; requests follow the failure mode");
            log(LogLevel::Warn, &line);
        }
        self.take_questions();
        self.exchanges.fail_all(now());
    }

    /// Waits before the next attempt. Requests that arrived just before the loss do not wait.
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

    /// Renews the tickets that are due, and handles the results of earlier renewals.
    fn renew(&mut self) {
        let now = now();
        for Renewed { number, event } in self.exchanges.take_renewed() {
            self.shared.count(Counted::Renewal(event));
            if event == RenewalEvent::NotHeld {
                self.shared.renewals.remove(number);
            }
        }
        let due = self.shared.renewals.due(RENEWALS_MAX, now);
        self.exchanges.push(due.iter().map(|(number, held)| Question::renewal(*number, held, now)));
    }

    fn take_questions(&mut self) {
        let questions = std::mem::take(&mut *self.shared.questions.lock());
        self.exchanges.push(questions);
    }

    /// Connects. Requests wait meanwhile, unless the server was away before.
    async fn connect(&mut self, dialer: &mut Dialer) -> Result<Connected, String> {
        self.wait(dialer.dial()).await.unwrap_or_else(|| Err("stopped".to_owned()))
    }

    /// Waits for a future, while requests wait for a response up to their deadlines. None if the process has no use for it any more.
    async fn wait<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        let mut future = pin!(future);
        while !self.is_stopped() {
            let deadline = self.exchanges.next_deadline(now());
            tokio::select! {
                result = &mut future => return Some(result),
                () = self.step(deadline) => {
                    self.take_questions();
                    self.exchanges.expire(now());
                }
            }
        }
        None
    }

    /// Waits until a time, or until there is something to send.
    async fn step(&self, until: Monotonic) {
        // The error means that the time is over.
        let _ = timeout(Duration::from_nanos(until.nanos_since(now())), self.shared.wake.notified()).await;
    }

    /// Serves calls on a connection until it ends.
    async fn serve(&mut self, connected: Connected) -> End {
        let Connected { stream, mut connection, address } = connected;
        let (mut reader, mut writer) = tokio::io::split(stream);
        let (mut buffer, mut finished) = (vec![0; 16 << 10], Vec::new());
        let (mut is_flushed, mut has_room) = (true, true);
        loop {
            let has_unwritten = !connection.unwritten().is_empty();
            let next = match has_room {
                true => self.exchanges.next_step(now()),
                false => self.exchanges.next_deadline(now()),
            };
            let next = self.shared.renewals.next_due().map_or(next, |due| due.min(next));
            let event = tokio::select! {
                biased;
                read = reader.read(&mut buffer) => Event::Read(read),
                wrote = write_some(&mut writer, connection.unwritten()), if has_unwritten || !is_flushed => Event::Wrote(wrote),
                () = self.step(next) => Event::Step,
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
                let is_response = !matches!(end, StreamEnd::Unprocessed);
                if let Err(why) = self.finish(token, end) {
                    return End::Failed(why);
                }
                if is_response && self.shared.is_away.swap(false, Ordering::Relaxed) {
                    let server = &self.shared.server.address;
                    let line =
                        format!("tidegate: connected to the server at {server}{}", shown(address, " (", ")"));
                    log(LogLevel::Info, &line);
                }
                self.log_shared_store();
            }
            if self.is_stopped() {
                self.give_back(&mut connection, &mut writer).await;
                return End::Stopped;
            }
            if !self.exchanges.expire(now()) {
                return End::Unresponsive;
            }
            self.take_questions();
            self.renew();
            if connection.is_used_up() && connection.in_flight() == 0 {
                return End::Closed;
            }
            has_room = match self.send(&mut connection) {
                Ok(has_room) => has_room,
                Err(why) => return End::Failed(why),
            };
        }
    }

    /// Logs once that the server grants no credits for counters in its store.
    fn log_shared_store(&mut self) {
        if self.exchanges.has_shared_store() && !std::mem::replace(&mut self.is_store_logged, true) {
            let server = &self.shared.server.address;
            let line = format!(
                "tidegate: the server at {server} has counters in a shared store and grants no credits of these: each request that they \
                 limit is a call; use the filter ratelimit with it, or a server without --counters"
            );
            log(LogLevel::Warn, &line);
        }
    }

    /// Starts the calls that are due, while there is room. False if there is no more room.
    fn send(&mut self, connection: &mut Connection<Reply>) -> Result<bool, String> {
        // Room for the largest message: a call is made only when it can be sent, so that its claims have the time of sending.
        while connection.has_room(client::BODY_MAX).map_err(|error| error.to_string())? {
            let Some((token, message)) = self.exchanges.next(&self.shared.known, now()) else {
                return Ok(true);
            };
            start(connection, token, &message);
        }
        Ok(false)
    }

    /// Handles the end of a call. An error means that the next call would fail too.
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

    /// Returns all credits, if the socket takes the bytes at once: the server ends other credits when they expire.
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

/// The longest time by which a server that does not read delays the end of the thread.
const GIVE_BACK_TIMEOUT: Duration = Duration::from_millis(5);

/// The reason to drop a connection whose server is there but does not respond.
const UNRESPONSIVE: &str = "no response for a second";

/// An address between texts; nothing for a Unix socket, which the log names.
fn shown(address: Option<SocketAddr>, before: &str, after: &str) -> String {
    address.map(|address| format!("{before}{address}{after}")).unwrap_or_default()
}

/// Writes some of the bytes; without bytes, flushes the layers below.
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

#[cfg(test)]
mod tests {
    use super::super::{Leased, tests::SETTINGS};
    use crate::settings::{Address, HostPort, Server};
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
        time::Duration,
    };
    use tidegate_core::clock::since_boot;

    /// No stream was processed.
    const GOAWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    /// Closes a connection in order as soon as the client uses it.
    fn turn_away(stream: &mut TcpStream) {
        stream.write_all(&SETTINGS).unwrap();
        stream.read_exact(&mut [0; b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".len()]).unwrap();
        let mut header = [0; 9];
        // The acknowledgement of the settings.
        while header[3..5] != [4, 1] {
            stream.read_exact(&mut header).unwrap();
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
            stream.read_exact(&mut vec![0; length as usize]).unwrap();
        }
        stream.write_all(&GOAWAY).unwrap();
    }

    #[test]
    fn a_server_that_closes_each_connection_at_once_is_not_asked_in_a_loop() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let hosts =
            vec![HostPort { host: "127.0.0.1".to_owned(), port: listener.local_addr().unwrap().port() }];
        let server = Server { address: Address::Tcp(hosts), tls: None, token_file: None };
        let _leased = Leased::of(&server).unwrap();
        let begun = since_boot();
        let mut streams = Vec::new();
        for _ in 0..5 {
            streams.push(listener.accept().unwrap().0);
            turn_away(streams.last_mut().unwrap());
        }
        // 20, 40, 80 and 160 ms.
        assert!(Duration::from_nanos(since_boot() - begun) >= Duration::from_millis(300));
    }
}
