//! Bans: a key that is denied again and again is denied for a while.
//!
//! The state is a log of denials or, while a ban is in force, the moment at which it ends. Invariants:
//!
//! - a ban begins with the denial that is the `after`th in any stretch of `within`, and lasts exactly `lasts`;
//! - nothing is counted while it is in force, so that it is never extended, and none of the denials before it counts after it;
//! - a ban that is in force keeps its end when the numbers change, and ends when the rules have no ban any more.

use super::{
    Freeing, NotShareable, SlidingLog, State, StoredBytes, StoredNumbers, facts::Facts, memory::HeapBytes,
    stored::Stored,
};
use crate::limit::{Reset, Timestamp, Window};
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use std::{fmt, time::Duration};

/// Conditions and length of a ban.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Ban {
    /// Number of denials, with the last of which a ban begins.
    #[serde(deserialize_with = "within_bounds")]
    pub after: u32,
    /// The time within which they happen.
    pub within: Window,
    /// The length of a ban.
    pub lasts: Window,
    /// Higher by one than the epoch of the same limit's earlier ban, if rules without a ban were in force in between: what was counted for
    /// the earlier ban no longer counts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub epoch: u32,
}

/// `10m after 5 denials within 1m`.
impl fmt::Display for Ban {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let denials = if self.after == 1 { "denial" } else { "denials" };
        write!(f, "{} after {} {denials} within {}", self.lasts, self.after, self.within)
    }
}

/// Marks the two words of a ban in force: its end, and this. Those of the empty state are zero.
const IN_FORCE: u64 = 1;

impl Ban {
    /// The most denials that a ban may begin after: each is in memory.
    pub const AFTER_MAX: u32 = 1_000;

    fn log(&self) -> SlidingLog {
        SlidingLog { limit: self.after, window: self.within }
    }

    /// The end of the ban that is in force.
    fn end(state: &State, now: Timestamp) -> Option<Timestamp> {
        match state.words() {
            [end, IN_FORCE] if end > now.as_nanos() => Some(Timestamp::from_nanos(end)),
            _ => None,
        }
    }

    /// Denials that count; while a ban is in force, the denials that it began with.
    pub(super) fn used(&self, state: &State, now: Timestamp) -> u64 {
        match Self::end(state, now) {
            Some(_) => u64::from(self.after),
            None => self.log().used(state, now),
        }
    }

    /// Whether hits are denied: none remain while a ban is in force, and it bounds nothing else.
    pub(super) fn remaining(&self, state: &State, now: Timestamp) -> u64 {
        if Self::end(state, now).is_some() { 0 } else { u64::MAX }
    }

    /// Counts denials.
    pub(super) fn add(&self, state: State, denials: u64, now: Timestamp) -> State {
        if Self::end(&state, now).is_some() {
            return state;
        }
        let state = self.log().add(state, denials, now);
        if self.log().used(&state, now) < u64::from(self.after) {
            return state;
        }
        State::Words([now.saturating_add_nanos(self.lasts.nanos().get()).as_nanos(), IN_FORCE])
    }

    /// Denials are not given back.
    pub(super) fn give_back(&self, state: State, _: u64, _: Timestamp) -> State {
        state
    }

    pub(super) fn until_admits(&self, state: &State, _: u64, now: Timestamp) -> Reset {
        Reset::After(Self::end(state, now).map_or(Duration::ZERO, |end| end.since(now)))
    }

    /// Until the ban that is in force ends; without one, until no denial counts.
    pub(super) fn until_full(&self, state: &State, now: Timestamp) -> Duration {
        self.expires(state).since(now)
    }

    pub(super) fn expires(&self, state: &State) -> Timestamp {
        match state.words() {
            [end, IN_FORCE] => Timestamp::from_nanos(end),
            _ => self.log().expires(state),
        }
    }
}

/// Bans are refused in shared stores: no value there has this letter.
impl Stored for Ban {
    fn write_signature(&self, out: &mut StoredBytes) {
        out.push(b'B');
    }

    fn of_signature(_: u8, _: &mut StoredNumbers<'_>) -> Option<Self> {
        None
    }

    fn read(&self, _: &mut StoredNumbers<'_>) -> Option<State> {
        None
    }

    fn write(&self, _: &State, _: &mut StoredBytes) -> Option<()> {
        None
    }
}

fn within_bounds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match u32::deserialize(deserializer)? {
        after @ 1..=Ban::AFTER_MAX => Ok(after),
        after => Err(D::Error::custom(format!("a ban after {after} denials is out of bounds"))),
    }
}

fn is_zero(epoch: &u32) -> bool {
    *epoch == 0
}

impl Facts for Ban {
    const NAME: &'static str = "ban";
    const KEEPS_WORDS: bool = false;
    const COUNTS_HITS: bool = false;

    fn heap_bytes(&self) -> HeapBytes {
        HeapBytes::of_log(self.after)
    }

    fn freeing(&self) -> Freeing {
        Freeing::Otherwise(self.lasts.nanos().get())
    }

    /// A ban in force stores its end, and denials are stored by their times.
    fn reads_as(&self, other: &Self) -> bool {
        self.epoch <= other.epoch
    }

    fn with_requests(&self, _: u32, _: u32, _: Window) -> Self {
        *self
    }

    fn with_ends_at(&self, state: &State, at: Timestamp, now: Timestamp) -> Option<State> {
        let end = Self::end(state, at)?;
        Some(State::Words([now.saturating_add(end.since(at)).as_nanos(), IN_FORCE]))
    }

    /// No limit of a rule is a ban.
    fn replaced(&self, _: u32, _: Window, _: u32) -> Option<Self> {
        Some(*self)
    }

    fn in_microseconds(&self, _: &dyn Fn(u32) -> u32) -> Result<Self, NotShareable> {
        Err(NotShareable::Bans)
    }

    fn numbers(&self, _: fn(Duration) -> String) -> String {
        self.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn ban(after: u32) -> Ban {
        let window = |secs| Window::from_secs(secs).unwrap();
        Ban { after, within: window(10), lasts: window(60), epoch: 0 }
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(1_700_000_000_000 + millis)
    }

    #[test]
    fn a_ban_begins_with_the_last_denial_and_is_not_extended() {
        let rule = ban(2);
        let state = rule.add(State::EMPTY, 1, at(0));
        assert_eq!(rule.remaining(&state, at(0)), u64::MAX);
        let state = rule.add(state, 1, at(9_999));
        assert_eq!(rule.remaining(&state, at(9_999)), 0);
        let state = rule.add(state, 5, at(30_000));
        assert_eq!(rule.until_admits(&state, 1, at(9_999)), Reset::After(Duration::from_secs(60)));
        assert_eq!(rule.expires(&state), at(69_999));
        let state = rule.add(state, 1, at(69_999));
        assert_eq!(rule.used(&state, at(69_999)), 1, "the denials before the ban do not count after it");
    }

    #[test]
    fn denials_that_are_further_apart_ban_nobody() {
        let rule = ban(2);
        let state = rule.add(State::EMPTY, 1, at(0));
        let state = rule.add(state, 1, at(10_000));
        assert_eq!((rule.used(&state, at(10_000)), rule.remaining(&state, at(10_000))), (1, u64::MAX));
        assert_eq!(rule.expires(&state), at(20_000));
    }

    #[test]
    fn a_ban_at_the_end_of_time_does_not_overflow() {
        let now = Timestamp::from_nanos(u64::MAX);
        let state = ban(1).add(State::EMPTY, u64::MAX, now);
        assert_eq!(ban(1).until_admits(&state, 1, now), Reset::NOW);
    }

    proptest! {
        /// Against a list of all denials.
        #[test]
        fn a_key_is_banned_as_a_list_of_its_denials_says(
            after in 1..5_u32, waits in vec(prop_oneof![0..4_000_u64, 50_000..70_000_u64], 1..60),
        ) {
            let rule = ban(after);
            let (mut state, mut now) = (State::EMPTY, 0);
            let (mut denials, mut banned_until): (Vec<u64>, u64) = (Vec::new(), 0);
            for wait in waits {
                now += wait;
                let is_banned = now < banned_until;
                prop_assert_eq!(rule.remaining(&state, at(now)) == 0, is_banned);
                let wait = Duration::from_millis(banned_until.saturating_sub(now));
                prop_assert_eq!(rule.until_admits(&state, 1, at(now)), Reset::After(wait));
                if !is_banned {
                    denials.retain(|denial| denial + 10_000 > now);
                    denials.push(now);
                    if denials.len() >= after as usize {
                        (banned_until, denials) = (now + 60_000, Vec::new());
                    }
                }
                state = rule.add(state, 1, at(now));
            }
        }
    }
}
