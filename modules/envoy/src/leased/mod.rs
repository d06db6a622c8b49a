//! Decisions by a server that grants leases. Credits decide requests to hot counters in this process; the server decides the others, while
//! the request waits.
//!
//! One thread and one connection serve all configurations with the same server. `known` decides a request, or it becomes a question in the
//! thread's queue. The thread (`link`, on connections from `dial`) sends questions with claims to credits (`exchanges`), and wakes the
//! stream (`call`). `messages` encodes, within the bounds of `room`.

mod call;
mod counter;
mod dial;
mod exchanges;
mod known;
mod link;
mod looks;
mod messages;
mod reply;
mod room;
mod shared;
#[cfg(test)]
mod tests;

pub(crate) use known::LocalDecision;
pub(crate) use messages::Response;
pub(crate) use room::value_bytes_max;

use crate::{metrics::Metrics, settings::Server};
use call::Call;
use exchanges::{HeldTicket, Purpose, Question};
use room::REQUEST_BYTES_MAX;
use shared::{Shared, now};
use std::{
    sync::{Arc, Weak, atomic::Ordering},
    time::Duration,
};
use tidegate_core::{limit::Request, limiter::slots_of_ticket, store::Seed, sync::Mutex};
use tidegate_envoy_abi::{LogLevel, Waker, log};
use tidegate_threads::{BackgroundThread, Priority};

/// The decisions of a server. Dropping the last reference returns all credits, and ends the thread.
pub(crate) struct Leased {
    shared: Arc<Shared>,
    thread: Option<BackgroundThread>,
}

/// The result of an attempt to decide.
pub(crate) enum Attempt {
    Local(LocalDecision),
    Waits(Waiting),
    /// The server cannot be reached, or no message has room for the request.
    Away,
}

/// A request that waits for the server. Dropped with its stream at the latest.
pub(crate) struct Waiting {
    leased: Arc<Leased>,
    domain: Arc<str>,
    call: Arc<Call>,
}

/// The slots of a request in flight: renewed until they are released, when this is dropped.
pub(crate) struct LeasedSlot {
    leased: Arc<Leased>,
    held: Arc<HeldTicket>,
    /// Number of the renewals of the ticket.
    renewals: Option<u64>,
}

/// Tickets with a shorter hold are due before the thread checks by itself.
const WAKE_HOLD: Duration = Duration::from_secs(1);

/// All servers of the process.
static ALL: Mutex<Vec<(Server, Weak<Leased>)>> = Mutex::new(Vec::new());

impl Leased {
    /// The decisions of a server: existing or new.
    pub(crate) fn of(server: &Server) -> Result<Arc<Self>, String> {
        if let Some(tls) = &server.tls {
            tls.config().map_err(|error| error.to_string())?;
        }
        dial::token(server)?;
        let mut all = ALL.lock();
        all.retain(|(_, leased)| leased.strong_count() > 0);
        let existing = all.iter().find(|(own, _)| own == server).and_then(|(_, leased)| leased.upgrade());
        if let Some(leased) = existing {
            return Ok(leased);
        }
        let leased = Arc::new(Self::new(server)?);
        all.push((server.clone(), Arc::downgrade(&leased)));
        Ok(leased)
    }

    fn new(server: &Server) -> Result<Self, String> {
        let seed = || Seed::random().map_err(|error| format!("no random numbers: {error}"));
        let node =
            seed()?.to_bytes().into_iter().take(8).fold(0, |number, byte| number << 8 | u64::from(byte));
        let shared = Arc::new(Shared::new(server.clone(), node, seed()?));
        let runtime = link::runtime().map_err(|error| format!("no socket can be used: {error}"))?;
        let own = Arc::clone(&shared);
        let run = move || link::run(runtime, &own);
        let thread = BackgroundThread::start("tidegate", Priority::Full, run);
        let thread = thread.map_err(|error| error.to_string())?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Publishes these figures from now on, while they exist.
    pub(crate) fn publish(&self, metrics: &Arc<Metrics>) {
        self.shared.metrics.lock().push(Arc::downgrade(metrics));
    }

    /// Decides a request, or makes it wait for at most `timeout`; the decision wakes its stream.
    pub(crate) fn decide(
        self: &Arc<Self>,
        request: &Request<'_>,
        timeout: Duration,
        waker: impl FnOnce() -> Option<Waker>,
    ) -> Attempt {
        let key = match self.decide_here(request) {
            Ok(decision) => return Attempt::Local(decision),
            Err(key) => key,
        };
        if self.shared.is_away.load(Ordering::Relaxed) {
            return Attempt::Away;
        }
        let Some(body) = self.encoded(request) else { return Attempt::Away };
        let Some(waker) = waker() else { return Attempt::Away };
        let (domain, call): (Arc<str>, _) = (request.domain().into(), Call::new(waker));
        let question = Question {
            purpose: Purpose::Call(Arc::clone(&call)),
            domain: Arc::clone(&domain),
            body,
            key,
            deadline: now().plus(timeout),
        };
        match self.shared.push(question) {
            true => Attempt::Waits(Waiting { leased: Arc::clone(self), domain, call }),
            false => Attempt::Away,
        }
    }

    /// Counts the hits at the end of the stream with this ticket; no request waits for the decision. Returns the decision if it is made
    /// here.
    pub(crate) fn count(&self, request: &Request<'_>, ticket: Option<&str>) -> Option<LocalDecision> {
        let key = match self.decide_here(request) {
            Ok(decision) => return Some(decision),
            Err(key) => key,
        };
        let body = self.encoded(request)?;
        let is_end = ticket.is_some_and(|ticket| messages::is_end(request, ticket));
        self.shared.push(Question {
            purpose: if is_end { Purpose::End } else { Purpose::Count },
            domain: request.domain().into(),
            body,
            key,
            deadline: now().plus_nanos(exchanges::RELEASE_NANOS),
        });
        None
    }

    /// The request as the server reads it; none if no message has room for it.
    fn encoded(&self, request: &Request<'_>) -> Option<Vec<u8>> {
        let body = messages::rate_limit_request(request);
        if body.len() <= REQUEST_BYTES_MAX {
            return Some(body);
        }
        if !self.shared.is_length_logged.swap(true, Ordering::Relaxed) {
            let (domain, bytes) = (request.domain(), body.len());
            let line = format!(
                "tidegate: a request to the domain {domain} has {bytes} bytes, and a message to the server has room for \
                 {REQUEST_BYTES_MAX}: such requests follow the failure mode; configure fewer entries, or shorter keys, in rate_limits"
            );
            log(LogLevel::Warn, &line);
        }
        None
    }

    /// Decides by credits and kept denials of this process. The error is the key of the request if it may be decided so in the future.
    fn decide_here(
        &self,
        request: &Request<'_>,
    ) -> Result<LocalDecision, Option<(tidegate_core::store::Key, known::HitList)>> {
        let Some((key, hits)) = self.shared.known.key(request) else { return Err(None) };
        let known = self.shared.known.find(key);
        let decision = known.and_then(|known| known.decide(&hits, now)).ok_or(Some((key, hits)))?;
        if decision.needs_claim {
            self.shared.wake.notify_one();
        }
        Ok(decision)
    }

    /// The slots of an admitted request, which are renewed from now on.
    fn slot(
        self: &Arc<Self>,
        domain: &Arc<str>,
        ticket: Box<str>,
        renewal: Option<messages::Renewal>,
    ) -> LeasedSlot {
        let (hold, request) = renewal.map_or((None, Vec::new()), |own| (Some(own.hold), own.request));
        let held = Arc::new(HeldTicket { domain: Arc::clone(domain), ticket, request });
        let renewals = hold.map(|hold| {
            let number = self.shared.renewals.insert(hold, Arc::clone(&held), now());
            // The thread would sleep for longer.
            if hold < WAKE_HOLD {
                self.shared.wake.notify_one();
            }
            number
        });
        LeasedSlot { leased: Arc::clone(self), held, renewals }
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Ordering::Release);
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

impl Waiting {
    /// Returns the outcome, and the slots that the request holds from now on. None if the server has not decided it in time.
    pub(crate) fn take(self) -> Option<(Box<Response>, Option<LeasedSlot>)> {
        let mut response = self.call.take()??;
        let renewal = response.renewal.take();
        let slot = response.ticket.take().map(|ticket| self.leased.slot(&self.domain, ticket, renewal));
        Some((response, slot))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        // The stream ends before it has taken its outcome. An outcome with a ticket is cancelled here; a later outcome is cancelled by the
        // thread.
        if let Some(ticket) = self.call.take().flatten().and_then(|response| response.ticket) {
            self.leased.shared.push(Question::cancel(&self.domain, &ticket, now()));
        }
    }
}

impl LeasedSlot {
    pub(crate) fn ticket(&self) -> &str {
        &self.held.ticket
    }
}

impl Drop for LeasedSlot {
    fn drop(&mut self) {
        let (shared, HeldTicket { domain, ticket, .. }) = (&self.leased.shared, &*self.held);
        if let Some(number) = self.renewals {
            shared.renewals.remove(number);
        }
        // Estimates stay until an end names the cost; a release would end them.
        if let Some(slots) = slots_of_ticket(ticket) {
            shared.push(Question::release(domain, &slots, now()));
        }
    }
}
