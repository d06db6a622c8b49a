//! Drives a connection over a socket.

use super::{
    Http2Settings, Service,
    connection::Connection,
    routed::{self, TaskEvent, TaskSender},
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

/// How much is read at once. What a thread's connections read goes through one buffer: none of them keeps it.
const READ_BYTES: usize = 32 * 1024;

/// After so many reads in a row, others have their turn.
const READS_IN_A_ROW: usize = 8;

thread_local! {
    static READ_BUFFER: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into());
}

/// Serves a connection until it ends by itself, or for some time after `drain` completes: the client is asked to start
/// nothing more, and what is under way is finished.
pub async fn serve<S: Service>(
    io: impl AsyncRead + AsyncWrite + Unpin,
    service: Arc<S>,
    settings: Http2Settings,
    drain: impl Future<Output = ()>,
) -> io::Result<()> {
    let (tasks, from_tasks) = mpsc::unbounded_channel();
    let mut ticks = interval(settings.tick());
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut driver = Driver {
        io,
        connection: Connection::new(settings, tasks.clone()),
        service,
        tasks,
        from_tasks,
        ticks,
        started: None,
        is_flushed: true,
    };
    let mut drain = pin!(drain);
    let mut is_draining = false;
    poll_fn(|context| {
        if !is_draining && drain.as_mut().poll(context).is_ready() {
            is_draining = true;
            driver.connection.start_drain();
        }
        driver.poll(context)
    })
    .await
}

struct Driver<I, S: Service> {
    io: I,
    connection: Connection<S>,
    service: Arc<S>,
    tasks: TaskSender,
    from_tasks: mpsc::UnboundedReceiver<(u32, TaskEvent)>,
    ticks: Interval,
    started: Option<Instant>,
    /// Whether everything written was also flushed.
    is_flushed: bool,
}

impl<I: AsyncRead + AsyncWrite + Unpin, S: Service> Driver<I, S> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Poll::Ready(now) = self.ticks.poll_tick(context) {
            let started = *self.started.get_or_insert(now);
            self.connection.tick(now.saturating_duration_since(started));
        }
        for _ in 0..READS_IN_A_ROW {
            while let Poll::Ready(Some((stream, told))) = self.from_tasks.poll_recv(context) {
                self.connection.on_task(stream, told);
            }
            self.poll_write(context)?;
            if self.connection.is_finished() {
                return self.poll_end(context);
            }
            if !self.connection.wants_to_read() {
                return Poll::Pending;
            }
            match self.poll_read(context)? {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(0) => return Poll::Ready(Ok(())),
                Poll::Ready(_) => self.start_tasks(),
            }
        }
        self.poll_write(context)?;
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads what there is, once, and takes it; how much it was, where nothing is the end.
    fn poll_read(&mut self, context: &mut Context<'_>) -> io::Result<Poll<usize>> {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let mut buffer = ReadBuf::new(buffer);
            match Pin::new(&mut self.io).poll_read(context, &mut buffer) {
                Poll::Pending => Ok(Poll::Pending),
                Poll::Ready(Err(error)) => Err(error),
                Poll::Ready(Ok(())) => {
                    let bytes = buffer.filled();
                    self.connection.read(bytes, &self.service);
                    Ok(Poll::Ready(bytes.len()))
                }
            }
        })
    }

    /// Writes what the socket takes.
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
        self.poll_flush(context)
    }

    /// Flushes the bytes that the stream buffers itself, as TLS does; a socket has none.
    fn poll_flush(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.is_flushed {
            return Ok(());
        }
        match Pin::new(&mut self.io).poll_flush(context) {
            // The stream wakes the task when it can go on.
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
                // What is written last is to arrive, but nobody waits for it.
                let _ = Pin::new(&mut self.io).poll_shutdown(context);
                Poll::Ready(Err(io::Error::other(why)))
            }
            None => Pin::new(&mut self.io).poll_shutdown(context),
        }
    }

    fn start_tasks(&mut self) {
        while let Some((stream, request)) = self.connection.take_routed() {
            let task = routed::start(&self.service, stream, request, &self.tasks);
            self.connection.set_task(stream, task);
        }
    }
}
