//! Log records of failing calls: the first failure, then one record a minute, and the first answer after them. Pure except for the records:
//! time is an argument.

use crate::decision::Decision;
use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Least time between two records of repeated failures.
const EVERY: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(crate) struct FailureLog {
    /// Whether the last call failed, so that answers take no lock while calls are answered.
    is_failing: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Time of the last record.
    logged_at: Duration,
    /// Failures since then.
    since: u64,
    /// Time of the last record of a refused request.
    refused_at: Option<Duration>,
}

impl FailureLog {
    /// Logs a decision without an answer, if a record is due.
    pub(crate) fn failed(&self, decision: &Decision, now: Duration) {
        let mut state = self.state();
        state.since += 1;
        let is_first = !self.is_failing.swap(true, Ordering::Relaxed);
        if !is_first && now.saturating_sub(state.logged_at) < EVERY {
            return;
        }
        let failures = state.since;
        (state.logged_at, state.since) = (now, 0);
        drop(state);
        let (code, message) =
            (decision.error.unwrap_or_default(), decision.error_message.as_deref().unwrap_or_default());
        let requests = if decision.allowed { "allowed" } else { "denied" };
        tracing::warn!(
            failures,
            "no answer from the rate limit server ({code}: {message}); requests are {requests}"
        );
    }

    /// Logs that the server refuses a request itself, if a record is due.
    pub(crate) fn refused(&self, code: &str, message: &str, now: Duration) {
        let mut state = self.state();
        if state.refused_at.is_some_and(|at| now.saturating_sub(at) < EVERY) {
            return;
        }
        state.refused_at = Some(now);
        drop(state);
        tracing::warn!(
            "the rate limit server refuses a request ({code}: {message}); middleware answers with 400"
        );
    }

    /// Logs an answer, if it is the first after failures.
    pub(crate) fn ended(&self) {
        if self.is_failing.load(Ordering::Relaxed) && self.is_failing.swap(false, Ordering::Relaxed) {
            let failures = std::mem::take(&mut self.state().since);
            tracing::info!(failures, "the rate limit server answers again");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
