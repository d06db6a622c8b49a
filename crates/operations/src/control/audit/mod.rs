//! The audit log: one JSON line for each change, and for each attempt that was denied.
//!
//! Lines are only appended. Each has the number after that of the line before, and a hash of itself and of that line's hash. A line that is
//! changed, removed or inserted breaks the chain, which `verify` reports. The hashes have no secret: a user with write permission can
//! recompute the chain. Lines cut off at the end are not detected. The number and the hash of a line, kept elsewhere, reveal both.
//!
//! A change has two lines: its intent, which is durable before anything changes, and its outcome, with the number of the intent.

mod chain;
mod error;
mod event;
mod file;
mod recent;
mod thread;

pub use chain::{AuditEntry, BrokenChain, ChainEnd, VerifiedChain, verify};
pub use error::{AuditError, NotLogged};
pub use event::{AuditEvent, INTENT};

use file::AuditFile;
use parking_lot::Mutex;
use recent::Recent;
use std::{
    collections::VecDeque,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::Duration,
};
use thread::{Message, NewEntry, Writer};
use tidegate_core::limit::Timestamp;
use tidegate_threads::{BackgroundThread, Priority, StoppableThread};
use tokio::sync::oneshot;

/// The most lines of denied calls that wait for the disk. More are only counted.
const DENIED_WAITING_MAX: u64 = 1_000;
/// Time that a stop waits for the disk.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// The log. Without a file, it is only in memory.
pub struct AuditLog {
    recent: Arc<Mutex<Recent>>,
    /// Lines of denied calls that wait for the disk.
    denied_waiting: Arc<AtomicU64>,
    /// Denied calls without a line since the last [`Self::take_unlogged`].
    unlogged: AtomicU64,
    /// Dropped before the thread, which ends after its senders.
    sender: mpsc::Sender<Message>,
    _thread: StoppableThread,
}

impl AuditLog {
    /// Continues the log in this file, after its chain was verified.
    pub fn open(path: Option<&Path>) -> Result<Self, AuditError> {
        let mut recent = Recent::default();
        let opened = path.map(|path| AuditFile::open(path, |entry| recent.push(entry))).transpose()?;
        let (file, end) = opened.map_or((None, ChainEnd::default()), |(file, chain)| (Some(file), chain.end));
        let recent = Arc::new(Mutex::new(recent));
        let writer =
            Writer { file, end, recent: Arc::clone(&recent), backlog: VecDeque::new(), is_failing: false };
        let (sender, messages) = mpsc::channel();
        let thread = BackgroundThread::start("audit", Priority::Full, move || writer.run(&messages))?;
        let (denied_waiting, unlogged) = (Arc::default(), AtomicU64::default());
        let thread = thread.stopped_by(()).awaited_within(FLUSH_TIMEOUT);
        Ok(Self { recent, denied_waiting, unlogged, sender, _thread: thread })
    }

    /// Appends a line after all earlier ones. Returns its number once it is durable.
    pub fn append(
        &self,
        event: AuditEvent,
        time: Timestamp,
    ) -> impl Future<Output = Result<u64, NotLogged>> + Send + use<> {
        let (sender, number) = oneshot::channel();
        // The caller may have given up.
        let done = Box::new(move |number| _ = sender.send(number));
        self.send(Message::Append(NewEntry { event, time, done: Some(done) }));
        let ended = || NotLogged { path: String::new(), error: "its thread has ended".into() };
        async move { number.await.unwrap_or_else(|_| Err(ended())) }
    }

    /// Appends a line without waiting. If the file cannot be written now, it is written later.
    pub fn note(&self, event: AuditEvent, time: Timestamp) {
        self.send(Message::Append(NewEntry { event, time, done: None }));
    }

    /// Appends the line of a denied call, unless too many lines wait for the disk.
    pub fn note_denied(&self, event: AuditEvent, time: Timestamp) {
        if self.denied_waiting.fetch_add(1, Ordering::Relaxed) >= DENIED_WAITING_MAX {
            self.denied_waiting.fetch_sub(1, Ordering::Relaxed);
            return self.count_unlogged();
        }
        let waiting = Arc::clone(&self.denied_waiting);
        let done = Box::new(move |_| _ = waiting.fetch_sub(1, Ordering::Relaxed));
        self.send(Message::Append(NewEntry { event, time, done: Some(done) }));
    }

    /// Counts a denied call without a line.
    pub fn count_unlogged(&self) {
        self.unlogged.fetch_add(1, Ordering::Relaxed);
    }

    /// The denied calls without a line since the last call.
    pub(super) fn take_unlogged(&self) -> u64 {
        self.unlogged.swap(0, Ordering::Relaxed)
    }

    /// Reopens the file of the log after it was moved away.
    pub fn reopen(&self) {
        self.send(Message::Reopen);
    }

    /// Waits until the lines appended so far are durable, or the disk does not respond.
    pub fn flush(&self) {
        let (sender, flushed) = mpsc::channel();
        self.send(Message::Flush(Box::new(move || _ = sender.send(()))));
        let _ = flushed.recv_timeout(FLUSH_TIMEOUT);
    }

    /// The lines before this number, newest first.
    pub fn recent(&self, before: u64, count: usize) -> Vec<AuditEntry> {
        self.recent.lock().before(before, count)
    }

    fn send(&self, message: Message) {
        // The thread ends after its senders.
        let _ = self.sender.send(message);
    }
}

#[cfg(test)]
mod tests;
