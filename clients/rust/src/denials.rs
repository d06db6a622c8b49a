//! Denials that are kept until their reset, but no longer than a bound. Pure: time is an argument.
//!
//! Invariant: a kept denial answers only requests that the server would deny too, unless something ends the denial early: a reset, an
//! override, other rules, hits that another process gives back. The bound limits how long that goes unnoticed.

use crate::{decision::Decision, lru::Lru, request::Request};
use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// A bounded map from requests to their denials; when it is full, the least recently used denial is dropped.
#[derive(Debug)]
pub(crate) struct LocalDenials {
    max: usize,
    /// Longest time for which a denial is kept.
    kept_for: Duration,
    /// Number of kept denials, so that requests take no lock while there are none.
    count: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// By the identities of requests.
    kept: Lru<Arc<[u8]>, Kept>,
    /// Domains and keys for which hits were given back.
    given_back: HashSet<Vec<u8>>,
}

#[derive(Debug)]
struct Kept {
    costs: Vec<u64>,
    decision: Arc<Decision>,
    sent: Duration,
    until: Duration,
}

impl LocalDenials {
    pub(crate) fn new(max: usize, kept_for: Duration) -> Self {
        let max = if kept_for.is_zero() { 0 } else { max };
        let state = State { kept: Lru::new(max), given_back: HashSet::new() };
        Self { max, kept_for, count: AtomicUsize::new(0), state: Mutex::new(state) }
    }

    /// Whether any denial is ever kept.
    pub(crate) fn is_on(&self) -> bool {
        self.max > 0
    }

    /// Whether no denial is kept now.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// Returns the denial of the request as of now, if it is kept.
    pub(crate) fn find(&self, request: &Request, identity: &[u8], now: Duration) -> Option<Decision> {
        let mut state = self.state();
        let kept = state.kept.get(identity)?;
        if now >= kept.until {
            state.kept.remove(identity);
            self.count.store(state.kept.len(), Ordering::Relaxed);
            return None;
        }
        // A smaller request may fit where a larger request does not.
        if request.gives_back() || request.costs().zip(&kept.costs).any(|(cost, of_kept)| cost < *of_kept) {
            return None;
        }
        let (decision, elapsed) = (Arc::clone(&kept.decision), now.saturating_sub(kept.sent));
        Some(decision.after(elapsed))
    }

    /// Keeps a denial, until its reset at most, counted from the moment its call was sent.
    pub(crate) fn keep(&self, request: &Request, domain: &str, decision: &Decision, sent: Duration) {
        let Some(wait) = decision.retry_after.filter(|wait| !wait.is_zero()) else { return };
        let costs: Vec<u64> = request.costs().collect();
        // A request of 0 hits is denied if one hit does not fit: the denial does not apply to 0 hits themselves.
        if !self.is_on() || request.gives_back() || costs.contains(&0) {
            return;
        }
        // Another quota may admit sooner, a request with more time may be queued, and a slot may be released.
        if decision.statuses.iter().any(|status| status.over_limit && status.mode.is_some()) {
            return;
        }
        let mut state = self.state();
        let is_given_back = |shape: Vec<u8>| state.given_back.contains(&shape);
        if !state.given_back.is_empty() && request.shapes(false, domain).any(is_given_back) {
            return;
        }
        let until = sent.saturating_add(wait.min(self.kept_for));
        let kept = Kept { costs, decision: Arc::new(decision.clone()), sent, until };
        state.kept.insert(request.identity(domain).into(), kept);
        self.count.store(state.kept.len(), Ordering::Relaxed);
    }

    /// Stops keeping denials for the keys of the descriptors that give back.
    pub(crate) fn end_for(&self, request: &Request, domain: &str) {
        let mut state = self.state();
        let mut is_new = false;
        for shape in request.shapes(true, domain) {
            is_new |= state.given_back.insert(shape);
        }
        if is_new {
            // Rare: once for each combination of keys.
            state.kept.clear();
            self.count.store(0, Ordering::Relaxed);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
