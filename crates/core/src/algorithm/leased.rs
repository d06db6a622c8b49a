//! A counter of which nodes hold credits: hits that they may spend without asking.
//!
//! Pure, and the part of the protocol of leases that every decision has to know (`crates/shared/src/lease/` has the rest).
//! Invariants:
//!
//! - credits that are out count as hits of the present moment, whether they are spent or not;
//! - credits of a lease that has ended count as hits at its end: the node did not report how many it spent;
//! - a window from the first hit is opened by an exact decision only, and not closed by give-backs once it was leased: how many
//!   of the hits that nodes report are in this window is not known.

use super::{Algorithm, FixedWindow, Schedule, State};
use crate::limit::Timestamp;
use std::borrow::Cow;

/// Bytes of a lease as it is stored: seven numbers.
const LEASE_BYTES: usize = 7 * 8;

/// Credits of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lease {
    /// The node.
    pub node: u64,
    /// Number of its holder.
    pub holder: u64,
    /// Sequence number of its last request.
    pub sequence: u64,
    /// Its total of spent hits, as far as they are counted as used.
    pub settled: u64,
    /// Credits that it may spend beyond that.
    pub outstanding: u64,
    /// Time from which on it spends none of them.
    pub end: Timestamp,
    /// Hits that it expects in one lease length.
    pub demand: u64,
}

/// A counter and the leases on it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leased {
    /// Hits that are used; never leased itself.
    pub state: State,
    /// In no order. Those that have ended are still there until the next operation.
    pub leases: Vec<Lease>,
    /// Of the hits in a window from the first hit, those that exact decisions admitted: they certainly are in it.
    pub exact: u64,
}

impl Leased {
    /// The counter of a state, of which no credits are out unless the state has them.
    pub fn of(algorithm: &Algorithm, state: State, now: Timestamp) -> Self {
        match state {
            State::Leased(leased) => *leased,
            state => {
                let exact = if algorithm.is_from_first_hit() { algorithm.used(&state, now) } else { 0 };
                Self { state, leases: Vec::new(), exact }
            }
        }
    }

    /// The state to be stored: without leases, a plain one.
    pub fn into_state(self, algorithm: &Algorithm, now: Timestamp) -> State {
        let is_plain = self.leases.is_empty()
            && (!algorithm.is_from_first_hit() || self.exact >= algorithm.used(&self.state, now));
        if is_plain { self.state } else { State::Leased(Box::new(self)) }
    }

    /// Credits that are out.
    pub fn outstanding(&self) -> u64 {
        self.leases.iter().fold(0, |sum, lease| sum.saturating_add(lease.outstanding))
    }

    /// The hits that are used, with the credits that are out as hits of this moment.
    pub(super) fn seen(&self, algorithm: &Algorithm, now: Timestamp) -> Cow<'static, State> {
        let mut leased = self.clone();
        leased.expire(algorithm, now);
        let state = match leased.outstanding() {
            0 => leased.state,
            credits => algorithm.add(leased.state, credits, now),
        };
        match state {
            State::Reserved(reserved) => Cow::Owned(reserved.seen(algorithm, now).into_owned()),
            state => Cow::Owned(state),
        }
    }

    /// Counts the hits of leases that have ended as used, dated at the end.
    pub fn expire(&mut self, algorithm: &Algorithm, now: Timestamp) {
        let mut ended: Vec<Lease> = self.leases.extract_if(.., |lease| lease.end <= now).collect();
        // In the order of their ends, so that the state is written in the order of time.
        ended.sort_by_key(|lease| lease.end);
        for lease in ended {
            self.add_reported(algorithm, lease.outstanding, lease.end);
        }
        if !algorithm.is_from_first_hit() || algorithm.used(&self.state, now) == 0 {
            self.exact = 0;
        }
    }

    /// Counts hits of an exact decision.
    pub fn add_exact(&mut self, algorithm: &Algorithm, hits: u64, now: Timestamp) {
        self.add(algorithm, hits, now);
        self.exact = self.exact.saturating_add(hits);
    }

    /// Counts hits of a lease. Where no window from the first hit is open, they are of an earlier one: they open none.
    pub fn add_reported(&mut self, algorithm: &Algorithm, hits: u64, at: Timestamp) {
        if !algorithm.is_from_first_hit() || algorithm.used(&self.state, at) > 0 {
            self.add(algorithm, hits, at);
        }
    }

    /// Counts hits.
    pub fn add(&mut self, algorithm: &Algorithm, hits: u64, at: Timestamp) {
        if hits > 0 {
            self.state = algorithm.add(std::mem::take(&mut self.state), hits, at);
        }
    }

    /// Gives back the newest hits, and returns their number. Expects that leases have been expired.
    pub fn give_back(&mut self, algorithm: &Algorithm, hits: u64, now: Timestamp) -> u64 {
        let used = algorithm.used(&self.state, now);
        let is_leased = self.outstanding() > 0 || used > self.exact;
        let stays_open = algorithm.is_from_first_hit() && is_leased;
        let given = hits.min(if stays_open { self.exact.saturating_sub(1) } else { used });
        if given > 0 {
            self.state = algorithm.give_back(std::mem::take(&mut self.state), given, now);
            self.exact = self.exact.saturating_sub(given);
        }
        given
    }

    /// Frees all hits, and returns the number of those that stay. Credits that are out stay valid, and count.
    ///
    /// While they are, a window from the first hit stays open with one hit: a hit that a node reports later has to be in it.
    pub fn reset(&mut self, algorithm: &Algorithm, now: Timestamp) -> u64 {
        self.expire(algorithm, now);
        let used = algorithm.used(&self.state, now);
        let state = std::mem::take(&mut self.state);
        let stays_open = algorithm.is_from_first_hit() && used > 0 && self.outstanding() > 0;
        if self.outstanding() == 0 {
            self.leases.clear();
        }
        self.exact = u64::from(stays_open);
        if stays_open {
            self.state = algorithm.give_back(state, used - 1, now);
        }
        self.exact
    }

    /// The counter under another algorithm: hits that are used stay used, credits stay out until their end.
    pub fn take_over(mut self, algorithm: &Algorithm, former: &Algorithm, now: Timestamp) -> Self {
        self.expire(former, now);
        self.state = algorithm.take_over(former, self.state, now);
        self
    }

    /// The time from which on the counter may be dropped: all leases have ended, and their hits, as if all were of the last end, no
    /// longer count.
    pub fn expires(&self, algorithm: &Algorithm) -> Timestamp {
        let last = self.leases.iter().map(|lease| lease.end).max().unwrap_or_default();
        let mut at_end = Self { state: self.state.clone(), ..Self::default() };
        at_end.add_reported(algorithm, self.outstanding(), last);
        algorithm.expires(&at_end.state).max(last)
    }

    /// Bytes on the heap beyond its own.
    pub(super) fn heap_bytes(&self) -> usize {
        self.state.heap_bytes() + self.leases.capacity() * size_of::<Lease>()
    }

    /// Appends it as it is to be stored.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut number = |number: u64| out.extend(number.to_le_bytes());
        number(self.exact);
        number(self.leases.len() as u64);
        for lease in &self.leases {
            let Lease { node, holder, sequence, settled, outstanding, end, demand } = *lease;
            [node, holder, sequence, settled, outstanding, end.as_nanos(), demand]
                .into_iter()
                .for_each(&mut number);
        }
        self.state.encode(out);
    }

    /// Decodes the output of `write`; none for any other bytes.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let (&exact, bytes) = bytes.split_first_chunk::<8>()?;
        let (&count, bytes) = bytes.split_first_chunk::<8>()?;
        let length = usize::try_from(u64::from_le_bytes(count)).ok()?.checked_mul(LEASE_BYTES)?;
        let (leases, state) = bytes.split_at_checked(length)?;
        let leases = leases.as_chunks::<LEASE_BYTES>().0.iter().map(|lease| {
            let mut numbers = lease.as_chunks::<8>().0.iter().map(|number| u64::from_le_bytes(*number));
            let mut next = || numbers.next().unwrap_or_default();
            Lease {
                node: next(),
                holder: next(),
                sequence: next(),
                settled: next(),
                outstanding: next(),
                end: Timestamp::from_nanos(next()),
                demand: next(),
            }
        });
        let leases = leases.collect();
        let state = State::decode(state).ok().filter(|state| !matches!(state, State::Leased(_)))?;
        Some(Self { state, leases, exact: u64::from_le_bytes(exact) })
    }
}

impl Algorithm {
    /// Whether windows begin with their first hit.
    pub fn is_from_first_hit(&self) -> bool {
        matches!(self, Self::FixedWindow(FixedWindow { schedule: Schedule::FirstHit(_), .. }))
    }

    /// As [`Algorithm::add`], to a counter of which credits are out.
    #[cold]
    pub(super) fn add_leased(&self, mut leased: Leased, hits: u64, now: Timestamp) -> State {
        leased.expire(self, now);
        leased.add_exact(self, hits, now);
        leased.into_state(self, now)
    }

    /// As [`Algorithm::give_back`], to a counter of which credits are out.
    #[cold]
    pub(super) fn give_back_leased(&self, mut leased: Leased, hits: u64, now: Timestamp) -> State {
        leased.expire(self, now);
        leased.give_back(self, hits, now);
        leased.into_state(self, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{algorithm::SlidingLog, limit::Window};
    use proptest::prelude::*;

    fn log() -> Algorithm {
        Algorithm::SlidingLog(SlidingLog { limit: 100, window: Window::from_secs(10).unwrap() })
    }

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn leased(outstanding: u64, end: Timestamp) -> State {
        let log = log();
        let lease = Lease { node: 1, holder: 2, sequence: 3, settled: 0, outstanding, end, demand: 9 };
        let state = log.add(State::EMPTY, 10, at(1_000));
        State::Leased(Box::new(Leased { state, leases: vec![lease], exact: 0 }))
    }

    #[test]
    fn credits_count_as_hits_of_the_present_and_then_of_the_end_of_their_lease() {
        let (log, state) = (log(), leased(40, at(1_200)));
        assert_eq!((log.used(&state, at(1_100)), log.remaining(&state, at(1_100))), (50, 50));
        assert_eq!(log.used(&state, at(11_100)), 40, "the ten are too old, the credits are not");
        assert_eq!(log.used(&state, at(11_200)), 0);
        assert_eq!(log.expires(&state), at(11_200));
        let admitted = log.add(state.clone(), 50, at(1_100));
        assert_eq!(log.remaining(&admitted, at(1_100)), 0);
        assert!(matches!(log.add(state, 1, at(1_200)), State::Log(_)), "a plain state without leases");
    }

    #[test]
    fn hits_are_given_back_but_not_credits() {
        let (log, state) = (log(), leased(40, at(1_200)));
        let given = log.give_back(state, u64::MAX, at(1_100));
        assert_eq!(log.used(&given, at(1_100)), 40);
    }

    proptest! {
        #[test]
        fn a_leased_state_is_read_as_it_was_written(numbers in prop::collection::vec(any::<[u64; 7]>(), 0..5), exact: u64) {
            let leases = numbers.iter().map(|&[node, holder, sequence, settled, outstanding, end, demand]| {
                let end = Timestamp::from_nanos(end);
                Lease { node, holder, sequence, settled, outstanding, end, demand }
            });
            let leased = Leased { state: log().add(State::EMPTY, 7, at(5)), leases: leases.collect(), exact };
            let mut bytes = Vec::new();
            State::Leased(Box::new(leased.clone())).encode(&mut bytes);
            prop_assert_eq!(State::decode(&bytes), Ok(State::Leased(Box::new(leased))));
            bytes.truncate(bytes.len() / 2);
            prop_assert!(State::decode(&bytes).is_err());
        }
    }
}
