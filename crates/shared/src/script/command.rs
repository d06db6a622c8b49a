//! Calls of scripts for counters of one group, each call with its own keys and arguments.

use super::{batch::EncodedRequest, mark::mark, text::Script};
use tidegate_core::{
    limit::{Hits, Window},
    store::Key,
};

/// More hits than a slot has.
const ALL: u64 = 1 << 32;

/// A call of a script for counters of one group. It returns the number of slots that were released, of reservations that have ended, or of
/// counters that were reset, or 1 if a ticket is held.
#[derive(Clone, Debug)]
pub struct Command {
    /// The script.
    pub script: Script,
    /// Counters.
    pub counters: Vec<Key>,
    /// The token under which hits are taken back only once.
    pub(super) token: Option<u128>,
    /// Arguments.
    pub arguments: Vec<Vec<u8>>,
}

impl Command {
    fn of_ticket(
        script: Script,
        id: u64,
        counters: Vec<Key>,
        arguments: impl Iterator<Item = String>,
    ) -> Self {
        let arguments = arguments.map(String::into_bytes);
        let arguments = std::iter::once(id.to_le_bytes().to_vec()).chain(arguments).collect();
        Self { script, counters, token: None, arguments }
    }

    /// Releases the slots of this id: at most `hits` of each, or all. To release all once more changes nothing.
    pub fn release(id: u64, hits: Option<u64>, counters: Vec<Key>) -> Self {
        let hits = hits.unwrap_or(ALL).min(ALL).to_string();
        Self::of_ticket(Script::Release, id, counters, [hits].into_iter())
    }

    /// Ends the reservations of this id. If the cost is less than the estimate, the difference is given back.
    pub fn end(id: u64, cost: Hits, counters: Vec<Key>) -> Self {
        let cost = match cost {
            Hits::Take(hits) => hits.get().min(ALL).to_string(),
            Hits::Peek => "0".to_owned(),
            Hits::GiveBack(hits) => format!("-{}", hits.get().min(ALL)),
        };
        Self::of_ticket(Script::End, id, counters, [cost].into_iter())
    }

    /// Closes what a request may have taken: releases its slots, and ends its reservations at no cost.
    pub fn close(request: &EncodedRequest) -> impl Iterator<Item = Self> {
        let slots = request.counters.iter().filter(|counter| counter.slot != 0);
        let slots = slots.map(|counter| (counter.slot, counter.key)).unzip();
        let reserved = request.counters.iter();
        let reserved = reserved.filter_map(|counter| Some((counter.reservation?.id, counter.key))).unzip();
        let of_ticket = |(ids, keys): (Vec<u64>, _)| Some((*ids.first()?, keys));
        let release = of_ticket(slots).map(|(id, keys)| Self::release(id, None, keys));
        release.into_iter().chain(of_ticket(reserved).map(|(id, keys)| Self::end(id, Hits::Peek, keys)))
    }

    /// Renews the slots and the reservations of this id, each in a counter and for a time. Only looks at them if `is_peek`.
    pub fn renew(id: u64, slots: &[(Key, Window)], reserved: &[(Key, Window)], is_peek: bool) -> Self {
        let named = || slots.iter().chain(reserved);
        let holds = named().map(|(_, hold)| hold.nanos().get().div_ceil(1_000).to_string());
        let numbers = [slots.len().to_string(), u8::from(!is_peek).to_string()];
        let counters = named().map(|(key, _)| *key).collect();
        Self::of_ticket(Script::Renew, id, counters, numbers.into_iter().chain(holds))
    }

    /// The reset of counters.
    pub fn reset(counters: Vec<Key>) -> Self {
        Self { script: Script::Reset, counters, token: None, arguments: Vec::new() }
    }

    /// The names of its keys, all with `prefix`.
    pub fn keys(&self, prefix: &str) -> Vec<String> {
        let token = self.token.map(|token| format!("{prefix}undo:{token:032x}"));
        let mut keys: Vec<String> = token.into_iter().collect();
        keys.extend(self.counters.iter().map(|key| counter_name(prefix, *key)));
        if matches!(self.script, Script::Undo | Script::Reset) {
            keys.extend(self.counters.iter().map(|key| mark(&counter_name(prefix, *key))));
        }
        keys
    }
}

/// The name of a counter: the prefix and 32 hexadecimal digits.
pub fn counter_name(prefix: &str, key: Key) -> String {
    let (high, low) = key.halves();
    format!("{prefix}{high:016x}{low:016x}")
}
