//! Requests that wait for a decision of the server.
//!
//! Invariant: a waker is used and dropped under the lock that the stream takes when it ends. So no waker outlives its stream.

use super::messages::Response;
use std::sync::Arc;
use tidegate_core::sync::Mutex;
use tidegate_envoy_abi::Waker;

/// The result for a waiting request; none if the server did not decide it.
pub(crate) type Outcome = Option<Box<Response>>;

/// A waiting request, as the thread sees it.
#[derive(Default)]
pub(super) struct Call(Mutex<State>);

#[derive(Default)]
enum State {
    Waits(Waker),
    Done(Outcome),
    /// The stream has ended, or has its outcome.
    #[default]
    Over,
}

impl Call {
    pub(super) fn new(waker: Waker) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State::Waits(waker))))
    }

    /// Passes the outcome to the stream, and wakes it. The error returns the outcome if the stream no longer waits.
    pub(super) fn finish(&self, outcome: Outcome) -> Result<(), Outcome> {
        let mut state = self.0.lock();
        match std::mem::replace(&mut *state, State::Done(outcome)) {
            State::Waits(waker) => {
                waker.wake();
                Ok(())
            }
            former => match std::mem::replace(&mut *state, former) {
                State::Done(outcome) => Err(outcome),
                _ => Err(None),
            },
        }
    }

    /// Whether the stream waits.
    pub(super) fn is_waiting(&self) -> bool {
        matches!(*self.0.lock(), State::Waits(_))
    }

    /// Ends the call; returns the outcome, if there is one.
    pub(super) fn take(&self) -> Option<Outcome> {
        match std::mem::take(&mut *self.0.lock()) {
            State::Done(outcome) => Some(outcome),
            State::Waits(_) | State::Over => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn call() -> (Arc<Call>, Arc<AtomicUsize>) {
        let wakes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&wakes);
        let wake = move || {
            counted.fetch_add(1, Ordering::Relaxed);
        };
        (Call::new(Waker::of_test(wake)), wakes)
    }

    #[test]
    fn an_outcome_wakes_the_stream_once() {
        let (call, wakes) = call();
        assert!(call.is_waiting());
        assert_eq!(call.finish(Some(Box::default())), Ok(()));
        assert_eq!(call.finish(None), Err(None), "the second one does nothing");
        assert_eq!(call.take(), Some(Some(Box::default())));
        assert_eq!((call.take(), wakes.load(Ordering::Relaxed)), (None, 1));
    }

    #[test]
    fn a_stream_that_has_ended_is_not_woken() {
        let (call, wakes) = call();
        assert_eq!(call.take(), None);
        let late = Some(Box::new(Response { ticket: Some("slot-1".into()), ..Response::default() }));
        assert_eq!(call.finish(late.clone()), Err(late), "so that its slots are released");
        assert_eq!(wakes.load(Ordering::Relaxed), 0);
        assert!(!call.is_waiting());
    }
}
