//! A rate that is divided among clients.
//!
//! The counter has a part for all clients together ([`Assigned`](tidegate_core::algorithm::Assigned)): a rate, and a burst. Requests to
//! the server are decided by what is left of the limit, so that both together keep it. Of that part, clients have shares. Invariants:
//!
//! - what clients may have in force adds up to no more than the rate of the part;
//! - the tokens of their buckets, and those that others had shortly before, add up to no more than its burst: tokens that a client
//!   gave up may have been spent, and are free again only when as many hits as they would have drained.
//!
//! Therefore all clients together admit no more than a token bucket of that rate and that burst, whatever they do.

use super::{
    Push, Settings,
    action::{Action, Fill},
    allocation::Level,
    bucket::Bucket,
    member::{Member, Remnant, Share},
    terms::{RATE_MIN, RateTerms, millihits, millihits_in},
};
use tidegate_core::{
    algorithm::{Algorithm, Leased},
    limit::Timestamp,
    store::Key,
};

/// The part of the rate that nobody has: what drains the tokens that clients gave up, and hits of requests to the server.
const RATE_PER_RESERVE: u64 = 256;

/// The most time for which those that get nothing wait for those that have a share, in lives of an assignment.
const LIVES_PER_TURN: u32 = 4;

/// The state of a rate that is divided.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rates {
    pub(super) terms: RateTerms,
    /// The rate of the part.
    pub(super) rate: u64,
    /// The burst of the part.
    pub(super) burst: u64,
    /// Thousandths of tokens that clients gave up and may have spent.
    debt: u64,
    /// Time of the last settlement.
    settled: Timestamp,
    direct: Direct,
    /// The first of the clients that have a share if not all can have one, and the time of the next.
    turn: usize,
    turn_ends: Timestamp,
}

/// Hits of requests to the server.
#[derive(Clone, Copy, Debug)]
struct Direct {
    /// Hits, as the counter has them.
    counted: u64,
    since: Timestamp,
    /// Thousandths of a hit per second.
    rate: u64,
}

impl Direct {
    /// Takes in the number of hits so far.
    fn measure(&mut self, counted: u64, now: Timestamp) {
        let elapsed = now.since(self.since).as_nanos() as u64;
        if elapsed < 1_000_000_000 {
            return;
        }
        let measured = millihits(counted.saturating_sub(self.counted), elapsed);
        // Fast to rise, and slow to fall, as reports are.
        let halves = (elapsed / 4_000_000_000).min(63) as u32;
        let fallen = (self.rate - self.rate / 8) >> halves;
        *self = Self { counted, since: now, rate: measured.max(fallen) };
    }

    /// What requests to the server demand: those that were denied are not known.
    fn wanted(&self, of: u64) -> u64 {
        if self.rate == 0 { 0 } else { self.rate.saturating_mul(2).max(of / 64) }
    }
}

impl Rates {
    pub(super) fn new(terms: RateTerms, now: Timestamp) -> Self {
        let direct = Direct { counted: 0, since: now, rate: 0 };
        Self { terms, rate: 0, burst: 0, debt: 0, settled: now, direct, turn: 0, turn_ends: now }
    }

    /// The rate that can be divided.
    fn divisible(&self) -> u64 {
        self.terms.rate - self.terms.rate / RATE_PER_RESERVE
    }

    /// Counts tokens that a client gave up.
    pub(super) fn give_up(&mut self, tokens: u64) {
        self.debt = self.debt.saturating_add(tokens.saturating_mul(1_000));
    }

    /// The burst of each client: as many clients may come as there are, before that of any is made smaller.
    fn tokens_of_each(&self, clients: usize) -> u32 {
        let each = self.burst >> (clients + 1).next_power_of_two().ilog2();
        u32::try_from(each).unwrap_or(u32::MAX).max(1)
    }

    /// Demand of a client that is not known: an equal share.
    pub(super) fn guess(&self, clients: usize) -> u64 {
        self.divisible() / (clients as u64 + 1)
    }

    /// Rate and tokens that a client of a former process certainly had, by what it admitted.
    pub(super) fn had(&self, allowed: u64, elapsed: u64, clients: usize, settings: &Settings) -> Share {
        let tokens = self.tokens_of_each(clients);
        let longest = elapsed.saturating_add(settings.round_trip.as_nanos() as u64);
        let rate = millihits(allowed.saturating_sub(tokens.into()), longest);
        Share { rate, tokens: if rate > 0 { tokens.div_ceil(8) } else { 0 } }
    }
}

impl Bucket {
    /// What clients may have in force.
    pub(super) fn in_force(&self) -> (u64, u64) {
        let members =
            self.members.iter().map(|member| (member.counted.rate, u64::from(member.counted.tokens)));
        let remnants = self.remnants.iter().map(|remnant| (remnant.rate, remnant.tokens));
        members.chain(remnants).fold((0, 0), |(rate, tokens): (u64, u64), more| {
            (rate.saturating_add(more.0), tokens.saturating_add(more.1))
        })
    }

    /// Ends what has ended, and drains the tokens that were given up before.
    pub(super) fn settle_rates(&mut self, rates: &mut Rates, settings: &Settings, now: Timestamp) {
        let spare = rates.rate.saturating_sub(self.in_force().0);
        let elapsed = now.since(rates.settled).as_nanos() as u64;
        let drained = (u128::from(spare) * u128::from(elapsed) / 1_000_000_000) as u64;
        rates.debt = rates.debt.saturating_sub(drained);
        rates.settled = now.max(rates.settled);
        let ended = self.remnants.extract_if(.., |remnant| remnant.end <= now).map(|remnant| remnant.tokens);
        let mut tokens: u64 = ended.sum();
        for member in &mut self.members {
            tokens = tokens.saturating_add(member.expire(settings, now));
        }
        rates.give_up(tokens);
    }

    /// Divides the rate anew. Expects that it was settled at this time.
    pub(super) fn divide_rates(
        &mut self,
        rates: &mut Rates,
        counter: impl FnOnce(&mut dyn FnMut(&Algorithm, &mut Leased)),
        is_learning: bool,
        settings: &Settings,
        now: Timestamp,
        pushes: &mut Vec<Push>,
    ) {
        let (in_force, tokens) = self.in_force();
        let remnants = self.remnants.iter().map(|remnant| remnant.rate).fold(0, u64::saturating_add);
        let divisible = rates.divisible();
        let seats = self.seats(rates, divisible.saturating_sub(remnants), settings, now);
        let (first, last) = (rates.turn, rates.turn + seats);
        let members = self.members.len();
        let has_seat =
            move |index: usize| seats >= members || (first..last).contains(&index) || index + members < last;
        let seated = self.members.iter().enumerate().filter(|(index, _)| has_seat(*index));
        let mut wanted: Vec<u64> = seated.map(|(_, member)| member.claim.wanted).collect();
        let direct = rates.direct.wanted(divisible);
        let level = Level::of(&mut wanted, direct, divisible.saturating_sub(remnants));
        let target = |index: usize, member: &Member| {
            if has_seat(index) { level.share(member.claim.wanted) } else { 0 }
        };

        let targets = self.members.iter().enumerate();
        let targets =
            targets.map(|(index, member)| target(index, member)).fold(remnants, u64::saturating_add);
        let desired = (targets + level.unclaimed / 2).max(in_force).min(divisible.max(in_force));
        counter(&mut |algorithm, leased| {
            rates.adjust(algorithm, leased, desired, (in_force, tokens), settings, now)
        });

        let growth =
            |(index, member): (usize, &Member)| target(index, member).saturating_sub(member.counted.rate);
        let growth = self.members.iter().enumerate().map(growth).fold(0, u64::saturating_add);
        let free = rates.rate.saturating_sub(in_force);
        let mut free_tokens = rates.burst.saturating_sub(tokens).saturating_sub(rates.debt.div_ceil(1_000));
        // What nobody demands stays where it is, except for a part that is free for those that are to come.
        let is_short =
            growth > free || free < level.unclaimed / 4 || in_force + level.direct(direct) > divisible;
        let each = rates.tokens_of_each(self.members.len() + self.remnants.len());
        for (index, member) in self.members.iter_mut().enumerate() {
            if is_learning && !member.is_assigned {
                continue;
            }
            let target = target(index, member);
            let mut rate = member.share.rate;
            if is_learning {
                // Nothing is free: all there is may be in force with clients of the former process.
            } else if target > rate {
                let more = target.saturating_sub(member.counted.rate);
                let part = if growth <= free {
                    more
                } else {
                    (u128::from(more) * u128::from(free) / u128::from(growth)) as u64
                };
                let grown = target.min(member.counted.rate + part);
                rate = if grown - rate.min(grown) > rate / 64 { grown.max(rate) } else { rate };
            } else if is_short && !member.is_pending() && rate - target > rate / 64 {
                rate = target;
            }
            let fill = Fill::at_most(rate);
            let mut share = Share { rate: fill.map_or(0, Fill::rate), tokens: member.share.tokens };
            share.tokens = match member.share.tokens {
                _ if share.rate == 0 => 0,
                tokens if tokens > each => each,
                tokens if tokens > 0 && u64::from(each) < 2 * u64::from(tokens) => tokens,
                tokens => {
                    let more = u64::from(each.saturating_sub(member.counted.tokens)).min(free_tokens);
                    free_tokens -= more;
                    // All that is free, or all that it may have in force already.
                    (member.counted.tokens + more as u32).min(each).max(tokens)
                }
            };
            if share.tokens == 0 {
                share = Share::default();
            }
            let is_changed = share != member.share || !member.is_assigned;
            if is_changed || member.is_due(settings, now) {
                member.send(share, settings, now);
                let ttl = settings.ttl;
                let action = match fill.filter(|_| share.tokens > 0) {
                    Some(fill) => fill.action(share.tokens, member.salt, ttl),
                    None => Action::DenyAll { ttl },
                };
                pushes.push(Push { stream: member.stream, bucket: self.key, action });
            }
        }
    }

    /// The number of clients that can have a share at once. Takes the next turn if it is time.
    fn seats(&self, rates: &mut Rates, rate: u64, settings: &Settings, now: Timestamp) -> usize {
        let members = self.members.len();
        let most = (rate / RATE_MIN).min(rates.burst.max(2) / 2).max(1);
        let seats = usize::try_from(most).unwrap_or(usize::MAX).min(members);
        if seats == members {
            rates.turn = 0;
        } else if now >= rates.turn_ends {
            rates.turn = (rates.turn + seats) % members;
            rates.turn_ends = now.saturating_add(settings.ttl * LIVES_PER_TURN);
        }
        seats
    }
}

impl Rates {
    /// Takes a part of the counter for clients: as near to the desired rate as the counter permits, and no less than may be in force.
    fn adjust(
        &mut self,
        algorithm: &Algorithm,
        leased: &mut Leased,
        desired: u64,
        (rate_in_force, tokens): (u64, u64),
        settings: &Settings,
        now: Timestamp,
    ) {
        leased.expire(algorithm, now);
        let held = leased.assigned.map_or(0, |assigned| assigned.held);
        self.direct.measure(leased.assigned.map_or(0, |assigned| assigned.exact), now);
        let free = algorithm.remaining(&leased.state, now).saturating_sub(leased.outstanding());
        let most = held + free;
        // Tokens that were given up count until they have drained.
        let least = tokens.saturating_add(self.debt.div_ceil(1_000)).min(self.burst);
        self.burst = self.terms.burst.min(most).max(least);
        self.rate = desired.min(self.terms.rate_within(most.saturating_sub(self.burst))).max(rate_in_force);
        let end = now.saturating_add(settings.ttl + settings.round_trip);
        let accrued = if self.terms.accrues { self.rate } else { 0 };
        leased.assign(algorithm, self.terms.held(self.rate, self.burst), accrued, end, now);
    }

    /// What a former process may have assigned, all of it.
    pub(super) fn of_former(&self, end: Timestamp) -> Remnant {
        Remnant { end, rate: self.divisible(), tokens: self.terms.burst }
    }

    /// Sends a client of a former process what it certainly had.
    pub(super) fn assign_former(
        &self,
        member: &mut Member,
        share: Share,
        bucket: Key,
        settings: &Settings,
        now: Timestamp,
        pushes: &mut Vec<Push>,
    ) {
        let Some(fill) = Fill::at_most(share.rate).filter(|_| share.tokens > 0) else { return };
        member.send(Share { rate: fill.rate(), ..share }, settings, now);
        let action = fill.action(share.tokens, member.salt, settings.ttl);
        pushes.push(Push { stream: member.stream, bucket, action });
    }

    /// Takes from the shares of clients of a former process what one of them has.
    pub(super) fn carve(remnants: &mut [Remnant], share: Share) -> Share {
        let Some(former) = remnants.iter_mut().max_by_key(|remnant| remnant.end) else {
            return Share::default();
        };
        let share = Share {
            rate: share.rate.min(former.rate),
            tokens: share.tokens.min(u32::try_from(former.tokens).unwrap_or(u32::MAX)),
        };
        former.rate -= share.rate;
        former.tokens -= u64::from(share.tokens);
        share
    }

    /// Hits that may be spent of a share until its end.
    pub(super) fn hits_until(remnant: &Remnant, now: Timestamp) -> u64 {
        let left = remnant.end.since(now).as_nanos() as u64;
        remnant.tokens.saturating_add(millihits_in(remnant.rate, left).div_ceil(1_000))
    }
}
