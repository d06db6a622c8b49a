//! Waiting for a turn: the only place where an answer is not given at once.
//!
//! Whose turn is when, the limiter knows; here is but a timer. A call that ends before its turn, because its caller has
//! gone or its connection has, is dropped, and with it its place.

use crate::{
    clock::Clock,
    limit::Timestamp,
    limiter::{Due, Limiter, Ticket},
};
use std::{
    future::poll_fn,
    pin::pin,
    task::{Context, Poll, Waker, ready},
    time::Duration,
};
use tokio::time::sleep;

/// A place in the queue, given up when it is dropped.
struct Place<'s> {
    limiter: &'s Limiter,
    clock: &'s dyn Clock,
    /// None once the turn has come.
    ticket: Option<Ticket>,
}

impl Place<'_> {
    fn due(&self, waker: &Waker) -> Due {
        self.ticket.as_ref().map_or(Due::TooLate, |ticket| self.limiter.due(ticket, waker))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.limiter.cancel(ticket, self.clock.now());
        }
    }
}

/// Completes when the turn has come, with the ticket, to be answered; or with none when it will not come any more, and the
/// place has been given up.
pub(super) async fn its_turn(limiter: &Limiter, clock: &dyn Clock, ticket: Ticket) -> Option<Ticket> {
    let mut place = Place { limiter, clock, ticket: Some(ticket) };
    let mut timer = pin!(sleep(Duration::ZERO));
    let mut set_for: Option<Timestamp> = None;
    let has_come = poll_fn(|context: &mut Context<'_>| {
        loop {
            // Asked before the timer each time: whoever moves the turn after this wakes us.
            let Due::At(turn) = place.due(context.waker()) else { return Poll::Ready(false) };
            let wait = turn.since(clock.now());
            if wait.is_zero() {
                return Poll::Ready(true);
            }
            if set_for != Some(turn) {
                timer.set(sleep(wait));
                set_for = Some(turn);
            }
            ready!(timer.as_mut().poll(context));
            // The timer goes by another clock than the limits do: it may be early.
            set_for = None;
        }
    });
    if has_come.await { place.ticket.take() } else { None }
}
