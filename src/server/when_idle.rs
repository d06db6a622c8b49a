//! Tasks that run when nothing else needs a core.
//!
//! A thread of the idle class polls them, which threads with decisions preempt at once. On a core that decisions saturate it has next to
//! no time; so once it has taken no task for [`OVERDUE`] although some are ready, a second thread, of low priority, polls [`BURST`] in each
//! [`PACE`]. It does nothing while the first is merely slow. Sockets and timers are driven by the runtime that spawns the tasks: only the tasks themselves wait for these threads.
//!
//! Invariant: tasks are polled in the order in which they became ready.

use crate::{
    clock::Clock,
    limit::Timestamp,
    priority::{lower_priority, run_when_idle},
};
use std::{
    collections::VecDeque,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
    thread,
    time::Duration,
};
use tokio::runtime::Handle;

/// Ready tasks beyond which no more should be spawned.
const READY_MAX: usize = 64;

/// Time that ready tasks wait for the idle thread to take one.
const OVERDUE: Duration = Duration::from_millis(50);

/// Time between bursts of polls of overdue tasks. Each takes 0.2 ms in a handshake: a tenth of a core or more.
pub(super) const PACE: Duration = Duration::from_millis(5);

/// Overdue tasks that are polled at once.
const BURST: u32 = 4;

/// The two threads; they end when this is dropped.
pub(super) struct WhenIdle(Arc<Queue>);

/// The queue of ready tasks.
struct Queue {
    ready: Mutex<Ready>,
    /// For the idle thread.
    is_ready: Condvar,
    /// For the other one.
    may_be_overdue: Condvar,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct Ready {
    /// With the times since when they have been ready.
    tasks: VecDeque<(Timestamp, Arc<Task>)>,
    /// Time at which the idle thread took a task.
    taken: Option<Timestamp>,
    /// Whether a thread waits for a task.
    idle_waits: bool,
    overdue_waits: bool,
    is_closed: bool,
}

struct Task {
    /// None once it has ended.
    future: Mutex<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    /// Whether it is in the queue.
    is_queued: AtomicBool,
    queue: Arc<Queue>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        if !self.is_queued.swap(true, Ordering::AcqRel) {
            let queue = Arc::clone(&self.queue);
            queue.push(self);
        }
    }
}

impl Task {
    fn poll(self: Arc<Self>) {
        // Before it is polled: if it is woken meanwhile, it has to be polled again.
        self.is_queued.store(false, Ordering::Release);
        // The other thread polls it, and may have no time to end that soon.
        let Ok(mut future) = self.future.try_lock() else { return Arc::clone(&self).wake() };
        let waker = Waker::from(Arc::clone(&self));
        let Some(running) = future.as_mut() else { return };
        let poll = AssertUnwindSafe(|| running.as_mut().poll(&mut Context::from_waker(&waker)).is_ready());
        // A panic was reported where it occurred.
        if catch_unwind(poll).unwrap_or(true) {
            *future = None;
        }
    }

    /// Drops the future, which may own what holds the task: a socket has the waker of the task that reads from it.
    fn end(&self) {
        // If a thread polls it, the task ends with the process.
        if let Ok(mut future) = self.future.try_lock() {
            *future = None;
        }
    }
}

impl Ready {
    fn push(&mut self, task: Arc<Task>, now: Timestamp) {
        self.tasks.push_back((now, task));
    }

    /// The first task, for the idle thread.
    fn pop(&mut self, now: Timestamp) -> Option<Arc<Task>> {
        let (_, task) = self.tasks.pop_front()?;
        self.taken = Some(now);
        Some(task)
    }

    /// The first task if it is overdue; else the least time until it will be, if there is one.
    fn pop_overdue(&mut self, now: Timestamp) -> Result<Arc<Task>, Option<Duration>> {
        let Some((since, _)) = self.tasks.front() else { return Err(None) };
        let since = self.taken.map_or(*since, |taken| taken.max(*since));
        let left = OVERDUE.saturating_sub(now.since(since));
        if !left.is_zero() {
            return Err(Some(left));
        }
        self.tasks.pop_front().map(|(_, task)| task).ok_or(None)
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Ready> {
        // Nothing panics while it is locked.
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, task: Arc<Task>) {
        let now = self.clock.now();
        let mut ready = self.lock();
        if ready.is_closed {
            drop(ready);
            return task.end();
        }
        ready.push(task, now);
        if std::mem::take(&mut ready.idle_waits) {
            self.is_ready.notify_one();
        }
        if std::mem::take(&mut ready.overdue_waits) {
            self.may_be_overdue.notify_one();
        }
    }

    /// Waits for a task; none once the queue is closed.
    fn next(&self) -> Option<Arc<Task>> {
        let mut ready = self.lock();
        while !ready.is_closed {
            if let Some(task) = ready.pop(self.clock.now()) {
                return Some(task);
            }
            ready.idle_waits = true;
            ready = self.is_ready.wait(ready).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// Waits for an overdue task; none once the queue is closed.
    fn next_overdue(&self) -> Option<Arc<Task>> {
        let mut ready = self.lock();
        while !ready.is_closed {
            ready = match ready.pop_overdue(self.clock.now()) {
                Ok(task) => return Some(task),
                Err(Some(left)) => {
                    let waited = self.may_be_overdue.wait_timeout(ready, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Err(None) => {
                    ready.overdue_waits = true;
                    self.may_be_overdue.wait(ready).unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
        None
    }

    fn new(clock: &Arc<dyn Clock>) -> Arc<Self> {
        let (ready, is_ready, may_be_overdue) = Default::default();
        Arc::new(Self { ready, is_ready, may_be_overdue, clock: Arc::clone(clock) })
    }
}

impl WhenIdle {
    /// Starts both threads. To be called on a runtime, which drives the sockets and timers of the tasks.
    pub(super) fn start(name: &str, clock: &Arc<dyn Clock>) -> io::Result<Self> {
        let when_idle = Self(Queue::new(clock));
        let (queue, runtime) = (Arc::clone(&when_idle.0), Handle::current());
        let idle = move || {
            run_when_idle();
            let _context = runtime.enter();
            while let Some(task) = queue.next() {
                task.poll();
            }
        };
        thread::Builder::new().name(name.into()).spawn(idle)?;
        let (queue, runtime) = (Arc::clone(&when_idle.0), Handle::current());
        let overdue = move || {
            lower_priority();
            let _context = runtime.enter();
            let mut polled = 0;
            while let Some(task) = queue.next_overdue() {
                task.poll();
                polled += 1;
                if polled % BURST == 0 {
                    thread::sleep(PACE);
                }
            }
        };
        thread::Builder::new().name(format!("{name}-late")).spawn(overdue)?;
        Ok(when_idle)
    }

    /// Whether another task should be spawned.
    pub(super) fn has_room(&self) -> bool {
        self.0.lock().tasks.len() < READY_MAX
    }

    /// Has a task run.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let future = Mutex::new(Some(Box::pin(task) as Pin<Box<dyn Future<Output = ()> + Send>>));
        Arc::new(Task { future, is_queued: AtomicBool::new(false), queue: Arc::clone(&self.0) }).wake();
    }
}

impl Drop for WhenIdle {
    fn drop(&mut self) {
        let mut ready = self.0.lock();
        ready.is_closed = true;
        let tasks = std::mem::take(&mut ready.tasks);
        drop(ready);
        self.0.is_ready.notify_all();
        self.0.may_be_overdue.notify_all();
        // Not under the lock: what a task drops may wake another.
        tasks.iter().for_each(|(_, task)| task.end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A clock that stands still.
    struct Still;

    impl Clock for Still {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(0)
        }
    }

    fn still() -> Arc<dyn Clock> {
        Arc::new(Still)
    }

    /// Tasks that send their number, without threads.
    fn numbered(count: u32) -> (WhenIdle, mpsc::Receiver<u32>) {
        let when_idle = WhenIdle(Queue::new(&still()));
        let (ran, received) = mpsc::channel();
        for number in 0..count {
            let ran = ran.clone();
            when_idle.spawn(async move { ran.send(number).expect("the test receives") });
        }
        (when_idle, received)
    }

    #[test]
    fn tasks_are_polled_in_order() {
        let (when_idle, ran) = numbered(3);
        (0..3).for_each(|_| when_idle.0.next().expect("a task").poll());
        assert_eq!(ran.try_iter().collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn only_tasks_that_have_been_ready_for_long_are_overdue() {
        let (when_idle, ran) = numbered(2);
        let due = Timestamp::from_millis(0).saturating_add(OVERDUE);
        let pop = |now| when_idle.0.lock().pop_overdue(now).map(Task::poll);
        assert_eq!(pop(Timestamp::from_nanos(due.as_nanos() - 1)), Err(Some(Duration::from_nanos(1))));
        assert_eq!(ran.try_iter().count(), 0);
        assert_eq!((pop(due), pop(due), pop(due)), (Ok(()), Ok(()), Err(None)));
        assert_eq!(ran.try_iter().collect::<Vec<_>>(), [0, 1]);
    }

    /// The second thread delayed decisions beside a flood of handshakes, were a long queue enough.
    #[test]
    fn no_task_is_overdue_while_the_idle_thread_takes_others() {
        let (when_idle, _ran) = numbered(3);
        let due = Timestamp::from_millis(0).saturating_add(OVERDUE);
        let mut ready = when_idle.0.lock();
        assert!(ready.pop(due).is_some());
        assert_eq!(ready.pop_overdue(due).map(|_| ()), Err(Some(OVERDUE)));
        assert!(ready.pop_overdue(due.saturating_add(OVERDUE)).is_ok());
    }

    #[test]
    fn there_is_room_until_too_many_are_ready() {
        let (when_idle, _ran) = numbered(READY_MAX as u32 - 1);
        assert!(when_idle.has_room());
        when_idle.spawn(async {});
        assert!(!when_idle.has_room());
    }

    /// A task that is polled when it is woken has to be polled again.
    #[test]
    fn a_task_that_wakes_itself_is_polled_again_and_queued_once() {
        let (when_idle, _ran) = numbered(0);
        when_idle.spawn(tokio::task::yield_now());
        let task = when_idle.0.next().expect("a task");
        Arc::clone(&task).poll();
        Arc::clone(&task).wake();
        assert_eq!(when_idle.0.lock().tasks.len(), 1);
        when_idle.0.next().expect("the task").poll();
        assert!(task.future.lock().unwrap().is_none());
    }

    #[test]
    fn a_task_that_another_thread_polls_is_queued_again() {
        let (when_idle, ran) = numbered(1);
        let task = when_idle.0.next().expect("a task");
        let polling = task.future.lock().unwrap();
        Arc::clone(&task).poll();
        drop(polling);
        when_idle.0.next().expect("the task").poll();
        assert_eq!(ran.try_iter().collect::<Vec<_>>(), [0]);
    }

    #[tokio::test]
    async fn the_threads_run_tasks_and_drop_those_that_are_left() {
        let when_idle = WhenIdle::start("when-idle", &still()).expect("threads");
        let (begin, begun) = tokio::sync::oneshot::channel();
        let (sent, received) = tokio::sync::oneshot::channel();
        when_idle.spawn(async move {
            begun.await.expect("the test begins");
            sent.send(()).expect("the test receives");
        });
        begin.send(()).expect("the task has not ended");
        received.await.expect("the task runs");
        // It keeps the other end until it is dropped.
        let (keep, mut dropped) = tokio::sync::oneshot::channel::<()>();
        let (wake, woken) = tokio::sync::oneshot::channel::<()>();
        when_idle.spawn(async move {
            let _ = woken.await;
            std::future::pending::<()>().await;
            drop(keep);
        });
        drop(when_idle);
        drop(wake);
        assert!((&mut dropped).await.is_err());
    }
}
