//! A circuit breaker: a server that does not answer costs microseconds, not deadlines. Pure: time is an argument.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

/// Time without an answer after which one failure opens the breaker, if another address is in use.
const SILENT_FOR: Duration = Duration::from_millis(250);

/// Opens after a number of failures in a row. Once it has been open for the set time, it lets one call through.
///
/// Failures of overlapping calls count as one: a pause of this process, or a burst that the server answers late, proves no more than one
/// late call. While another address is in use, one failure is enough if no call was answered for a quarter of a second: otherwise few calls
/// would take long to find a server that hangs.
#[derive(Debug)]
pub(crate) struct Breaker {
    failures_max: u32,
    open_for: Duration,
    /// Whether `state` has failures, so that calls take no lock while there are none.
    is_troubled: AtomicBool,
    /// Time, in nanoseconds, at which an answered call was sent: the last such call, or one shortly before.
    answered_at: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    failures: u32,
    /// Time of the last failure that counted.
    failed_at: Duration,
    /// Time from which a probe may be made; None while closed.
    probe_at: Option<Duration>,
    is_probing: bool,
}

/// Permission to make one call. If it is dropped without an outcome, the call was cancelled: neither a success nor a failure.
#[derive(Debug)]
pub(crate) struct Permit {
    breaker: Arc<Breaker>,
    is_probe: bool,
    is_over: bool,
}

impl Breaker {
    pub(crate) fn new(failures_max: u32, open_for: Duration) -> Self {
        let (is_troubled, answered_at) = (AtomicBool::new(false), AtomicU64::new(0));
        Self { failures_max, open_for, is_troubled, answered_at, state: Mutex::default() }
    }

    /// Returns permission to make a call, or None while the breaker is open.
    pub(crate) fn enter(self: &Arc<Self>, now: Duration) -> Option<Permit> {
        let permit = |is_probe| Some(Permit { breaker: Arc::clone(self), is_probe, is_over: false });
        if !self.is_troubled.load(Ordering::Acquire) {
            return permit(false);
        }
        let mut state = self.state();
        match state.probe_at {
            None => permit(false),
            Some(at) if state.is_probing || now < at => None,
            Some(_) => {
                state.is_probing = true;
                permit(true)
            }
        }
    }

    /// Whether calls fail at once.
    pub(crate) fn is_open(&self) -> bool {
        self.is_troubled.load(Ordering::Acquire) && self.state().probe_at.is_some()
    }

    /// Whether no call was answered for some time.
    pub(crate) fn is_silent(&self, now: Duration) -> bool {
        let answered_at = Duration::from_nanos(self.answered_at.load(Ordering::Relaxed));
        now.saturating_sub(answered_at) >= SILENT_FOR
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    /// Whether this is the one call that is made while the breaker is open.
    pub(crate) fn is_probe(&self) -> bool {
        self.is_probe
    }

    /// Records that the call, sent at some time, was answered.
    pub(crate) fn succeeded(mut self, sent: Duration) {
        self.is_over = true;
        let answered_at = &self.breaker.answered_at;
        // A load is cheaper than a store that all callers share.
        if sent.saturating_sub(Duration::from_nanos(answered_at.load(Ordering::Relaxed))) > SILENT_FOR / 5 {
            answered_at.store(nanos(sent), Ordering::Relaxed);
        }
        if !self.breaker.is_troubled.load(Ordering::Acquire) {
            return;
        }
        let mut state = self.breaker.state();
        if self.is_probe || state.probe_at.is_none() {
            *state = State::default();
            self.breaker.is_troubled.store(false, Ordering::Release);
        }
    }

    /// Records that the call, sent at some time, was not answered, and whether another address is in use.
    pub(crate) fn failed(mut self, sent: Duration, now: Duration, has_other: bool) {
        self.is_over = true;
        let breaker = &self.breaker;
        if breaker.failures_max == 0 {
            return;
        }
        let mut state = breaker.state();
        if self.is_probe {
            state.is_probing = false;
            state.probe_at = Some(now.saturating_add(breaker.open_for));
        } else if state.probe_at.is_none() && (state.failures == 0 || sent >= state.failed_at) {
            state.failed_at = now;
            state.failures += 1;
            if state.failures >= breaker.failures_max || has_other && breaker.is_silent(now) {
                state.probe_at = Some(now.saturating_add(breaker.open_for));
            }
        }
        breaker.is_troubled.store(true, Ordering::Release);
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if self.is_probe && !self.is_over {
            self.breaker.state().is_probing = false;
        }
    }
}

/// A time of the client's clock as an atomic holds it.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_cancelled_probe_is_repeated() {
        let breaker = Arc::new(Breaker::new(1, SECOND));
        breaker.enter(Duration::ZERO).expect("closed").failed(Duration::ZERO, Duration::ZERO, false);
        assert!(breaker.enter(SECOND / 2).is_none());
        drop(breaker.enter(SECOND).expect("a probe"));
        let probe = breaker.enter(SECOND).expect("another probe");
        assert!(breaker.enter(SECOND).is_none(), "one at a time");
        probe.succeeded(Duration::ZERO);
        assert!(breaker.enter(SECOND).is_some());
    }

    #[test]
    fn it_may_stay_open_for_ever() {
        let breaker = Arc::new(Breaker::new(1, Duration::MAX));
        breaker.enter(SECOND).expect("closed").failed(SECOND, SECOND, false);
        assert!(breaker.enter(2 * SECOND).is_none());
    }

    #[test]
    fn failures_count_in_a_row_only() {
        let breaker = Arc::new(Breaker::new(2, SECOND));
        for _ in 0..3 {
            breaker.enter(Duration::ZERO).expect("closed").failed(Duration::ZERO, Duration::ZERO, false);
            breaker.enter(Duration::ZERO).expect("closed").succeeded(Duration::ZERO);
        }
    }

    #[test]
    fn one_failure_opens_it_beside_another_address_if_no_call_was_answered_for_some_time() {
        for (answered, has_other, is_open) in
            [(SECOND, true, false), (SECOND - SILENT_FOR, true, true), (Duration::ZERO, false, false)]
        {
            let breaker = Arc::new(Breaker::new(2, SECOND));
            breaker.enter(answered).expect("closed").succeeded(answered);
            breaker.enter(SECOND).expect("closed").failed(SECOND, SECOND, has_other);
            assert_eq!(breaker.is_open(), is_open, "{answered:?} {has_other}");
        }
    }

    #[test]
    fn concurrent_failures_of_one_stall_are_one() {
        let breaker = Arc::new(Breaker::new(2, SECOND));
        let in_flight: Vec<_> = (0..8).map(|_| breaker.enter(Duration::ZERO).expect("closed")).collect();
        for permit in in_flight {
            permit.failed(Duration::ZERO, SECOND, false);
        }
        breaker.enter(SECOND).expect("closed").failed(SECOND, SECOND, false);
        assert!(breaker.enter(SECOND).is_none(), "the second failure");
    }
}
