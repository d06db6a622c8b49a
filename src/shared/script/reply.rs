//! The reply of the script: the time, a verdict for each request, and the states that each request read.

use super::{signature::NANOS, state};
use crate::{
    limit::{Code, Decision, Timestamp},
    limiter::RemoteRequest,
};
use smallvec::SmallVec;

/// The reply to a batch.
#[derive(Debug)]
pub struct Reply {
    /// Time of the decisions, by the store's clock.
    pub now: Timestamp,
    /// Whether the store was empty: a new one, or one that lost its keys.
    pub is_new_store: bool,
    /// One for each request, in order.
    pub verdicts: Vec<Verdict>,
}

/// The verdict on one request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Time of the decision, by the store's clock.
    pub now: Timestamp,
    /// The code.
    pub code: Code,
    /// The states of its counters when they were read.
    pub states: SmallVec<[Vec<u8>; 2]>,
}

/// Reason why a reply cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReplyError {
    /// Not a reply of the script.
    #[error("the store's reply is not one of the script")]
    Malformed,
    /// A state that this version does not read.
    #[error("the store returned a state that does not belong to its limit")]
    State,
    /// The store evaluated the request in another way.
    #[error("the store and this server disagree on a decision")]
    Disagreement,
}

impl Reply {
    /// From the items of the script's reply, where each request has so many counters.
    pub fn new(items: Vec<Vec<u8>>, counters: &[usize]) -> Result<Self, ReplyError> {
        let mut items = items.into_iter();
        let mut next = || items.next().ok_or(ReplyError::Malformed);
        let (now, codes, new) = (next()?, next()?, next()?);
        let micros: u64 =
            str::from_utf8(&now).ok().and_then(|text| text.parse().ok()).ok_or(ReplyError::Malformed)?;
        let now = Timestamp::from_nanos(micros.checked_mul(NANOS).ok_or(ReplyError::Malformed)?);
        if codes.len() != counters.len() {
            return Err(ReplyError::Malformed);
        }
        let verdict = |(code, &counters): (u8, &usize)| {
            let code = match code {
                b'0' => Code::Ok,
                b'1' => Code::OverLimit,
                _ => return Err(ReplyError::Malformed),
            };
            let states =
                (0..counters).map(|_| items.next().ok_or(ReplyError::Malformed)).collect::<Result<_, _>>()?;
            Ok(Verdict { now, code, states })
        };
        let verdicts = codes.into_iter().zip(counters).map(verdict).collect::<Result<_, _>>()?;
        Ok(Self { now, is_new_store: !new.is_empty(), verdicts })
    }
}

impl Verdict {
    /// The decision on a request, with its service limits if `with_limits`.
    pub fn decide<'h>(
        &self,
        request: RemoteRequest<'h>,
        with_limits: bool,
    ) -> Result<Decision<'h>, ReplyError> {
        let counters = request.counters();
        if counters.len() != self.states.len() {
            return Err(ReplyError::Malformed);
        }
        let states = counters
            .zip(&self.states)
            .map(|((counter, _), state)| state::decode(state, &counter.limit.algorithm));
        let states = states.collect::<Option<_>>().ok_or(ReplyError::State)?;
        let decision = request.decide(states, self.now, with_limits);
        if decision.code == self.code { Ok(decision) } else { Err(ReplyError::Disagreement) }
    }
}
