//! Parts of a bucket, where several servers share its counter in a store: a model of the store's side, with the functions of
//! `script/quota.lua`, in whole microseconds. The simulation of servers uses it as its store, and the script is compared with it.
//!
//! Each server has a part: a rate and a burst, of which its clients have shares, or a burst alone, of which they have slices. The counter
//! counts each part like the part of all clients of a single server: the burst as hits of the present, and the rate as hits that are spent
//! as time passes, until the end of the part.
//! Invariants:
//!
//! - all that clients of a server may have in force is within its part, and has ended when the part ends;
//! - rates of all parts add up to no more than that of the limit, and a part grows only into what others have given up, or what was
//!   counted at their end;
//! - the hits of the rate of a window are held during the window: those of all parts, and of rates that were given up within its length
//!   ([`LeavingRate`]);
//! - a part shrinks only by a request of its server, whose clients have less by then; hits that the request states as spent count as spent
//!   now, and the rest of what it gives up is free;
//! - after a loss of the store, parts are as their servers declare them, and no part grows until all parts that are not declared
//!   have ended.
//!
//! A request that is not newer than the last request of its server changes nothing: it was late, and the server now assumes other parts.

// The parent module imports these names from the crate, or, where it is a part of the crate, uses them.
use super::{KNOWN_BURST, NodeId, OtherPart, PART_LIFE, Part, PartGrant, PartRequest};
use tidegate_core::{
    algorithm::{Algorithm, State},
    limit::Timestamp,
};

/// A hit, in thousandths of a hit per second times microseconds.
const HIT: u128 = 1_000 * 1_000_000;

/// The part of a server, in the counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoredPart {
    pub server: NodeId,
    pub sequence: u64,
    pub part: Part,
    /// Microsecond up to which the rate is counted; a fraction of a hit is counted ahead.
    counted: u64,
    /// Microsecond from which on nothing is spent.
    end: u64,
    demand: u64,
    clients: u64,
    /// [`PartRequest::spent`] that is counted.
    settled: u64,
    /// [`PartRequest::span`].
    span: u64,
}

/// A counter with the parts of servers.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DividedCounter {
    /// The hits that are used.
    pub state: State,
    pub parts: Vec<StoredPart>,
    leaving: LeavingRate,
    exact: u64,
}

impl DividedCounter {
    /// Hits that can be admitted now.
    pub fn free(&mut self, algorithm: &Algorithm, now: Timestamp) -> u64 {
        self.settle(algorithm, now);
        algorithm.remaining(&self.state, now).saturating_sub(self.held(now.as_nanos() / 1_000))
    }

    /// Bursts of parts, and hits of rates of a window.
    fn held(&self, present: u64) -> u64 {
        let of_rates = self.parts.iter().map(|stored| in_time(stored.part.rate, stored.span));
        let of_rates = of_rates.fold(self.leaving.hits(present), u128::saturating_add).div_ceil(HIT);
        let of_rates = u64::try_from(of_rates).unwrap_or(u64::MAX);
        self.parts.iter().fold(of_rates, |sum, stored| sum.saturating_add(stored.part.burst))
    }

    /// Whether no server has a part.
    pub fn is_undivided(&self) -> bool {
        self.parts.is_empty()
    }

    /// Counts a hit of a request to a server if it can be admitted.
    pub fn decide(&mut self, algorithm: &Algorithm, now: Timestamp) -> bool {
        let is_admitted = self.free(algorithm, now) > 0;
        self.add(algorithm, is_admitted.into(), now);
        // A denied hit of a window from the first hit belongs to no window.
        self.exact += u64::from(is_admitted || !self.is_undivided() && !algorithm.is_from_first_hit());
        is_admitted
    }

    fn add(&mut self, algorithm: &Algorithm, hits: u64, at: Timestamp) {
        if hits > 0 {
            self.state = algorithm.add(std::mem::take(&mut self.state), hits, at);
        }
    }

    /// Counts the hits of rates up to now, and then bursts of parts that have ended, in the order of their ends.
    fn settle(&mut self, algorithm: &Algorithm, now: Timestamp) {
        let present = now.as_nanos() / 1_000;
        // The last hit of each part may not be spent yet: it is dated when its time began.
        let mut last_hits = Vec::new();
        for index in 0..self.parts.len() {
            let stored = &mut self.parts[index];
            let (since, rate) = (stored.counted, stored.part.rate);
            let hits = stored.accrue(present);
            if let Some(before) = hits.checked_sub(1) {
                last_hits.push(since + (u128::from(before) * HIT / u128::from(rate)) as u64);
                self.add(algorithm, before, of_micros(since));
            }
        }
        last_hits.sort_unstable();
        for at in last_hits {
            self.add(algorithm, 1, of_micros(at));
        }
        let mut ended: Vec<StoredPart> = self.parts.extract_if(.., |stored| stored.end <= present).collect();
        ended.sort_by_key(|stored| stored.end);
        for stored in ended {
            self.add(algorithm, stored.part.burst, of_micros(stored.end));
            self.leaving.add(stored.part.rate, stored.span, stored.end);
        }
        if self.parts.is_empty() {
            self.exact = 0;
        }
    }

    /// Changes the part of a server; none for a request that is not newer than its last request.
    pub fn report(
        &mut self,
        algorithm: &Algorithm,
        request: &PartRequest,
        is_learning: bool,
        now: Timestamp,
    ) -> Option<PartGrant> {
        let present = now.as_nanos() / 1_000;
        let is_newer = |stored: &StoredPart| {
            stored.server == request.server && stored.end > present && request.sequence <= stored.sequence
        };
        if self.parts.iter().any(is_newer) {
            return None;
        }
        self.settle(algorithm, now);
        let known = self.parts.iter().position(|stored| stored.server == request.server);
        let former = known.map(|known| self.parts.remove(known));
        let had = former.map_or(Part::default(), |former| former.part);
        let kept = if is_learning && request.kept.burst != KNOWN_BURST {
            request.kept
        } else {
            Part { rate: request.kept.rate.min(had.rate), burst: request.kept.burst.min(had.burst) }
        };
        self.add(algorithm, newly_spent(request, former.as_ref(), is_learning), now);
        if let Some(StoredPart { span, .. }) = former {
            // Under another limit, all of it is held for the time of the former limit.
            let stays = if span == request.span { kept.rate } else { 0 };
            self.leaving.add(had.rate.saturating_sub(stays), span, present);
        }
        let others = self.parts.iter().map(|other| other.view(present)).collect();
        let PartRequest { server, sequence, demand, clients, spent: settled, span, .. } = *request;
        let end = present + PART_LIFE.as_micros() as u64;
        let counted = present;
        let mut stored =
            StoredPart { server, sequence, part: kept, counted, end, demand, clients, settled, span };
        self.parts.push(stored);
        if !is_learning {
            stored.part = self.grow(algorithm, request, now);
        }
        stored.counted = former.map_or(present, |former| former.counted_at(stored.part.rate, present));
        if let Some(last) = self.parts.last_mut() {
            *last = stored;
        }
        let (part, free) = (stored.part, self.free(algorithm, now));
        Some(PartGrant { part, others, free, exact: self.exact, leased: 0 })
    }

    /// Lets the last part grow into what is free. In a window, the rate first replaces a rate that is leaving: only hits that were not
    /// spent by that rate since are needed.
    fn grow(&mut self, algorithm: &Algorithm, request: &PartRequest, now: Timestamp) -> Part {
        let present = now.as_nanos() / 1_000;
        let rates = self.parts.iter().fold(0, |sum: u64, stored| sum.saturating_add(stored.part.rate));
        let Some(index) = self.parts.len().checked_sub(1) else { return Part::default() };
        let Part { rate, burst } = self.parts[index].part;
        let missing = request.wanted.burst.saturating_sub(burst);
        self.parts[index].part.burst += missing.min(self.free(algorithm, now));
        let missing = request.wanted.rate.saturating_sub(rate).min(request.rate_max.saturating_sub(rates));
        let free = self.free(algorithm, now);
        let replaced = self.leaving.replace(missing, request.span, free, present);
        self.parts[index].part.rate += replaced;
        let free = self.free(algorithm, now);
        self.parts[index].part.rate += affordable(missing - replaced, request.span, free);
        self.parts[index].part
    }
}

/// Rates of a window that servers have given up. Their spent hits leave the window as time passes.
///
/// One rate stands for several: it has as many hits in the window now, and no fewer at any later time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct LeavingRate {
    rate: u64,
    /// Microsecond at which it was given up.
    since: u64,
    /// Microseconds of the window.
    span: u64,
}

impl LeavingRate {
    /// Microseconds of its time that are still in the window.
    fn left(&self, present: u64) -> u64 {
        self.span.saturating_sub(present.saturating_sub(self.since))
    }

    fn hits(&self, present: u64) -> u128 {
        in_time(self.rate, self.left(present))
    }

    /// Adds a rate that is given up now.
    fn add(&mut self, rate: u64, span: u64, present: u64) {
        let hits = self.hits(present);
        if rate == 0 || span == 0 {
            return;
        }
        let longest = if hits > 0 { span.max(self.span) } else { span };
        let of_both = hits.div_ceil(longest.into()) + in_time(rate, span).div_ceil(longest.into());
        *self = Self { rate: of_both as u64, since: present, span: longest };
    }

    /// Gives up to this much of it to a part that grows, for which there are this many free hits. Since the rate was given up it was not in
    /// the window: the hits of that time are needed.
    fn replace(&mut self, rate: u64, span: u64, free: u64, present: u64) -> u64 {
        if span != self.span || self.left(present) == 0 {
            return 0;
        }
        let replaced = affordable(rate.min(self.rate), self.span - self.left(present), free);
        self.rate -= replaced;
        replaced
    }
}

/// Hits of a rate in this many microseconds, in the unit of [`HIT`].
fn in_time(rate: u64, micros: u64) -> u128 {
    u128::from(rate) * u128::from(micros)
}

/// The part of a rate whose hits in this many microseconds have room.
fn affordable(rate: u64, micros: u64, free: u64) -> u64 {
    let most = (u128::from(free) * HIT).checked_div(micros.into());
    most.map_or(rate, |most| rate.min(u64::try_from(most).unwrap_or(u64::MAX)))
}

/// Spent hits of a request that are not counted yet, by what the store has of the server. If it has nothing, either the part has ended, and
/// all of it is counted, or the part was lost.
fn newly_spent(request: &PartRequest, former: Option<&StoredPart>, is_learning: bool) -> u64 {
    match (former, request.acknowledged) {
        (Some(former), Some(_)) => request.spent.saturating_sub(former.settled),
        (Some(former), None) => former.part.burst,
        (None, Some(acknowledged)) if is_learning => request.spent.saturating_sub(acknowledged),
        (None, _) => 0,
    }
}

impl StoredPart {
    /// Hits of the rate that were not counted yet: whole hits, rounded up.
    fn accrue(&mut self, present: u64) -> u64 {
        let until = present.min(self.end);
        if self.part.rate == 0 || self.span > 0 {
            self.counted = until;
            return 0;
        }
        let spent = u128::from(self.part.rate) * u128::from(until.saturating_sub(self.counted));
        let hits = spent.div_ceil(HIT);
        self.counted += (hits * HIT / u128::from(self.part.rate)) as u64;
        hits as u64
    }

    /// The microsecond up to which another rate is counted from now on, so that the same fraction of a hit is counted ahead.
    fn counted_at(&self, rate: u64, present: u64) -> u64 {
        let ahead = u128::from(self.counted.saturating_sub(present)) * u128::from(self.part.rate);
        present + ahead.checked_div(u128::from(rate)).unwrap_or(0) as u64
    }

    fn view(&self, present: u64) -> OtherPart {
        let ends_in = self.end.saturating_sub(present);
        OtherPart { part: self.part, ends_in, demand: self.demand, clients: self.clients }
    }
}

fn of_micros(micros: u64) -> Timestamp {
    Timestamp::from_nanos(micros.saturating_mul(1_000))
}

/// Operations that only the simulation of servers uses.
impl DividedCounter {
    pub fn forget(&mut self, server: NodeId) {
        self.parts.retain(|stored| stored.server != server);
    }

    pub fn take_over(&mut self, algorithm: &Algorithm, former: &Algorithm, now: Timestamp) {
        self.settle(former, now);
        self.state = algorithm.take_over(former, std::mem::take(&mut self.state), u64::MAX, now);
    }

    pub fn forget_rates(&mut self) {
        self.leaving = LeavingRate::default();
    }

    pub fn hold_nothing(&mut self) {
        self.parts.iter_mut().for_each(|stored| stored.part.burst = 0);
    }
}
