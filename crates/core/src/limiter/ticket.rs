//! Tickets: the texts by which requests name what they hold, and the descriptors that release or renew it.
//!
//! A ticket has the id of the slots and estimates of one request, and the keys of their counters. For each counter in a shared store it
//! also has the group there: every server of the store can release it.
//!
//! In domains whose rules give tickets, a descriptor with an entry `slot` whose value is a ticket is a release, with an entry `renew` a
//! renewal. Neither is a charge, whatever its other entries are.

use super::keys::GROUPS;
use crate::{
    limit::{Descriptor, Entry, Hits, Window},
    store::Key,
};
use smallvec::SmallVec;
use std::fmt::Write;

/// The key of the entry that has a ticket.
pub const TICKET_KEY: &str = "slot";

/// The key of the entry that has the ticket of a renewal.
pub const RENEWAL_KEY: &str = "renew";

/// The beginning of the text of a ticket.
const PREFIX: &str = "slot-";

/// Hexadecimal digits of an id, and of half a key.
const DIGITS: usize = 16;

/// Stands before the group and the key of a counter in a shared store.
const STORED: u8 = b's';

/// Stands before the key of a counter with a reservation.
const RESERVED: u8 = b'r';

/// Stands before the weight and the key of a counter with a reservation. Each hit counts as often as the weight states.
const WEIGHED: u8 = b'w';

/// Stands before the group and the key of a counter with a reservation in a shared store.
const STORED_RESERVED: u8 = b't';

/// Hexadecimal digits of a weight.
const WEIGHT_DIGITS: usize = 8;

/// Hexadecimal digits of a group.
const GROUP_DIGITS: usize = 3;

/// A slot or a reservation of a ticket, by its counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Which of the two it is.
    pub kind: HeldKind,
    /// Its counter.
    pub key: Key,
}

/// The kinds of what a ticket names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum HeldKind {
    /// A slot of a limit of requests in flight.
    Slot,
    /// A reservation: an estimate of a limit that reserves.
    Reservation,
}

/// What a ticket names in a shared store, each with the group of its counter.
pub(super) type StoredHeld = SmallVec<[(Held, u16); 1]>;

/// The slots and reservations that one request took.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Ticket {
    pub(super) id: u64,
    /// Those in this process, each with its weight: how often a hit of the request counts there.
    pub(super) here: SmallVec<[(Held, u32); 2]>,
    pub(super) stored: StoredHeld,
}

/// Slots and reservations in a shared store, to be released and ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SlotRelease {
    /// Their id.
    pub id: u64,
    /// The hits of the release. Negative hits release at most that many of each slot, other hits all of it. For reservations, negative hits
    /// are the excess of the estimate over the cost, other hits the actual cost.
    pub hits: Hits,
    /// The slots and reservations, each with the group of its counter.
    pub held: SmallVec<[(Held, u16); 1]>,
}

/// Slots and reservations that a ticket names in a shared store, to be renewed there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredRenewal {
    pub(super) ticket: Ticket,
    /// Indices of the descriptors with this ticket.
    pub(super) descriptors: SmallVec<[u32; 2]>,
    pub(super) is_peek: bool,
    /// Each with the group of its counter, and for how long it holds.
    pub(super) held: SmallVec<[(Held, u16, Window); 1]>,
}

impl StoredRenewal {
    /// The id of the slots and reservations.
    pub fn id(&self) -> u64 {
        self.ticket.id
    }

    /// Whether the store only checks, and renews nothing.
    pub fn is_peek(&self) -> bool {
        self.is_peek
    }

    /// The slots and reservations, each with the group of its counter, and for how long it holds.
    pub fn held(&self) -> &[(Held, u16, Window)] {
        &self.held
    }
}

impl SlotRelease {
    /// The release of what a ticket names in a shared store, if anything, for a request cancelled at its start: slots are released and
    /// estimates returned.
    pub fn of_ticket(ticket: &str) -> Option<Self> {
        Ticket::parse(ticket)?.in_store(Hits::Peek)
    }
}

impl Ticket {
    pub(super) fn text(&self) -> Box<str> {
        let mut text = format!("{PREFIX}{:016x}", self.id);
        let here = self.here.iter().map(|(held, weight)| match (held.kind, weight) {
            (HeldKind::Slot, _) => (held.key, String::new()),
            (HeldKind::Reservation, 1) => (held.key, char::from(RESERVED).into()),
            (HeldKind::Reservation, weight) => (held.key, format!("{}{weight:08x}", char::from(WEIGHED))),
        });
        let stored = self.stored.iter().map(|(held, group)| {
            let mark = match held.kind {
                HeldKind::Slot => STORED,
                HeldKind::Reservation => STORED_RESERVED,
            };
            (held.key, format!("{}{group:03x}", char::from(mark)))
        });
        for (key, mark) in here.chain(stored) {
            let (high, low) = key.halves();
            write!(text, "{mark}{high:016x}{low:016x}").expect("a string accepts all texts");
        }
        text.into()
    }

    pub(super) fn parse(text: &str) -> Option<Self> {
        let (id, rest) = text.strip_prefix(PREFIX)?.as_bytes().split_at_checked(DIGITS)?;
        let mut ticket = Self { id: number(id)?, here: SmallVec::new(), stored: SmallVec::new() };
        let mut digits = Digits(rest);
        while let Some(&mark) = digits.0.first() {
            let is_mark = matches!(mark, RESERVED | WEIGHED | STORED | STORED_RESERVED);
            digits.0 = &digits.0[usize::from(is_mark)..];
            let kind = match mark {
                RESERVED | WEIGHED | STORED_RESERVED => HeldKind::Reservation,
                _ => HeldKind::Slot,
            };
            if matches!(mark, STORED | STORED_RESERVED) {
                let group = digits.group()?;
                ticket.stored.push((Held { kind, key: digits.key()? }, group));
            } else {
                let weight = if mark == WEIGHED { digits.next(WEIGHT_DIGITS)? } else { 1 };
                ticket.here.push((Held { kind, key: digits.key()? }, u32::try_from(weight).ok()?));
            }
        }
        (!ticket.here.is_empty() || ticket.is_stored()).then_some(ticket)
    }

    /// Whether it names counters in a shared store.
    pub(super) fn is_stored(&self) -> bool {
        !self.stored.is_empty()
    }

    /// All that it names.
    pub(super) fn held(&self) -> impl Iterator<Item = Held> {
        self.here.iter().map(|(held, _)| *held).chain(self.stored.iter().map(|(held, _)| *held))
    }

    /// Whether it names this counter of this process.
    pub(super) fn names(&self, key: Key) -> bool {
        self.here.iter().any(|(held, _)| held.key == key)
    }

    /// Whether it names reservations.
    pub(super) fn reserves(&self) -> bool {
        self.held().any(|held| held.kind == HeldKind::Reservation)
    }

    /// The slots alone.
    pub(super) fn slots(mut self) -> Self {
        self.here.retain(|(held, _)| held.kind == HeldKind::Slot);
        self.stored.retain(|(held, _)| held.kind == HeldKind::Slot);
        self
    }

    /// The release of what is in a shared store, if anything is.
    pub(super) fn in_store(self, hits: Hits) -> Option<SlotRelease> {
        let Self { id, stored: held, .. } = self;
        (!held.is_empty()).then_some(SlotRelease { id, hits, held })
    }
}

/// The rest of the text of a ticket.
struct Digits<'t>(&'t [u8]);

impl Digits<'_> {
    fn next(&mut self, length: usize) -> Option<u64> {
        let (digits, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        number(digits)
    }

    fn key(&mut self) -> Option<Key> {
        Some(Key::from_halves(self.next(DIGITS)?, self.next(DIGITS)?))
    }

    fn group(&mut self) -> Option<u16> {
        u16::try_from(self.next(GROUP_DIGITS)?).ok().filter(|group| *group < GROUPS)
    }
}

/// The ticket of the slots alone, without the reservations; none if it has no slots.
pub fn slots_of_ticket(ticket: &str) -> Option<Box<str>> {
    let slots = Ticket::parse(ticket)?.slots();
    slots.held().next().map(|_| slots.text())
}

/// The number of lower-case hexadecimal digits.
fn number(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0, |number: u64, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u64::from(value))
    })
}

/// The ticket of a descriptor that is a release.
pub(super) fn ticket_of(descriptor: &Descriptor<'_>) -> Option<Ticket> {
    let entry = descriptor.entries.iter().rev().find(|entry| entry.key == TICKET_KEY)?;
    Ticket::parse(entry.value)
}

/// The ticket of a descriptor that is a renewal, with its text; none if the descriptor also has a ticket to release.
pub(super) fn renewal_of<'t>(descriptor: &Descriptor<'t>) -> Option<(Ticket, &'t str)> {
    let entry = descriptor.entries.iter().rev().find(|entry| entry.key == RENEWAL_KEY)?;
    let ticket = Ticket::parse(entry.value)?;
    ticket_of(descriptor).is_none().then_some((ticket, entry.value))
}

/// The entries of a renewal besides its ticket: those of the request that has it.
pub(super) fn renewed_entries<'t>(descriptor: &Descriptor<'t>) -> SmallVec<[Entry<'t>; 3]> {
    descriptor.entries.iter().copied().filter(|entry| entry.key != RENEWAL_KEY).collect()
}

/// Whether a descriptor is a release or a renewal of what is in a shared store, in a domain whose rules give tickets.
pub(super) fn names_stored_ticket(descriptor: &Descriptor<'_>) -> bool {
    let renewed = || renewal_of(descriptor).map(|(ticket, _)| ticket);
    ticket_of(descriptor).or_else(renewed).is_some_and(|ticket| ticket.is_stored())
}

/// Whether a descriptor is a release or a renewal, in a domain whose rules give tickets. It is charged nothing.
pub(super) fn names_ticket(descriptor: &Descriptor<'_>) -> bool {
    ticket_of(descriptor).is_some() || renewal_of(descriptor).is_some()
}
