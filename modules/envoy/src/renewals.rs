//! Tickets of requests in flight that have to be renewed, so that the slots of a long stream outlive `max_hold`.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};
use tidegate_core::sync::Mutex;
use tidegate_shared::lease::Monotonic;

/// Tickets, each with the content of its renewal.
pub(crate) struct Renewals<T>(Mutex<Held<T>>);

struct Held<T> {
    tickets: HashMap<u64, RenewedTicket<T>>,
    /// Times in nanoseconds of the clock, with the numbers of the tickets due then.
    order: BTreeSet<(u64, u64)>,
    next_number: u64,
}

struct RenewedTicket<T> {
    due: u64,
    interval: Duration,
    value: T,
}

impl<T> Default for Renewals<T> {
    fn default() -> Self {
        Self(Mutex::new(Held { tickets: HashMap::new(), order: BTreeSet::new(), next_number: 0 }))
    }
}

impl<T: Clone> Renewals<T> {
    /// Renews a ticket with this hold from now on, until [`Self::remove`] of the number. Due after a third of the hold, so that two more
    /// attempts fit.
    pub(crate) fn insert(&self, hold: Duration, value: T, now: Monotonic) -> u64 {
        let mut held = self.0.lock();
        held.next_number += 1;
        let (number, interval) = (held.next_number, hold / 3);
        let due = now.plus(interval).as_nanos();
        held.order.insert((due, number));
        held.tickets.insert(number, RenewedTicket { due, interval, value });
        number
    }

    /// Stops renewing a ticket: its request has ended, or it is not held any more.
    pub(crate) fn remove(&self, number: u64) {
        let mut held = self.0.lock();
        if let Some(RenewedTicket { due, .. }) = held.tickets.remove(&number) {
            held.order.remove(&(due, number));
        }
    }

    /// Returns at most `count_max` tickets that are due; each is due again after its interval.
    pub(crate) fn due(&self, count_max: usize, now: Monotonic) -> Vec<(u64, T)> {
        let (mut held, mut due) = (self.0.lock(), Vec::new());
        let Held { tickets, order, .. } = &mut *held;
        while due.len() < count_max
            && let Some(&(at, number)) = order.first().filter(|(at, _)| *at <= now.as_nanos())
        {
            order.remove(&(at, number));
            let Some(ticket) = tickets.get_mut(&number) else { continue };
            ticket.due = now.plus(ticket.interval).as_nanos().max(now.as_nanos() + 1);
            order.insert((ticket.due, number));
            due.push((number, ticket.value.clone()));
        }
        due
    }

    /// The time at which the next ticket is due.
    pub(crate) fn next_due(&self) -> Option<Monotonic> {
        self.0.lock().order.first().map(|(at, _)| Monotonic::from_nanos(*at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_due_three_times_before_its_end_until_it_is_removed() {
        let (renewals, at) = (Renewals::default(), |millis: u64| Monotonic::from_nanos(millis * 1_000_000));
        let hold = Duration::from_millis(300);
        let first = renewals.insert(hold, 'a', at(0));
        renewals.insert(hold, 'b', at(50));
        let due =
            |millis| renewals.due(9, at(millis)).into_iter().map(|(_, value)| value).collect::<String>();
        assert_eq!((renewals.next_due(), due(99)), (Some(at(100)), String::new()));
        assert_eq!([due(100), due(150), due(199), due(250)], ["a", "b", "", "ab"]);
        renewals.remove(first);
        assert_eq!((due(600), renewals.due(0, at(900)).len()), ("b".to_owned(), 0));
    }
}
