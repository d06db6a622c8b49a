//! Arguments of the script: a batch of requests. Each counter and each limit is in it once.

use super::microseconds::NANOS;
use crate::lease::{LeaseRequest, Terms};
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::num::NonZeroU8;
use tidegate_core::{
    algorithm::StoredBytes,
    limit::Timestamp,
    limiter::{DeniesWhen, RemoteCharge, RemoteRequest, StoredReservation},
    store::Key,
};

/// The most counters of a request, and in one call.
pub const COUNTERS_MAX: usize = 4_000;

/// The most keys in one call, of counters and of marks: the script pushes them on its interpreter's stack, which has room for 8,000 values.
const KEYS_MAX: usize = 7_900;

/// Added to the number of charges of a counter, which is lower, if a reservation follows the first charge.
const RESERVES: usize = 1 << 15;

/// The largest whole number that a double and its neighbours represent exactly.
const EXACT_MAX: u64 = (1 << 53) - 1;

/// Demands above this, in hits per lease length, are equal.
const DEMAND_TOLD_APART_MAX: u64 = 1 << 32;

/// A request as the script reads it, without the places of its keys and limits in a batch.
#[derive(Clone, Debug)]
pub struct EncodedRequest {
    pub(super) quotas: u16,
    pub(super) counters: SmallVec<[EncodedCounter; 2]>,
}

#[derive(Clone, Debug)]
pub(super) struct EncodedCounter {
    pub(super) key: Key,
    pub(super) group: u16,
    pub(super) limit: StoredBytes,
    /// The most hits that count, debts included, plus one. 0 if nothing bounds them.
    pub(super) counted_at_most: u64,
    pub(super) given: u64,
    /// The id of the slot that is taken; 0 if none is.
    pub(super) slot: u64,
    pub(super) reservation: Option<StoredReservation>,
    pub(super) charges: SmallVec<[RemoteCharge; 1]>,
}

impl EncodedRequest {
    /// Encodes a request at `now`, the time of this machine. None if it has more counters, marks or charges than one call of the script takes.
    pub fn new(request: &RemoteRequest<'_>, now: Timestamp) -> Option<Self> {
        let counters = request.counters();
        if counters.len() > COUNTERS_MAX {
            return None;
        }
        let counters = counters.map(|(counter, charges)| EncodedCounter {
            key: counter.key,
            group: counter.group,
            limit: counter.limit.algorithm.parameters_in_store(now),
            counted_at_most: counter.limit.counted_at_most().map_or(0, |most| most.saturating_add(1)),
            given: counter.given,
            slot: counter.slot,
            reservation: counter.reservation,
            charges: charges.collect(),
        });
        let counters: SmallVec<[EncodedCounter; 2]> = counters.collect();
        let is_good = counters.iter().all(|counter| counter.charges.len() < RESERVES);
        let quotas = u16::try_from(request.quotas()).ok()?;
        let request = Self { quotas, counters };
        let keys = request.counters() + request.given().count();
        (is_good && keys <= KEYS_MAX).then_some(request)
    }

    /// Number of its counters.
    pub fn counters(&self) -> usize {
        self.counters.len()
    }

    /// Whether it takes slots or starts reservations.
    pub fn takes_tickets(&self) -> bool {
        self.counters.iter().any(|counter| counter.slot != 0 || counter.reservation.is_some())
    }

    /// The keys of its counters.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.counters.iter().map(|counter| counter.key)
    }

    /// Whether it gives hits back.
    pub fn gives_back(&self) -> bool {
        self.counters.iter().any(|counter| counter.given > 0)
    }

    /// The keys of the counters to which it gives hits back.
    fn given(&self) -> impl Iterator<Item = Key> {
        let given = |counter: &&EncodedCounter| counter.given > 0 && counter.slot == 0;
        self.counters.iter().filter(given).map(|counter| counter.key)
    }

    /// Its hits, if it only takes up to 255 hits of one counter, as most requests do. It is then encoded in five bytes.
    fn only_hits(&self) -> Option<NonZeroU8> {
        let [EncodedCounter { charges, given: 0, slot: 0, reservation: None, .. }] = &self.counters[..]
        else {
            return None;
        };
        let &[RemoteCharge { denial: DeniesWhen::Always, is_always: false, need, taken, given: 0, .. }] =
            &charges[..]
        else {
            return None;
        };
        let hits = NonZeroU8::new(u8::try_from(taken).ok()?)?;
        (self.quotas == 0 && need == Some(taken)).then_some(hits)
    }
}

/// Requests for one call of the script.
#[derive(Debug, Default)]
pub struct Batch {
    /// The keys of the counters.
    pub keys: Vec<Key>,
    places: HashMap<Key, u16, foldhash::fast::FixedState>,
    /// The arguments after the fourth: limits, each followed by the most hits that count plus one, and the number of hits that an empty
    /// counter admits.
    pub limits: Vec<StoredBytes>,
    /// The second argument of the script. The first is the layout, the third the run of the store.
    pub requests: Vec<u8>,
    /// The counters to which hits are given back. Their marks ([`mark`](super::mark)), which the script writes, are the keys after those of
    /// the counters.
    pub given: Vec<Key>,
    /// Number of counters of each request.
    pub(super) counters: Vec<usize>,
    /// The fourth argument of the script.
    pub lease_requests: Vec<u8>,
    /// Number of requests for credits.
    pub(super) leases: usize,
}

impl Batch {
    /// Whether the request still fits.
    pub fn has_room(&self, request: &EncodedRequest) -> bool {
        // Each counter of the request may have a mark.
        self.keys.len() + request.counters() <= COUNTERS_MAX
            && self.keys.len() + self.given.len() + 2 * request.counters() <= KEYS_MAX
    }

    /// Adds a request, which must fit.
    pub fn push(&mut self, request: &EncodedRequest) {
        self.counters.push(request.counters.len());
        self.given.extend(request.given());
        let only_hits = request.only_hits();
        self.requests.push(only_hits.map_or(0, NonZeroU8::get));
        if only_hits.is_none() {
            write_u16(&mut self.requests, request.counters.len());
            self.requests.extend_from_slice(&request.quotas.to_le_bytes());
        }
        for counter in &request.counters {
            let most = counter.charges.first().map_or(0, |charge| charge.used_max);
            let bounds = [counter.counted_at_most, most];
            let (key, limit) = (self.key(counter.key), self.limit(&counter.limit, bounds));
            let out = &mut self.requests;
            if only_hits.is_some() {
                write_u16(out, key);
                write_u16(out, limit);
                continue;
            }
            write_u16(out, key);
            write_u16(out, limit);
            write_u16(out, counter.charges.len() + counter.reservation.map_or(0, |_| RESERVES));
            match counter.slot {
                0 => write_number(out, counter.given),
                // Slots are released by their ids.
                slot => out.extend_from_slice(&slot.to_le_bytes()),
            }
            for (number, charge) in counter.charges.iter().enumerate() {
                write_charge(out, charge);
                if number == 0 {
                    counter.reservation.iter().for_each(|reservation| write_reservation(out, *reservation));
                }
            }
        }
    }

    /// Adds a request for credits of a counter. Expects room. All requests of a batch are for leases of one length. `now` is the time of
    /// this machine.
    pub fn push_lease(&mut self, key: Key, terms: Terms<'_>, request: &LeaseRequest, now: Timestamp) {
        let numbers = terms.numbers();
        let (key, limit) =
            (self.key(key), self.limit(&terms.algorithm.parameters_in_store(now), [0, numbers.limit]));
        let out = &mut self.lease_requests;
        self.leases += 1;
        write_u16(out, key);
        write_u16(out, limit);
        out.extend_from_slice(&request.node.0.to_le_bytes());
        let LeaseRequest { holder, sequence, spent, acknowledged, spent_ago, kept, demand, .. } = *request;
        [holder, sequence, spent, acknowledged, spent_ago, kept, demand.min(DEMAND_TOLD_APART_MAX)]
            .into_iter()
            .chain([numbers.grant_min, numbers.limit, numbers.span])
            .chain([numbers.report_min, numbers.horizon_min, numbers.freed_per_report])
            .for_each(|number| write_number(out, number));
    }

    /// The place of a counter among the keys of the call. Places begin with 1, and the first key is that of the layout.
    fn key(&mut self, key: Key) -> usize {
        let Self { keys, places, .. } = self;
        let place = *places.entry(key).or_insert_with(|| {
            keys.push(key);
            u16::try_from(keys.len() + 1).expect("a batch has far fewer counters")
        });
        usize::from(place)
    }

    /// The place of a limit with these bounds: the most hits that count plus one, and the hits that it admits. A batch has few limits, so
    /// that a search suffices.
    fn limit(&mut self, limit: &StoredBytes, bounds: [u64; 2]) -> usize {
        let mut bytes = [0; 16];
        let (counted, admitted) = bytes.split_at_mut(8);
        counted.copy_from_slice(&to_double(bounds[0]).to_le_bytes());
        admitted.copy_from_slice(&to_double(bounds[1]).to_le_bytes());
        let is_same = |known: &StoredBytes| known.strip_suffix(&bytes[..]) == Some(&limit[..]);
        let known = self.limits.iter().position(is_same);
        known.unwrap_or_else(|| {
            let mut argument = limit.clone();
            argument.extend_from_slice(&bytes);
            self.limits.push(argument);
            self.limits.len() - 1
        }) + 1
    }
}

fn write_reservation(out: &mut Vec<u8>, StoredReservation { id, max_hold, returns }: StoredReservation) {
    out.extend_from_slice(&id.to_le_bytes());
    write_number(out, max_hold.nanos().get().div_ceil(NANOS));
    out.push(u8::from(returns));
}

fn write_charge(out: &mut Vec<u8>, charge: &RemoteCharge) {
    let class = match charge.denial {
        DeniesWhen::Always => 0,
        DeniesWhen::Never => 1,
        DeniesWhen::Quota => 2,
    };
    write_u16(out, charge.descriptor as usize);
    let counting = if charge.stops_counting {
        12
    } else if charge.is_always {
        4
    } else {
        0
    };
    out.push(class + counting);
    let need = charge.need.map_or(-1.0, to_double);
    out.extend_from_slice(&need.to_le_bytes());
    [charge.used_max, charge.taken, charge.given].into_iter().for_each(|number| write_number(out, number));
}

fn write_u16(out: &mut Vec<u8>, number: usize) {
    let number = u16::try_from(number).expect("a batch is bounded, and a request by its message");
    out.extend_from_slice(&number.to_le_bytes());
}

fn write_number(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&to_double(number).to_le_bytes());
}

/// Caps hits at the largest number that a double represents exactly. No limit admits more.
fn to_double(number: u64) -> f64 {
    number.min(EXACT_MAX) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use smallvec::smallvec;

    /// A request that gives hits back to this many counters, the first of which has this number.
    fn give_back(first: u64, counters: u64) -> EncodedRequest {
        let counter = |number| EncodedCounter {
            key: Key::from_halves(0, number),
            group: 0,
            limit: smallvec![1],
            counted_at_most: 0,
            given: 1,
            slot: 0,
            reservation: None,
            charges: SmallVec::new(),
        };
        EncodedRequest { quotas: 0, counters: (first..first + counters).map(counter).collect() }
    }

    /// The script failed from 8,000 keys on, and this server stopped calling the store.
    #[test]
    fn the_counters_and_marks_of_a_batch_fit_the_stack_of_the_script() {
        let mut batch = Batch::default();
        for number in 0..64 {
            let request = give_back(number * 100, 100);
            if batch.has_room(&request) {
                batch.push(&request);
            }
        }
        assert_eq!((batch.keys.len(), batch.given.len()), (3_900, 3_900));
        assert!(Batch::default().has_room(&give_back(0, 3_900)));
    }
}
