//! A connection whose requests and responses have to be complete in time.
//!
//! Each phase has one deadline from its start: a client that sends or reads a byte now and then does not extend it. The time of
//! a body and of a handler is bounded where they run, so the phases [`Phase::Body`] and [`Phase::Handling`] have none.

use parking_lot::Mutex;
use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};
use tidegate_http2::OnReset;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// First byte of a TLS handshake record; no HTTP method begins with it.
const TLS_HANDSHAKE: u8 = 0x16;

/// The state of a connection between its requests and responses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(super) enum Phase {
    /// No byte of the next request was received.
    Idle,
    /// The head of a request is not complete. The phase of a new connection.
    Head,
    /// The request is handled.
    Handling,
    /// The response is not written.
    Writing,
    /// The body of a request is not complete.
    Body,
}

/// Number of phases, at most.
const PHASES: u64 = 8;

/// The phase of a connection, as its stream and its service set it and its port reads it.
pub(crate) struct Progress {
    /// The number of changes of phase, times [`PHASES`], and the phase.
    state: AtomicU64,
    /// Recency of the last request, or of the opening, among all connections of the port.
    recency: AtomicU64,
    sent_tls: AtomicBool,
    /// Hooks of responses that are not written yet: several, if the client sends requests before it has the responses.
    unwritten: Mutex<Vec<UnlessWritten>>,
}

/// The hook of a response, which runs when this is dropped before the response is written: its client does not have it.
pub(super) struct UnlessWritten(Option<OnReset>);

impl UnlessWritten {
    pub(super) fn new(hook: OnReset) -> Self {
        Self(Some(hook))
    }
}

impl Drop for UnlessWritten {
    fn drop(&mut self) {
        self.0.iter().for_each(OnReset::run);
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self {
            state: AtomicU64::new(Phase::Head as u64),
            recency: AtomicU64::new(0),
            sent_tls: AtomicBool::new(false),
            unwritten: Mutex::default(),
        }
    }
}

impl Progress {
    /// Whether the client has to send something: no request is complete.
    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.phase(), Phase::Idle | Phase::Head | Phase::Body)
    }

    /// Whether the client has to read the response.
    pub(crate) fn is_writing(&self) -> bool {
        self.phase() == Phase::Writing
    }

    /// Recency of the last request, or of the opening, among all connections.
    pub(crate) fn recency(&self) -> u64 {
        self.recency.load(Relaxed)
    }

    /// Whether the client sent a TLS handshake.
    pub(crate) fn sent_tls(&self) -> bool {
        self.sent_tls.load(Relaxed)
    }

    pub(crate) fn set_recency(&self, recency: u64) {
        self.recency.store(recency, Relaxed);
    }

    /// Adds the hook of a response that is about to be written.
    pub(super) fn add_unwritten(&self, hook: UnlessWritten) {
        self.unwritten.lock().push(hook);
    }

    /// Drops the hooks of responses that are now written.
    fn note_written(&self) {
        for mut hook in self.unwritten.lock().drain(..) {
            hook.0.take();
        }
    }

    /// Runs the hooks of responses that a connection did not write before its end.
    pub(super) fn end(&self) {
        drop(std::mem::take(&mut *self.unwritten.lock()));
    }

    pub(super) fn enter(&self, phase: Phase) {
        if self.phase() != phase {
            // Changed by the one thread of the port alone.
            let changes = self.state.load(Relaxed) / PHASES + 1;
            self.state.store(changes * PHASES + phase as u64, Relaxed);
        }
    }

    pub(super) fn phase(&self) -> Phase {
        match self.state.load(Relaxed) % PHASES {
            0 => Phase::Idle,
            1 => Phase::Head,
            2 => Phase::Handling,
            3 => Phase::Writing,
            _ => Phase::Body,
        }
    }
}

/// Times of the phases.
#[derive(Clone, Copy, Debug)]
pub(super) struct PhaseTimes {
    pub(super) idle: Duration,
    /// Timeout of the head of a request, and of a response.
    pub(super) message: Duration,
}

/// A stream that fails with [`io::ErrorKind::TimedOut`] once a phase has lasted for too long.
pub(super) struct TimedStream<S> {
    stream: S,
    progress: Arc<Progress>,
    times: PhaseTimes,
    timer: Pin<Box<Sleep>>,
    /// The state that the timer is set for.
    timed: Option<u64>,
    has_received: bool,
}

impl<S> TimedStream<S> {
    pub(super) fn new(stream: S, progress: Arc<Progress>, times: PhaseTimes) -> Self {
        let timer = Box::pin(sleep(times.message));
        Self { stream, progress, times, timer, timed: None, has_received: false }
    }

    /// Pending, or the error of a phase that has lasted for too long.
    fn poll_deadline<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let limit = match self.progress.phase() {
            Phase::Handling | Phase::Body => return Poll::Pending,
            Phase::Idle => self.times.idle,
            Phase::Head | Phase::Writing => self.times.message,
        };
        let state = self.progress.state.load(Relaxed);
        if self.timed != Some(state) {
            self.timer.set(sleep(limit));
            self.timed = Some(state);
        }
        self.timer.as_mut().poll(context).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }

    fn begin_writing(&self) {
        // Handling ends with the response; before that only `100 Continue` is written.
        if !matches!(self.progress.phase(), Phase::Handling | Phase::Body) {
            self.progress.enter(Phase::Writing);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let start = buffer.filled().len();
        let Poll::Ready(result) = Pin::new(&mut self.stream).poll_read(context, buffer) else {
            return self.poll_deadline(context);
        };
        let received = &buffer.filled()[start..];
        if let Some(first) = received.first() {
            if !self.has_received && *first == TLS_HANDSHAKE {
                self.progress.sent_tls.store(true, Relaxed);
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "the client sends TLS")));
            }
            self.has_received = true;
            if self.progress.phase() == Phase::Idle {
                self.progress.enter(Phase::Head);
            }
        }
        Poll::Ready(result)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.begin_writing();
        match Pin::new(&mut self.stream).poll_write(context, bytes) {
            Poll::Pending => self.poll_deadline(context),
            ready => ready,
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.begin_writing();
        match Pin::new(&mut self.stream).poll_write_vectored(context, pieces) {
            Poll::Pending => self.poll_deadline(context),
            ready => ready,
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// hyper flushes once everything that it has is written.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.stream).poll_flush(context) {
            Poll::Pending => self.poll_deadline(context),
            ready => {
                if matches!(ready, Poll::Ready(Ok(()))) {
                    self.progress.note_written();
                }
                if self.progress.phase() == Phase::Writing {
                    self.progress.enter(Phase::Idle);
                }
                ready
            }
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.begin_writing();
        match Pin::new(&mut self.stream).poll_shutdown(context) {
            Poll::Pending => self.poll_deadline(context),
            ready => ready,
        }
    }
}
