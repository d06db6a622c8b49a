//! The division of a rate among the clients of a bucket.

use super::{
    Push, Settings,
    action::{Action, Fill},
    allocation::Level,
    bucket::Bucket,
    member::{Member, Remnant, Share},
    peers::Peers,
    rates::Rates,
    terms::RATE_MIN,
};
use tidegate_core::{
    algorithm::{Algorithm, Leased},
    limit::Timestamp,
};

/// The most time for which those that get nothing wait for those that have a share, in lives of an assignment.
const LIVES_PER_TURN: u32 = 4;

/// The part of a rate by which it differs at least from one that is sent for the difference alone.
const RATE_PER_STEP: u64 = 128;

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
        rates.drain(&mut self.debts, now);
        for Remnant { peer, tokens, .. } in self.remnants.extract_if(.., |remnant| remnant.end <= now) {
            rates.give_up(&mut self.debts, peer, tokens, now);
        }
        for member in &mut self.members {
            let tokens = member.expire(settings, now);
            rates.give_up(&mut self.debts, member.peer, tokens, now);
        }
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
        let mut peers = Peers::of(&self.members, &self.remnants, &self.debts, rates, self.share_max);
        let seats = self.seats(rates, peers.as_ref(), divisible.saturating_sub(remnants), settings, now);
        let wanted_of =
            |member: &Member| peers.as_ref().map_or(member.claim.wanted, |peers| peers.wanted(member));
        let takes_part =
            |index: usize, member: &Member| seats.has(index) && !member.is_served_elsewhere(settings, now);
        let seated = self.members.iter().enumerate().filter(|(index, member)| takes_part(*index, member));
        let mut wanted: Vec<u64> = seated.map(|(_, member)| wanted_of(member)).collect();
        let direct = rates.direct.wanted(divisible);
        let level = Level::of(&mut wanted, direct, divisible.saturating_sub(remnants));
        let target = |peers: Option<&Peers>, index: usize, member: &Member| match peers {
            _ if !takes_part(index, member) => 0,
            None => level.share(member.claim.wanted),
            Some(peers) => level.share(peers.wanted(member)).min(peers.rate_max(member)),
        };

        let targets = self.members.iter().enumerate();
        let targets = targets
            .map(|(index, member)| target(peers.as_ref(), index, member))
            .fold(remnants, u64::saturating_add);
        let desired = (targets + level.unclaimed / 2).max(in_force).min(divisible.max(in_force));
        counter(&mut |algorithm, leased| {
            rates.adjust(algorithm, leased, desired, (in_force, tokens), settings, now)
        });

        let mut growth: u64 = 0;
        for (index, member) in self.members.iter().enumerate() {
            let more = target(peers.as_ref(), index, member).saturating_sub(member.counted.rate);
            growth = growth.saturating_add(more);
            if let Some(peers) = &mut peers {
                peers.note_growth(member, more);
            }
        }
        let free = rates.rate.saturating_sub(in_force);
        let mut free_tokens = rates.burst.saturating_sub(tokens).saturating_sub(rates.debt.div_ceil(1_000));
        // What no client demands stays where it is, except for a part that is kept free for new clients.
        let is_short =
            growth > free || free < level.unclaimed / 4 || in_force + level.direct(direct) > divisible;
        let clients = peers.as_ref().map_or(self.members.len(), Peers::clients) + self.remnants.len();
        // Those that are to come find nothing.
        let has_few_tokens = free_tokens < rates.tokens_of_each(clients).into();
        // The burst of a part grows little by little, as hits drain that other servers gave up.
        let is_in_part = self.part.is_some();
        let larger =
            |tokens: u32| tokens.saturating_add(if is_in_part { tokens.div_ceil(4) } else { tokens });
        for (index, member) in self.members.iter_mut().enumerate() {
            if is_learning && !member.is_assigned {
                continue;
            }
            if member.is_served_elsewhere(settings, now) {
                continue;
            }
            let target = target(peers.as_ref(), index, member);
            let (mut rate, before) = (member.share.rate, member.counted);
            let is_short = is_short || peers.as_ref().is_some_and(|peers| peers.is_short(member));
            // A share that is sent anyway changes by any difference.
            let is_due = member.is_due(settings, now);
            let step = if is_due { 0 } else { rate / RATE_PER_STEP };
            if is_learning {
                // Nothing is free: all there is may be in force with clients of the former process.
            } else if target > rate {
                let more = target.saturating_sub(member.counted.rate);
                let part = if growth <= free {
                    more
                } else {
                    (u128::from(more) * u128::from(free) / u128::from(growth)) as u64
                };
                let part = peers.as_ref().map_or(part, |peers| part.min(peers.free_rate(member)));
                let grown = target.min(member.counted.rate + part);
                rate = if grown - rate.min(grown) > step { grown.max(rate) } else { rate };
            } else if is_short && !member.is_pending() && rate - target > step {
                rate = target;
            }
            let fill = Fill::at_most(rate);
            let mut share = Share { rate: fill.map_or(0, Fill::rate), tokens: member.share.tokens };
            let each = rates.tokens_of(share.rate, clients);
            let each = peers.as_ref().map_or(each, |peers| each.min(peers.tokens_max(member)));
            share.tokens = match member.share.tokens {
                _ if share.rate == 0 => 0,
                // Each change has to be paid for.
                tokens if tokens > each + each / if has_few_tokens { 8 } else { 2 } => each,
                tokens if tokens > 0 && each < larger(tokens) => tokens,
                tokens => {
                    let more = u64::from(each.saturating_sub(member.counted.tokens)).min(free_tokens);
                    let more = peers.as_ref().map_or(more, |peers| more.min(peers.free_tokens(member)));
                    free_tokens -= more;
                    // All that is free, or all that it may have in force already.
                    (member.counted.tokens + more as u32).min(each).max(tokens)
                }
            };
            if share.tokens == 0 {
                share = Share::default();
            }
            let is_changed = share != member.share || !member.is_assigned;
            if is_changed || is_due {
                member.send(share, settings, now);
                let ttl = settings.ttl;
                let action = match fill.filter(|_| share.tokens > 0) {
                    Some(fill) => fill.action(share.tokens, member.salt, ttl),
                    None => Action::DenyAll { ttl },
                };
                let (stream, bucket, is_renewal) = (member.stream, self.key, !is_changed);
                pushes.push(Push { stream, bucket, action, is_renewal });
            }
            if let Some(peers) = &mut peers {
                peers.note(member, before);
            }
        }
        rates.in_force = self.in_force().0;
    }

    /// The clients that can have a share at once. Takes the next turn if it is time.
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

/// The clients that can have a share, by index; none if all can.
struct Seats(Option<Vec<bool>>);

impl Seats {
    fn has(&self, index: usize) -> bool {
        self.0.as_ref().is_none_or(|has_seat| has_seat[index])
    }
}
