//! The loop that divides limits among streams.

use super::{
    Event, QuotaStart, Quotas,
    divider::{Divider, Moment},
};
use crate::Meters;
use std::{
    sync::{Arc, mpsc::RecvTimeoutError},
    time::Duration,
};
use tidegate_core::{clock::Clock, limiter::Limiter};

/// Time between two looks for assignments that are due.
const INTERVAL: Duration = Duration::from_millis(100);

/// The most events that are handled before assignments are sent.
const EVENTS_MAX: usize = 256;

impl Quotas {
    /// Handles reports and divides limits until [`Self::stop`]. With a shared store, requests this server's parts of its limits, whose
    /// responses are passed to [`Self::granted`]. Counts requests of buckets that no rule decides. A second call returns at once.
    pub fn run(&self, limiter: &Limiter, clock: &dyn Clock, meters: &Arc<Meters>, mut start: QuotaStart) {
        let Some(events) = self.0.receiver.lock().take() else { return };
        let (server, calls) = start.store.take().unzip();
        let record = std::mem::replace(&mut start.record, Box::new(drop));
        let mut divider = Divider::new(clock.now(), server, Arc::clone(meters), start);
        *self.0.figures.lock() = divider.figures();
        loop {
            let first = match divider.is_active() {
                _ if divider.has_waiting() => events.recv_timeout(Duration::ZERO),
                true => events.recv_timeout(INTERVAL),
                false => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let first = match first {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let (rules, now) = (limiter.pin(), clock.now());
            let moment = Moment { rules: &rules, is_shadow: limiter.is_global_shadow(), now };
            divider.follow_rules(moment);
            let more = events.try_iter().take(EVENTS_MAX);
            for event in first.into_iter().chain(more) {
                if let Event::Stop = event {
                    if let Some(calls) = &calls {
                        calls.send(divider.last_part_requests(now));
                    }
                    return;
                }
                divider.take_in(event, now);
            }
            divider.take_turns(moment);
            divider.divide(&rules, now);
            if let Some(calls) = &calls {
                calls.send(divider.part_requests(now));
            }
            divider.take_record(now).into_iter().for_each(&record);
            *self.0.figures.lock() = divider.figures_at(now);
        }
    }

    /// Ends [`Self::run`].
    pub fn stop(&self) {
        self.send(Event::Stop);
    }
}
