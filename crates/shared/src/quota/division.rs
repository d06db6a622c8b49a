//! The division of a rate among the clients of a bucket.

use super::{
    Part, Push, Settings,
    allocation::Level,
    bucket::Bucket,
    ceilings::Ceiling,
    means::{Means, assign},
    member::{Member, Remnant},
    peers::Peers,
    rates::{LIMIT_PER_NEW, Rates},
    room::Room,
    terms::RATE_MIN,
};
use tidegate_core::{
    algorithm::{Algorithm, Leased},
    limit::Timestamp,
};

/// If there are more clients than shares, a client keeps its share for this many lives of an assignment.
const LIVES_PER_TURN: u32 = 4;

impl Bucket {
    /// Sum of what may be in force at clients, including former clients.
    pub(super) fn in_force(&self) -> Part {
        self.remnants.iter().map(Remnant::part).chain([self.assigned()]).sum()
    }

    /// Sum of what may be in force at clients that report.
    pub(super) fn assigned(&self) -> Part {
        self.members.iter().map(|member| member.counted.part()).sum()
    }

    /// Ends what has ended, and drains tokens that were given up before.
    pub(super) fn settle_rates(&mut self, rates: &mut Rates, settings: &Settings, now: Timestamp) {
        rates.drain(&mut self.debts, now);
        for Remnant { peer, tokens, .. } in self.remnants.extract_if(.., |remnant| remnant.end <= now) {
            rates.give_up(&mut self.debts, peer, tokens, now);
        }
        for member in &mut self.members {
            let tokens = member.expire(settings, now);
            rates.give_up(&mut self.debts, member.peer, tokens, now);
        }
    }

    /// Divides the rate anew. Expects [`Self::settle_rates`] at the same time. Returns whether all clients have their targets.
    pub(super) fn divide_rates(
        &mut self,
        rates: &mut Rates,
        counter: impl FnOnce(&mut dyn FnMut(&Algorithm, &mut Leased)),
        settings: &Settings,
        now: Timestamp,
        pushes: &mut Vec<Push>,
    ) -> bool {
        let had = self.in_force();
        let Part { rate: in_force, burst: tokens } = had;
        let has_former = self.has_former();
        let remnants = self.remnants.iter().map(|remnant| remnant.rate).fold(0, u64::saturating_add);
        let divisible = rates.divisible();
        let mut peers = Peers::of(&self.members, &self.remnants, &self.debts, rates, self.share_max);
        let seats = self.seats(rates, peers.as_ref(), divisible.saturating_sub(remnants), settings, now);
        let direct = rates.direct.wanted(divisible);
        let rate = (direct, divisible.saturating_sub(remnants));
        let (targets, level) = self.targets(&seats, peers.as_ref(), rate, settings, now);
        let targeted = targets.iter().copied().fold(remnants, u64::saturating_add);
        let desired = (targeted + level.unclaimed / 2).max(in_force).min(divisible.max(in_force));
        let is_starved = direct > 0 && self.members.iter().any(Member::is_starved);
        counter(&mut |algorithm, leased| {
            let wanted = (desired, is_starved);
            rates.adjust((algorithm, leased), wanted, had, settings, now);
        });

        let growth = self.growth(&targets, peers.as_mut());
        let clients = peers.as_ref().map_or(self.members.len(), Peers::clients) + self.remnants.len();
        let free = rates.rate.saturating_sub(in_force);
        let free_tokens = rates.burst.saturating_sub(tokens).saturating_sub(rates.debt.div_ceil(1_000));
        let new = self.members.iter().filter(|member| !member.is_assigned).count() as u64;
        let mut means = Means {
            growth,
            free,
            free_tokens,
            clients,
            has_former,
            tokens_of_new: u32::try_from(free_tokens / new.max(1)).unwrap_or(u32::MAX),
            // Clients keep rates beyond all demand, except for a part that stays free for new clients.
            is_short: growth > free
                || free < level.unclaimed / 4
                || in_force + level.direct(direct) > divisible,
            // New clients would find none.
            has_few_tokens: free_tokens < rates.tokens_of_each(clients).into(),
            is_in_part: self.part.is_some(),
        };
        let mut is_met = true;
        for (member, target) in self.members.iter_mut().zip(targets) {
            let waits = means.waits_for_former(member, target, peers.as_ref());
            if waits || member.is_served_elsewhere(settings, now) {
                is_met = false;
                continue;
            }
            let before = member.counted;
            is_met &= assign(member, target, (rates, &mut means), peers.as_ref(), settings, now, pushes);
            if let Some(peers) = &mut peers {
                peers.note(member, before);
            }
        }
        rates.in_force = self.in_force().rate;
        let is_plain = peers.is_none() && seats.0.is_none() && direct == 0 && self.part.is_none();
        let room = Room::new(rates, level, means, is_met, settings, now);
        self.room = Some(room).filter(|_| is_plain && !has_former);
        is_met
    }

    /// The ceiling that clients need if they may have all of a limit.
    pub(super) fn needed_of(&self, rates: &Rates) -> Ceiling {
        let limit = rates.of_limit();
        let remnants = self.remnants.iter().map(|remnant| remnant.rate).fold(0, u64::saturating_add);
        let most = |member: &Member| if member.is_measured { u64::MAX } else { limit / LIMIT_PER_NEW };
        let mut wanted: Vec<u64> =
            self.members.iter().map(|member| member.claim.wanted.min(most(member))).collect();
        let demand = wanted.iter().copied().fold(remnants, u64::saturating_add);
        let needed = if demand <= rates.ceiling.rate.of(limit) {
            demand
        } else {
            let level = Level::of(&mut wanted, rates.direct.wanted(limit), limit.saturating_sub(remnants));
            wanted.iter().map(|&want| level.direct(want)).fold(remnants, u64::saturating_add)
        };
        let hundredths = |part: u64, of: u64| (u128::from(part) * 100).div_ceil(u128::from(of).max(1)) as u64;
        let needed = hundredths(needed, limit);
        if !self.has_former() {
            return Ceiling::least(needed, needed);
        }
        // Tokens of the former process are not free before its end, and each new client needs some.
        let new = self.members.iter().filter(|member| !member.is_assigned).count() as u64;
        let of_new = new.min(LIMIT_PER_NEW).saturating_mul(rates.terms.burst / LIMIT_PER_NEW);
        let tokens = hundredths(self.in_force().burst.saturating_add(of_new), rates.terms.burst);
        Ceiling::least(needed, needed.max(tokens))
    }

    /// The target of each client, and the level of the division. `rate` is the pair of what requests to servers demand, and the rate to
    /// divide.
    fn targets(
        &self,
        seats: &Seats,
        peers: Option<&Peers>,
        (direct, rate): (u64, u64),
        settings: &Settings,
        now: Timestamp,
    ) -> (Vec<u64>, Level) {
        let takes_part =
            |index: usize, member: &Member| seats.has(index) && !member.is_served_elsewhere(settings, now);
        let members =
            || self.members.iter().enumerate().map(|(index, member)| (takes_part(index, member), member));
        let wanted_of = |member: &Member| peers.map_or(member.claim.wanted, |peers| peers.wanted(member));
        let mut wanted: Vec<u64> =
            members().filter(|(takes_part, _)| *takes_part).map(|(_, member)| wanted_of(member)).collect();
        let level = Level::of(&mut wanted, direct, rate);
        let target = |(takes_part, member): (bool, &Member)| match peers {
            _ if !takes_part => 0,
            None => level.share(member.claim.wanted),
            Some(peers) => level.share(peers.wanted(member)).min(peers.rate_max(member)),
        };
        (members().map(target).collect(), level)
    }

    /// Sum of the rates by which targets exceed what may be in force.
    fn growth(&self, targets: &[u64], mut peers: Option<&mut Peers>) -> u64 {
        self.members.iter().zip(targets).fold(0, |growth: u64, (member, target)| {
            let more = target.saturating_sub(member.counted.rate);
            if let Some(peers) = &mut peers {
                peers.note_growth(member, more);
            }
            growth.saturating_add(more)
        })
    }

    /// The clients that have a share at once. Moves on to the next clients when it is time.
    fn seats(
        &self,
        rates: &mut Rates,
        peers: Option<&Peers>,
        rate: u64,
        settings: &Settings,
        now: Timestamp,
    ) -> Seats {
        let members = self.members.len();
        let most = (rate / RATE_MIN).min(rates.burst.max(2) / 2).max(1);
        let seats = usize::try_from(most).unwrap_or(usize::MAX);
        if seats >= members {
            rates.turn = 0;
            return Seats(None);
        }
        let eligible = peers.map(|peers| peers.eligible(&self.members, seats));
        let among = eligible.as_ref().map_or(members, Vec::len).max(1);
        if now >= rates.turn_ends {
            rates.turn += seats;
            rates.turn_ends = now.saturating_add(settings.ttl * LIVES_PER_TURN);
        }
        rates.turn %= among;
        let mut has_seat = vec![false; members];
        for place in (rates.turn..).take(seats.min(among)) {
            let place = place % among;
            has_seat[eligible.as_ref().map_or(place, |eligible| eligible[place])] = true;
        }
        Seats(Some(has_seat))
    }
}

/// Whether each client, by index, has a share; none if all have.
struct Seats(Option<Vec<bool>>);

impl Seats {
    fn has(&self, index: usize) -> bool {
        self.0.as_ref().is_none_or(|has_seat| has_seat[index])
    }
}
