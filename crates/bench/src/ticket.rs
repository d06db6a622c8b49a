//! Tickets of admitted requests, and the hits of the calls that end them.

use prost_types::{Struct, value::Kind};

/// A ticket in the metadata of a response: of slots of requests in flight, of estimates, or of both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReceivedTicket {
    /// Its text.
    pub slot: String,
    /// The most hits of one of its slots or estimates.
    pub cost: u64,
}

impl ReceivedTicket {
    /// The key of the entry with the ticket, in the request that ends it.
    pub const END_KEY: &str = "slot";

    /// The ticket in the metadata of a response, if it has one.
    pub fn of(metadata: &Struct) -> Option<Self> {
        let field = |name| metadata.fields.get(name)?.kind.as_ref();
        let Kind::StringValue(slot) = field("slot")? else { return None };
        let cost = if let Some(Kind::NumberValue(cost)) = field("cost") { *cost as u64 } else { 1 };
        Some(Self { slot: slot.clone(), cost })
    }

    /// The hits of the request that ends it, and whether they are negative. This releases its slots and replaces its estimates by the
    /// actual cost. Without a cost, the estimates stay.
    pub fn hits_of_end(&self, cost: Option<u64>) -> (u64, bool) {
        // Zero hits would be a peek, which releases no slot. As many negative hits as any of them has release all.
        match cost {
            Some(0) => (self.cost, true),
            _ => (cost.unwrap_or(self.cost), false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost_types::Value;

    #[test]
    fn an_end_has_the_actual_cost_or_else_the_estimate_and_zero_gives_all_back() {
        let field = |name: &str, kind| (name.to_owned(), Value { kind: Some(kind) });
        let slot = || field("slot", Kind::StringValue("slot-1".to_owned()));
        let ticket = |fields| ReceivedTicket::of(&Struct { fields });
        assert_eq!(ticket([field("cost", Kind::NumberValue(3.0))].into()), None);
        assert_eq!(ticket([slot()].into()).expect("a ticket").cost, 1);
        let held = ticket([slot(), field("cost", Kind::NumberValue(40.0))].into()).expect("a ticket");
        assert_eq!(held.slot, "slot-1");
        assert_eq!(held.hits_of_end(None), (40, false));
        assert_eq!(held.hits_of_end(Some(7)), (7, false));
        assert_eq!(held.hits_of_end(Some(0)), (40, true));
    }
}
