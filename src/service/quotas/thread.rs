//! The thread that divides limits among streams.

use super::{Event, Quotas, divider::Divider};
use crate::priority;
use std::{
    io,
    sync::{Arc, mpsc::RecvTimeoutError},
    thread::JoinHandle,
    time::Duration,
};
use tidegate_core::{clock::Clock, limiter::Limiter};

/// Time between two looks for assignments that are due.
const INTERVAL: Duration = Duration::from_millis(100);

/// Events that are taken in before assignments are sent.
const EVENTS_MAX: usize = 256;

/// The running thread.
pub struct QuotaThread {
    quotas: Quotas,
    thread: JoinHandle<()>,
}

impl QuotaThread {
    /// Starts the thread. Only the first call for these quotas takes in events.
    pub fn start(quotas: &Quotas, limiter: &Arc<Limiter>, clock: &Arc<dyn Clock>) -> io::Result<Self> {
        let (limiter, clock, of_thread) = (Arc::clone(limiter), Arc::clone(clock), quotas.clone());
        let run = move || {
            let Some(events) = of_thread.0.receiver.lock().take() else { return };
            priority::lower_priority_of_awaited();
            let mut divider = Divider::new(clock.now());
            loop {
                let first = match divider.is_active() {
                    true => events.recv_timeout(INTERVAL),
                    false => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
                };
                let first = match first {
                    Ok(event) => Some(event),
                    Err(RecvTimeoutError::Timeout) => None,
                    Err(RecvTimeoutError::Disconnected) => return,
                };
                let (rules, now) = (limiter.pin(), clock.now());
                let more = events.try_iter().take(EVENTS_MAX);
                for event in first.into_iter().chain(more) {
                    if let Event::Stop = event {
                        return;
                    }
                    divider.take_in(event, &rules, limiter.is_global_shadow(), now);
                }
                divider.divide(&rules, limiter.is_global_shadow(), now);
                *of_thread.0.figures.lock() = divider.figures();
            }
        };
        let thread = std::thread::Builder::new().name("quotas".into()).spawn(run)?;
        Ok(Self { quotas: quotas.clone(), thread })
    }

    /// Ends the thread.
    pub fn stop(self) {
        self.quotas.send(Event::Stop);
        // A panic was printed when it happened, and does not prevent the stop.
        let _ = self.thread.join();
    }
}
