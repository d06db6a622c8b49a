//! Arguments of the script that renews what a ticket names.

use tidegate_core::{limit::Window, store::Key};

/// Slots and reservations of one ticket in counters of one group.
#[derive(Clone, Debug)]
pub struct Renewal {
    id: u64,
    /// Counters, each with the time for which it holds; those of slots first.
    named: Vec<(Key, Window)>,
    slots: usize,
    is_peek: bool,
}

impl Renewal {
    /// Of what has this id in these counters.
    pub fn new(id: u64, slots: Vec<(Key, Window)>, reserved: Vec<(Key, Window)>, is_peek: bool) -> Self {
        let (number, mut named) = (slots.len(), slots);
        named.extend(reserved);
        Self { id, named, slots: number, is_peek }
    }

    /// A renewal that looks only.
    pub fn peek(&self) -> Self {
        Self { is_peek: true, ..self.clone() }
    }

    /// The keys of the counters.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = Key> {
        self.named.iter().map(|(key, _)| *key)
    }

    /// The arguments: the id, the number of counters of slots, whether to renew, and the microseconds for which each counter holds.
    pub fn arguments(&self) -> impl Iterator<Item = Vec<u8>> {
        let writes = if self.is_peek { "0" } else { "1" };
        let holds = self.named.iter().map(|(_, hold)| hold.nanos().get().div_ceil(1_000).to_string());
        let numbers = [self.slots.to_string(), writes.to_owned()].into_iter().chain(holds);
        std::iter::once(self.id.to_le_bytes().to_vec()).chain(numbers.map(String::into_bytes))
    }
}
