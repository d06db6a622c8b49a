//! The reply of the script: the time, a verdict for each request, and the states read by each request.

use super::{batch::Batch, microseconds::NANOS, value};
use crate::lease::{CounterState, StoreGrant, Supply};
use smallvec::SmallVec;
use std::time::Duration;
use tidegate_core::{
    algorithm::{Algorithm, whole_double},
    limit::{Code, Decision, Timestamp},
    limiter::{ListedLimits, RemoteRequest},
    store::Key,
};

/// The reply to a batch.
#[derive(Debug)]
pub struct Reply {
    /// Time of the decisions, by the store's clock.
    pub now: Timestamp,
    /// Whether the store was empty, because it is new or has lost its keys.
    pub is_new_store: bool,
    /// Whether the store is learning which credits are outstanding, and decides nothing.
    pub is_learning: bool,
    /// The store's epoch, if servers take leases: the microsecond in which it began.
    pub epoch: u64,
    /// Reservations that had passed their deadlines.
    pub lost: u64,
    /// One for each request, in order.
    pub verdicts: Vec<Result<Verdict, Undecided>>,
    /// One for each request for credits, in order. None if the request is not newer than the last, or could not be decided.
    pub grants: Vec<Option<EncodedGrant>>,
}

/// Reason why the store has not decided a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Undecided {
    /// It is learning which credits are outstanding.
    Learning,
    /// A counter of the request is damaged.
    Damaged,
    /// The request has a limit with a calendar, and the clocks of the store and of the client are too far apart.
    Clocks,
}

/// A grant as the store encodes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EncodedGrant {
    numbers: [u8; GRANT_BYTES],
    state: Vec<u8>,
}

/// Four doubles and the supply.
const GRANT_BYTES: usize = 33;

/// The verdict on one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Time of the decision, by the store's clock.
    pub now: Timestamp,
    /// The time of each of its counters, if several nodes decided.
    pub times: SmallVec<[Timestamp; 2]>,
    /// The code.
    pub code: Code,
    /// Whether it was denied while credits of its counters were outstanding: servers may return these.
    pub has_credits: bool,
    /// The states of its counters when they were read, with outstanding credits as hits. A denial has the leases instead.
    pub states: SmallVec<[Vec<u8>; 2]>,
}

/// Reason why a reply cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplyError {
    /// The script did not send it.
    #[error("the store's reply is not one of the script")]
    Malformed,
    /// A state that this version cannot read.
    #[error("the store returned a state that does not belong to its limit")]
    State,
    /// The store's decision differs from this server's.
    #[error("the store and this server disagree on a decision")]
    Disagreement,
}

impl Reply {
    /// Reads the items of the script's reply to a batch.
    pub fn new(items: Vec<Vec<u8>>, batch: &Batch) -> Result<Self, ReplyError> {
        let mut items = items.into_iter();
        let mut next = || items.next().ok_or(ReplyError::Malformed);
        let (now, codes, flags) = (next()?, next()?, next()?);
        let now = now.try_into().ok().and_then(whole_double);
        let now = now.and_then(|micros| micros.checked_mul(NANOS)).ok_or(ReplyError::Malformed)?;
        let now = Timestamp::from_nanos(now);
        let letters = flags.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
        let (letters, numbers) = flags.split_at(letters);
        let mut numbers = numbers.splitn(2, |byte| *byte == b' ').map(|digits| match digits {
            [] => Ok(0),
            digits => number(digits).ok_or(ReplyError::Malformed),
        });
        let epoch = numbers.next().unwrap_or(Ok(0))?;
        let lost = numbers.next().unwrap_or(Ok(0))?;
        if codes.len() != batch.counters.len() {
            return Err(ReplyError::Malformed);
        }
        let mut verdict = |(code, &counters): (u8, &usize)| {
            let states = (0..counters).map(|_| next()).collect::<Result<_, _>>()?;
            let times = SmallVec::new();
            let code_of = |code, has_credits| Ok(Ok(Verdict { now, times, code, has_credits, states }));
            match code {
                b'0' => code_of(Code::Ok, false),
                b'1' => code_of(Code::OverLimit, false),
                b'2' => Ok(Err(Undecided::Learning)),
                b'4' => Ok(Err(Undecided::Damaged)),
                b'5' => Ok(Err(Undecided::Clocks)),
                b'3' => code_of(Code::OverLimit, true),
                _ => Err(ReplyError::Malformed),
            }
        };
        let verdicts = codes.into_iter().zip(&batch.counters).map(&mut verdict).collect::<Result<_, _>>()?;
        let mut grant = |_| {
            let (numbers, state) = (next()?, next()?);
            if numbers.is_empty() {
                return Ok(None);
            }
            let numbers = numbers.try_into().map_err(|_| ReplyError::Malformed)?;
            Ok(Some(EncodedGrant { numbers, state }))
        };
        let grants = (0..batch.leases).map(&mut grant).collect::<Result<_, _>>()?;
        let (is_new_store, is_learning) = (letters.contains(&b'n'), letters.contains(&b'l'));
        Ok(Self { now, is_new_store, is_learning, epoch, lost, verdicts, grants })
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    str::from_utf8(digits).ok()?.parse().ok()
}

impl EncodedGrant {
    /// Decodes a grant of credits of a counter with this algorithm.
    pub fn decode(&self, algorithm: &Algorithm) -> Result<StoreGrant, ReplyError> {
        let double = |at: usize| {
            let bytes = self.numbers[at..].first_chunk().expect("the numbers have this many bytes");
            whole_double(*bytes).ok_or(ReplyError::Malformed)
        };
        let supply = match self.numbers[16] {
            0 => Supply::Ample,
            1 => Supply::Scarce,
            2 => Supply::TooSmall,
            3 => Supply::Learning,
            _ => return Err(ReplyError::Malformed),
        };
        Ok(StoreGrant {
            spend_to: double(0)?,
            valid_for: Duration::from_micros(double(8)?),
            supply,
            report_after: Duration::from_micros(double(17)?),
            outstanding: double(25)?,
            state: value::decode(&self.state, algorithm).ok_or(ReplyError::State)?,
        })
    }
}

impl Verdict {
    /// The state of a counter when the request read it. Only of algorithms whose states are small enough to keep.
    pub fn state_of(&self, request: &RemoteRequest<'_>, key: Key) -> Option<CounterState> {
        let (index, (counter, _)) =
            request.counters().enumerate().find(|(_, (counter, _))| counter.key == key)?;
        let algorithm = &counter.limit.algorithm;
        let state = self.states.get(index).filter(|_| algorithm.keeps_words())?;
        let at = self.times.get(index).copied().unwrap_or(self.now);
        Some(CounterState { state: value::decode(state, algorithm)?, at })
    }

    /// The decision on a request, with the service limits that are `listed`. `local_now` is the time of this server, for its local
    /// counters. If these, or a renewal, deny a request that the store has admitted, the store has to take back the hits.
    pub fn decide<'h>(
        &self,
        request: &mut RemoteRequest<'h>,
        listed: ListedLimits,
        local_now: Timestamp,
    ) -> Result<Decision<'h>, ReplyError> {
        let counters = request.counters();
        if counters.len() != self.states.len() {
            return Err(ReplyError::Malformed);
        }
        let states = counters
            .zip(&self.states)
            .map(|((counter, _), state)| value::decode(state, &counter.limit.algorithm));
        let states = states.collect::<Option<_>>().ok_or(ReplyError::State)?;
        let decision = request.decide(states, self.now, &self.times, listed, local_now);
        let is_denied_here = request.may_be_denied_here() && decision.code == Code::OverLimit;
        if decision.code == self.code || is_denied_here {
            Ok(decision)
        } else {
            Err(ReplyError::Disagreement)
        }
    }
}
