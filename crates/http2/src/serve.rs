//! Drives a connection over a byte stream.

use super::{
    Activity, ClassCounts, CloseReason, ConnectionCounts, Http2Settings, LongLived, Service,
    connection::{Connection, TLS_CLIENT_HELLO},
    counts::Publisher,
    routed,
    task_event::{TaskEvent, TaskSender},
};
use std::{
    cell::RefCell,
    future::poll_fn,
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::mpsc,
    time::{Instant, Interval, MissedTickBehavior, interval},
};

/// Bytes read at once. All connections of a thread read through one buffer, and none keeps it.
const READ_BYTES: usize = 32 * 1024;

/// Reads in a row before other tasks of the thread run.
const READS_IN_A_ROW: usize = 8;

thread_local! {
    static READ_BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// Serves a connection until it ends. When `drain` completes, the client gets a GOAWAY and its requests are finished. When `activity` is
/// evicted, likewise, but without waiting for the client. Counts in `counts`, if anything reads them.
pub async fn serve<S: Service>(
    io: impl AsyncRead + AsyncWrite + Unpin,
    service: Arc<S>,
    settings: Http2Settings,
    activity: Arc<Activity>,
    counts: Option<Arc<ConnectionCounts>>,
    drain: impl Future<Output = ()>,
) -> io::Result<()> {
    let (tasks, from_tasks) = mpsc::unbounded_channel();
    let mut ticks = interval(settings.tick());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut publisher = Publisher::start(counts.as_deref());
    let mut driver = Driver {
        io,
        connection: Connection::new(settings, tasks.clone()).with_share(service.body_share()),
        service,
        activity: &activity,
        has_had_request: false,
        tasks,
        from_tasks,
        running: 0,
        long_lived: LongLived::default(),
        ticks,
        started: None,
        is_flushed: true,
        write_error: None,
        unwritten: UnwrittenResponses::default(),
    };
    let (mut drain, mut evicted) = (pin!(drain), pin!(activity.evicted()));
    let (mut is_draining, mut is_evicted) = (false, false);
    let ended = poll_fn(|context| {
        if !is_draining && drain.as_mut().poll(context).is_ready() {
            is_draining = true;
            driver.connection.start_drain(CloseReason::Drain);
        }
        if !is_evicted && evicted.as_mut().poll(context).is_ready() {
            is_evicted = true;
            driver.connection.go_away(CloseReason::Evicted);
        }
        let polled = driver.poll(context);
        let (events, streams_open) = driver.connection.events();
        events.refusals().for_each(|(refusal, count)| driver.service.on_refused(refusal, count));
        publisher.publish(events, streams_open);
        match polled {
            // The GOAWAY was offered to the socket. A client that does not read it must not keep its place.
            Poll::Pending if is_evicted && driver.connection.idle_since().is_some() => Poll::Ready(Ok(())),
            polled => polled,
        }
    })
    .await;
    let by_client = if ended.is_ok() { CloseReason::Client } else { CloseReason::Io };
    publisher.closed = driver.connection.end_reason().or(Some(by_client));
    driver.end_tasks().await;
    ended
}

/// The reason why a connection failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
struct Violation(&'static str);

/// Whether a connection failed because its client sent a TLS ClientHello.
pub fn is_tls_client(error: &io::Error) -> bool {
    let violation = error.get_ref().and_then(|error| error.downcast_ref::<Violation>());
    violation == Some(&Violation(TLS_CLIENT_HELLO))
}

struct Driver<'a, I, S: Service> {
    io: I,
    connection: Connection<S>,
    service: Arc<S>,
    activity: &'a Activity,
    /// Whether the first whole request was published.
    has_had_request: bool,
    tasks: TaskSender,
    from_tasks: mpsc::UnboundedReceiver<(u32, TaskEvent)>,
    /// Number of tasks whose last event was not received.
    running: usize,
    long_lived: LongLived,
    ticks: Interval,
    started: Option<Instant>,
    /// Whether everything written was also flushed.
    is_flushed: bool,
    /// The error after which nothing is written any more. What the client had sent before is still read: it may contain ends of requests.
    write_error: Option<io::Error>,
    unwritten: UnwrittenResponses,
}

/// Responses of the fast path that are measured, and not written yet.
#[derive(Default)]
struct UnwrittenResponses {
    /// Time at which the bytes of their requests were read. If the client does not read its responses, the time of the first.
    received: u64,
    counts: ClassCounts,
}

impl UnwrittenResponses {
    #[inline]
    fn add(&mut self, received: u64, more: ClassCounts) {
        if self.counts == ClassCounts::default() {
            *self = Self { received, counts: more };
        } else {
            self.counts.iter_mut().zip(more).for_each(|(count, more)| *count += more);
        }
    }

    #[inline]
    fn take(&mut self) -> Option<Self> {
        (self.counts != ClassCounts::default()).then(|| std::mem::take(self))
    }
}

impl<I: AsyncRead + AsyncWrite + Unpin, S: Service> Driver<'_, I, S> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Poll::Ready(now) = self.ticks.poll_tick(context) {
            let started = *self.started.get_or_insert(now);
            self.connection.tick(now.saturating_duration_since(started));
            self.publish_activity();
        }
        for _ in 0..READS_IN_A_ROW {
            // Without tasks, the only events are reads of bodies that outlive their tasks. They need no wake-up, as the next tick handles
            // them.
            while (self.running > 0 || !self.from_tasks.is_empty())
                && let Poll::Ready(Some((stream, event))) = self.from_tasks.poll_recv(context)
            {
                self.running -= usize::from(event.is_last());
                self.connection.on_task(stream, event);
            }
            self.write(context);
            if self.connection.is_finished() && self.write_error.is_none() {
                return self.poll_end(context);
            }
            if !self.connection.wants_to_read() {
                return self.no_more_to_read();
            }
            match self.poll_read(context)? {
                Poll::Pending => return self.no_more_to_read(),
                Poll::Ready(0) => return Poll::Ready(self.write_error.take().map_or(Ok(()), Err)),
                Poll::Ready(_) => self.start_tasks(),
            }
            if !self.has_had_request {
                // At once, not at the next tick: until then the connection would be among the first to be evicted.
                self.publish_activity();
            }
        }
        self.write(context);
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Pending while the connection can be written to, else the error.
    fn no_more_to_read(&mut self) -> Poll<io::Result<()>> {
        self.write_error.take().map_or(Poll::Pending, |error| Poll::Ready(Err(error)))
    }

    fn publish_activity(&mut self) {
        self.has_had_request = self.connection.has_had_request();
        self.activity.publish(self.connection.idle_since(), self.has_had_request);
    }

    /// Reads once and handles the bytes. Returns their number; zero is the end of the stream.
    fn poll_read(&mut self, context: &mut Context<'_>) -> io::Result<Poll<usize>> {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let mut buffer = ReadBuf::new(buffer);
            match Pin::new(&mut self.io).poll_read(context, &mut buffer) {
                Poll::Pending => Ok(Poll::Pending),
                Poll::Ready(Err(error)) => Err(error),
                Poll::Ready(Ok(())) => {
                    let bytes = buffer.filled();
                    let received = self.service.measured_time();
                    self.connection.read(bytes, &self.service);
                    if let Some(received) = received {
                        self.unwritten.add(received, self.connection.responses());
                    }
                    Ok(Poll::Ready(bytes.len()))
                }
            }
        })
    }

    /// Writes as much as the stream takes, and nothing after an error.
    fn write(&mut self, context: &mut Context<'_>) {
        if self.write_error.is_none() {
            self.write_error = self.poll_write(context).err();
        }
        if self.write_error.is_some() {
            self.connection.drop_unwritten();
        }
    }

    /// Writes as much as the stream takes.
    fn poll_write(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while !self.connection.unwritten().is_empty() {
            match Pin::new(&mut self.io).poll_write(context, self.connection.unwritten()) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(written)) => {
                    self.is_flushed = false;
                    self.connection.wrote(written);
                }
                Poll::Ready(Err(error)) => return Err(error),
            }
        }
        self.poll_flush(context)?;
        if self.is_flushed
            && let Some(UnwrittenResponses { received, counts }) = self.unwritten.take()
        {
            self.service.on_written(received, counts);
        }
        Ok(())
    }

    /// Flushes the bytes that the stream buffers itself, as TLS does; a socket has none.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.is_flushed {
            return Ok(());
        }
        match Pin::new(&mut self.io).poll_flush(context) {
            // The stream wakes the task when it can continue.
            Poll::Pending => Ok(()),
            Poll::Ready(flushed) => {
                self.is_flushed = true;
                flushed
            }
        }
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.connection.failure() {
            Some(why) => {
                // Best effort: the last frames should arrive, but a failed connection is not waited for.
                let _ = Pin::new(&mut self.io).poll_shutdown(context);
                Poll::Ready(Err(io::Error::other(Violation(why))))
            }
            None => Pin::new(&mut self.io).poll_shutdown(context),
        }
    }

    /// Ends the connection and its tasks. Each task that was never polled is polled once before.
    async fn end_tasks(self) {
        let Self { connection, mut from_tasks, mut running, .. } = self;
        connection.end();
        while running > 0
            && let Some((_, event)) = from_tasks.recv().await
        {
            event.run_hook();
            running -= usize::from(event.is_last());
        }
    }

    fn start_tasks(&mut self) {
        while let Some((stream, mut request)) = self.connection.take_routed() {
            if let Some(refusal) = self.service.refuse(&request) {
                self.connection.refuse_routed(stream, refusal);
                continue;
            }
            request.extensions_mut().insert(self.long_lived.clone());
            let task = routed::start(&self.service, stream, request, &self.tasks);
            self.running += 1;
            self.connection.set_task(stream, task);
        }
        while let Some((stream, body)) = self.connection.take_deferred() {
            self.running += 1;
            self.connection.set_task(stream, routed::start_deferred(stream, body, &self.tasks));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        DeferredResponse, FieldNames, Fields, OnReset, RequestBody, Responses, frame, frame::PREFACE,
    };
    use http::{Request, Response};
    use std::{
        future::{pending, ready},
        sync::atomic::{AtomicU32, Ordering},
        time::Duration,
    };
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// A service that defers calls to `/fast` and routes all others. Counts the futures that are polled, and the hooks that are run.
    #[derive(Default)]
    struct Polled {
        polled: Arc<AtomicU32>,
        hooks: Arc<AtomicU32>,
        /// Whether its responses are ready at the first poll.
        is_ready: bool,
    }

    impl Service for Polled {
        type FastPath = ();
        type Call<'b> = &'b [u8];
        type Body = String;

        fn field_names() -> &'static FieldNames {
            FieldNames::none()
        }

        fn fast_path(&self, head: Fields<'_>) -> Option<()> {
            (head.get(b":path") == Some(b"/fast")).then_some(())
        }

        fn decode<'b>(&self, (): (), body: &'b [u8], call: &mut &'b [u8]) -> bool {
            *call = body;
            true
        }

        fn respond(&self, calls: &[&[u8]], responses: &mut impl Responses) {
            for _ in calls {
                let (polled, hooks, is_ready) =
                    (Arc::clone(&self.polled), Arc::clone(&self.hooks), self.is_ready);
                responses.defer(Box::pin(async move {
                    polled.fetch_add(1, Ordering::Relaxed);
                    if !is_ready {
                        pending::<()>().await;
                    }
                    let on_reset = OnReset::new(move || _ = hooks.fetch_add(1, Ordering::Relaxed));
                    DeferredResponse { body: "late".into(), on_reset: Some(on_reset) }
                }));
            }
        }

        async fn route(self: Arc<Self>, _: Request<RequestBody>) -> Response<String> {
            self.polled.fetch_add(1, Ordering::Relaxed);
            if !self.is_ready {
                pending::<()>().await;
            }
            let mut response = Response::new("late".to_owned());
            let hooks = Arc::clone(&self.hooks);
            let on_reset = OnReset::new(move || _ = hooks.fetch_add(1, Ordering::Relaxed));
            response.extensions_mut().insert(on_reset);
            ready(response).await
        }
    }

    fn frame_bytes(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        frame::write(kind, flags, stream, payload, &mut bytes);
        bytes
    }

    /// Ten calls, every other one routed. `after_each` returns the frames after the call of a stream.
    fn ten_calls(after_each: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
        let mut bytes = [PREFACE, &frame_bytes(frame::SETTINGS, 0, 0, &[])].concat();
        for stream in (1..20).step_by(2) {
            let path: &[u8] = if stream % 4 == 1 { b"/fast" } else { b"/else" };
            let block = [&b"\x83\x86\x04\x05"[..], path, b"\x0f\x10\x10application/grpc"].concat();
            bytes.extend(frame_bytes(frame::HEADERS, frame::END_HEADERS, stream, &block));
            bytes.extend(frame_bytes(frame::DATA, frame::END_STREAM, stream, b"call"));
            bytes.extend(after_each(stream));
        }
        bytes
    }

    /// The ends of 15 to 20 of 20 requests were lost when their connection was closed right after them.
    #[tokio::test]
    async fn requests_that_were_received_are_polled_although_their_stream_or_connection_has_ended() {
        let reset = |stream| frame_bytes(frame::RST_STREAM, 0, stream, &8_u32.to_be_bytes());
        let closed = ten_calls(|_| Vec::new());
        let broken = [&closed[..], &frame_bytes(frame::PING, 0, 0, b"short")].concat();
        for (bytes, is_left_open) in [(ten_calls(reset), true), (closed, false), (broken, true)] {
            for is_ready in [false, true] {
                let service = Arc::new(Polled { is_ready, ..Polled::default() });
                let (mut client, server) = tokio::io::duplex(1 << 16);
                client.write_all(&bytes).await.expect("it fits");
                let client = is_left_open.then_some(client);
                let serving = serve(
                    server,
                    Arc::clone(&service),
                    Http2Settings::default(),
                    Arc::default(),
                    None,
                    pending(),
                );
                let until = async {
                    // A connection that is left open is served until every call was polled.
                    while service.polled.load(Ordering::Relaxed) < 10 {
                        tokio::task::yield_now().await;
                    }
                    drop(client);
                };
                let served = async { tokio::join!(serving, until) };
                let served = tokio::time::timeout(Duration::from_secs(20), served).await;
                assert!(served.is_ok(), "{} of 10 were polled", service.polled.load(Ordering::Relaxed));
                // No response was written: the hooks of those that were ready have run.
                let hooks = service.hooks.load(Ordering::Relaxed);
                assert_eq!(hooks, if is_ready { 10 } else { 0 });
            }
        }
    }

    /// A connection that the client has reset: nothing can be written, but what was received before can still be read, piece by piece.
    struct Reset(std::collections::VecDeque<Vec<u8>>);

    impl AsyncRead for Reset {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            into: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            let piece = self.0.pop_front().ok_or(io::ErrorKind::ConnectionReset)?;
            into.put_slice(&piece);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Reset {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// When an Envoy is terminated, it closes its connections with responses unread. The server's next write failed, and it did not read
    /// the ends of requests that it had received.
    #[tokio::test]
    async fn requests_that_were_received_are_polled_although_nothing_can_be_written_any_more() {
        for is_ready in [false, true] {
            let service = Arc::new(Polled { is_ready, ..Polled::default() });
            let io = Reset(ten_calls(|_| Vec::new()).chunks(70).map(<[u8]>::to_vec).collect());
            let serving =
                serve(io, Arc::clone(&service), Http2Settings::default(), Arc::default(), None, pending());
            let served = tokio::time::timeout(Duration::from_secs(20), serving).await;
            assert!(served.expect("it ends").is_err());
            assert_eq!(service.polled.load(Ordering::Relaxed), 10);
            assert_eq!(service.hooks.load(Ordering::Relaxed), if is_ready { 10 } else { 0 });
        }
    }

    #[tokio::test]
    async fn a_response_of_which_the_client_took_a_part_counts_as_reset_at_the_end_of_the_connection() {
        let service = Arc::new(Polled { is_ready: true, ..Polled::default() });
        let (mut client, server) = tokio::io::duplex(128);
        let client = async {
            client.write_all(&ten_calls(|_| Vec::new())).await.expect("it is read");
            // Reads some responses. The others do not fit.
            client.read_exact(&mut [0; 256]).await.expect("responses");
            drop(client);
        };
        let serving =
            serve(server, Arc::clone(&service), Http2Settings::default(), Arc::default(), None, pending());
        let both = async { tokio::join!(serving, client) };
        let (served, ()) = tokio::time::timeout(Duration::from_secs(20), both).await.expect("it ends");
        assert!(served.is_err());
        assert_eq!(service.polled.load(Ordering::Relaxed), 10);
        let hooks = service.hooks.load(Ordering::Relaxed);
        assert!((1..10).contains(&hooks), "{hooks} of 10 were not written");
    }
}
