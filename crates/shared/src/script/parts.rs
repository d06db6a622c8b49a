//! Requests whose counters are in several slots: a part for each group of counters, and charges to undo.
//!
//! All parts are decided at once, each as a request of its own. If a part is denied, the hits that the others have charged are taken back
//! ([`Undo`]). Hits that the request gives back are added last, after every part has admitted. If a server ends in between, hits may stay
//! that should not count, but none is missing.

use super::{
    EncodedRequest, ReplyError, Verdict,
    batch::EncodedCounter,
    undo::{Undo, UndoneCounter},
    value,
};
use smallvec::{SmallVec, smallvec};
use tidegate_core::{
    algorithm::State,
    limit::Code,
    limiter::{DeniesWhen, RemoteCharge, RemoteRequest},
};

/// The part of a request whose counters are in one group.
#[derive(Clone, Debug)]
pub struct Part {
    /// The group.
    pub group: u16,
    /// The counters and their charges. If there are several parts, [`conclude`] adds the quotas and the hits that are given back.
    pub request: EncodedRequest,
    /// The indices of its counters among those of the request.
    counters: SmallVec<[usize; 2]>,
}

/// The decision on a request with several parts.
#[derive(Clone, Debug)]
pub struct Conclusion {
    /// The verdict on all of it.
    pub verdict: Verdict,
    /// Hits to take back, by group.
    pub undo: Vec<(u16, Undo)>,
    /// Hits that the request gives back, by group.
    pub give_back: Vec<(u16, EncodedRequest)>,
}

/// A charge that does not fit.
#[derive(Clone, Copy)]
struct Over {
    /// Index of its counter.
    counter: usize,
    descriptor: u32,
    denial: DeniesWhen,
}

impl EncodedRequest {
    /// The group of its counters, if they have one in common.
    pub fn group(&self) -> Option<u16> {
        let (first, rest) = self.counters.split_first()?;
        rest.iter().all(|counter| counter.group == first.group).then_some(first.group)
    }

    /// The parts of a request, in ascending order of their groups. A single part is the whole request: the store decides it as any other.
    pub fn parts(&self) -> Vec<Part> {
        if let Some(group) = self.group() {
            return vec![Part { group, request: self.clone(), counters: (0..self.counters.len()).collect() }];
        }
        let mut parts: Vec<Part> = Vec::new();
        for (index, counter) in self.counters.iter().enumerate() {
            let found = parts.binary_search_by_key(&counter.group, |part| part.group);
            let at = found.unwrap_or_else(|at| {
                let request = Self { quotas: 0, counters: SmallVec::new() };
                parts.insert(at, Part { group: counter.group, request, counters: SmallVec::new() });
                at
            });
            let mut counter = counter.clone();
            counter.charges.iter_mut().for_each(|charge| charge.given = 0);
            parts[at].request.counters.push(counter);
            parts[at].counters.push(index);
        }
        parts
    }

    /// Hits to give back if all of `parts` admit the request, by group. Empty if a single part has given them back.
    pub fn give_backs(&self, parts: &[Part]) -> Vec<(u16, Self)> {
        let of_part = |part: &Part| Some((part.group, self.give_back(part, |_| true, |_| u64::MAX)?));
        let is_left = parts.len() > 1 && self.gives_back();
        if is_left { parts.iter().filter_map(of_part).collect() } else { Vec::new() }
    }

    /// The request that gives hits back to the counters of a part; none if there are none. Each counter gets at most the hits that it had
    /// `used` before, so that hits charged by the request itself are not among them.
    fn give_back(
        &self,
        part: &Part,
        counts: impl Fn(&RemoteCharge) -> bool,
        used: impl Fn(usize) -> u64,
    ) -> Option<Self> {
        let counters = part.counters.iter().map(|&index| {
            let mut counter = self.counters[index].clone();
            counter.reservation = None;
            let mut left = used(index);
            counter.charges.retain(|charge| {
                charge.given = if counts(charge) { charge.given.min(left) } else { 0 };
                left -= charge.given;
                charge.given > 0
            });
            counter.given = counter.charges.iter().map(|charge| charge.given).sum();
            counter
        });
        let counters: SmallVec<[EncodedCounter; 2]> = counters.filter(|counter| counter.given > 0).collect();
        (!counters.is_empty()).then_some(Self { quotas: 0, counters })
    }
}

/// The decision on a request from the verdicts on its parts.
pub fn conclude(
    remote: &RemoteRequest<'_>,
    request: &EncodedRequest,
    parts: &[Part],
    verdicts: &[Verdict],
) -> Result<Conclusion, ReplyError> {
    conclude_if(remote, request, parts, verdicts, false)
}

/// Hits that the store has charged for a request, by group, if it admitted the request and local counters have denied it. Hits that the
/// request gave back stay given back.
pub fn undo_all(
    remote: &RemoteRequest<'_>,
    request: &EncodedRequest,
    verdict: &Verdict,
) -> Result<Vec<(u16, Undo)>, ReplyError> {
    if verdict.states.len() != request.counters.len() {
        return Err(ReplyError::Malformed);
    }
    let parts = request.parts();
    let verdict_on = |part: &Part| Verdict {
        now: verdict.times.get(part.counters[0]).copied().unwrap_or(verdict.now),
        times: SmallVec::new(),
        states: part.counters.iter().map(|&index| verdict.states[index].clone()).collect(),
        ..verdict.clone()
    };
    let verdicts: Vec<Verdict> = parts.iter().map(verdict_on).collect();
    Ok(conclude_if(remote, request, &parts, &verdicts, true)?.undo)
}

/// Concludes as [`conclude`] does. The request is denied in any case if `is_denied_elsewhere`.
fn conclude_if(
    remote: &RemoteRequest<'_>,
    request: &EncodedRequest,
    parts: &[Part],
    verdicts: &[Verdict],
    is_denied_elsewhere: bool,
) -> Result<Conclusion, ReplyError> {
    let mut verdict = join(request, parts, verdicts)?;
    let states = states(remote, &verdict)?;
    let over = charges_over(remote, &verdict, &states);
    let is_over = |descriptor| over.iter().any(|over| over.descriptor == descriptor);
    let is_denied = is_denied_elsewhere
        || over.iter().any(|over| over.denial == DeniesWhen::Always)
        || (request.quotas > 0 && quotas_over(&over) == usize::from(request.quotas));
    verdict.code = if is_denied { Code::OverLimit } else { Code::Ok };
    // The hits in each counter before the decision.
    let used: SmallVec<[u64; 2]> = remote
        .counters()
        .zip(states.iter().zip(&verdict.times))
        .map(|((counter, _), (state, now))| counter.limit.algorithm.used(state, *now))
        .collect();
    let over_alone = over_alone(remote, &used);
    let stops = |counters: &[usize]| counters.iter().any(|&counter| over_alone[counter].contains(&true));
    let is_counted = |counter: usize, number: usize, charge: &RemoteCharge, stops: bool, is_denied: bool| {
        if stops && charge.stops_counting {
            over_alone[counter][number]
        } else {
            charge.is_always || !is_denied
        }
    };
    let stops_anywhere = parts.iter().any(|part| stops(&part.counters));
    let is_denied_for = |charge: &RemoteCharge| is_denied || is_over(charge.descriptor);
    let counts = |charge: &RemoteCharge| charge.is_always || !is_denied_for(charge);

    let (mut undo, mut give_back) = (Vec::new(), Vec::new());
    let gives_back_later = parts.len() > 1 && request.gives_back();
    for (part, of_part) in parts.iter().zip(verdicts) {
        let is_part_denied = of_part.code == Code::OverLimit;
        let is_over_there = |descriptor| {
            over.iter().any(|over| over.descriptor == descriptor && part.counters.contains(&over.counter))
        };
        let stops_there = stops(&part.counters);
        let counters = part.request.counters.iter().zip(&of_part.states).zip(&part.counters);
        let counters = counters.map(|((counter, before), &index)| {
            let is_excess = |(number, charge): &(usize, &RemoteCharge)| {
                let is_denied_there = is_part_denied || is_over_there(charge.descriptor);
                is_counted(index, *number, charge, stops_there, is_denied_there)
                    && !is_counted(index, *number, charge, stops_anywhere, is_denied_for(charge))
            };
            let excess = counter.charges.iter().enumerate().filter(is_excess);
            let hits = excess.map(|(_, charge)| charge.taken).sum();
            UndoneCounter::new(counter, before, hits)
        });
        let counters: Vec<_> = counters.filter(|counter| counter.hits > 0).collect();
        if !counters.is_empty() {
            undo.push((part.group, Undo { at: of_part.now, counters }));
        }
        if gives_back_later {
            let given = request.give_back(part, counts, |counter| used[counter]);
            give_back.extend(given.map(|request| (part.group, request)));
        }
    }
    Ok(Conclusion { verdict, undo, give_back })
}

/// Takes back what a request, or a part of it, has charged without a decision: another part failed, or the caller gave up. Hits that denied
/// requests are charged too stay. So do hits of shadow rules and quotas: whether they were charged depends on limits that this part does
/// not have.
pub fn undo_of(request: &EncodedRequest, verdict: &Verdict) -> Option<Undo> {
    if verdict.code == Code::OverLimit || request.counters.len() != verdict.states.len() {
        return None;
    }
    let counters = request.counters.iter().zip(&verdict.states).map(|(counter, before)| {
        // A slot that was not taken, and a reservation that was not started, cannot be released or ended.
        let has_id = counter.slot != 0 || counter.reservation.is_some();
        let is_certain = |charge: &RemoteCharge| charge.denial == DeniesWhen::Always || has_id;
        let is_charged = counter.charges.iter().all(is_certain);
        let of_denied = counter.charges.iter().filter(|charge| !charge.is_always && is_charged);
        let hits = of_denied.map(|charge| charge.taken).sum();
        UndoneCounter::new(counter, before, hits)
    });
    let counters: Vec<_> = counters.filter(|counter| counter.hits > 0).collect();
    (!counters.is_empty()).then_some(Undo { at: verdict.now, counters })
}

/// The states and times of all parts, in the order of the request. Leaves the code to the caller.
fn join(request: &EncodedRequest, parts: &[Part], verdicts: &[Verdict]) -> Result<Verdict, ReplyError> {
    let first = verdicts.first().ok_or(ReplyError::Malformed)?;
    let counters = request.counters.len();
    let (mut times, mut states) = (smallvec![first.now; counters], smallvec![Vec::new(); counters]);
    for (part, verdict) in parts.iter().zip(verdicts) {
        if verdict.states.len() != part.counters.len() {
            return Err(ReplyError::Malformed);
        }
        for (&index, state) in part.counters.iter().zip(&verdict.states) {
            (times[index], states[index]) = (verdict.now, state.clone());
        }
    }
    Ok(Verdict { times, states, ..first.clone() })
}

/// The states of all counters before the decision.
fn states(remote: &RemoteRequest<'_>, verdict: &Verdict) -> Result<SmallVec<[State; 2]>, ReplyError> {
    let states = remote.counters().zip(&verdict.states);
    let states = states.map(|((counter, _), state)| value::decode(state, &counter.limit.algorithm));
    states.map(|state| state.ok_or(ReplyError::State)).collect()
}

/// The charges that do not fit.
fn charges_over(remote: &RemoteRequest<'_>, verdict: &Verdict, states: &[State]) -> Vec<Over> {
    let mut over = Vec::new();
    for (index, (counter, charges)) in remote.counters().enumerate() {
        let (algorithm, now) = (&counter.limit.algorithm, verdict.times[index]);
        let used = match counter.given {
            0 => algorithm.used(&states[index], now),
            given => algorithm.used(&algorithm.give_back(states[index].clone(), given, now), now),
        };
        for charge in charges {
            if charge.need.is_some_and(|need| used.saturating_add(need) > charge.used_max) {
                over.push(Over { counter: index, descriptor: charge.descriptor, denial: charge.denial });
            }
        }
    }
    over
}

/// By counter and charge: whether the charge exceeds its limit by itself, if it stops counting then.
fn over_alone(remote: &RemoteRequest<'_>, used: &[u64]) -> Vec<SmallVec<[bool; 1]>> {
    let counters = remote.counters().zip(used);
    let counters = counters.map(|((_, charges), used)| {
        let is_over = |charge: RemoteCharge| {
            charge.stops_counting && used.saturating_add(charge.taken) > charge.used_max
        };
        charges.map(is_over).collect()
    });
    counters.collect()
}

/// Number of quotas that are over.
fn quotas_over(over: &[Over]) -> usize {
    let quotas = over.iter().filter(|over| over.denial == DeniesWhen::Quota);
    let mut descriptors: SmallVec<[u32; 4]> = quotas.map(|over| over.descriptor).collect();
    descriptors.sort_unstable();
    descriptors.dedup();
    descriptors.len()
}
