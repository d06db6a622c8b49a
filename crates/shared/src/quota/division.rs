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

/// What one division has to give to shares that grow.
struct Means {
    /// Rates that shares are to get beyond what may be in force.
    growth: u64,
    /// The rate that is free.
    free: u64,
    /// Tokens that are free.
    free_tokens: u64,
    is_learning: bool,
    /// Whether shares that are larger than they are to be shrink at once.
    is_short: bool,
    has_few_tokens: bool,
    /// Whether it is the division of a part that this server has of a bucket.
    is_in_part: bool,
}

impl Means {
    /// The rate of a client whose rate is to be `target`.
    fn rate(&self, member: &Member, target: u64, is_due: bool, peers: Option<&Peers>) -> u64 {
        let rate = member.share.rate;
        let is_short = self.is_short || peers.is_some_and(|peers| peers.is_short(member));
        // A share that is sent anyway changes by any difference.
        let step = if is_due { 0 } else { rate / RATE_PER_STEP };
        if self.is_learning {
            // Nothing is free: all there is may be in force with clients of the former process.
            rate
        } else if target > rate {
            let more = target.saturating_sub(member.counted.rate);
            let part = if self.growth <= self.free {
                more
            } else {
                (u128::from(more) * u128::from(self.free) / u128::from(self.growth)) as u64
            };
            let part = peers.map_or(part, |peers| part.min(peers.free_rate(member)));
            let grown = target.min(member.counted.rate + part);
            if grown - rate.min(grown) > step { grown.max(rate) } else { rate }
        } else if is_short && !member.is_pending() && rate - target > step {
            target
        } else {
            rate
        }
    }

    /// The tokens of a client with this rate, of which `each` with that rate is to have so many.
    fn tokens(&mut self, member: &Member, rate: u64, each: u32, peers: Option<&Peers>) -> u32 {
        let each = peers.map_or(each, |peers| each.min(peers.tokens_max(member)));
        match member.share.tokens {
            _ if rate == 0 => 0,
            // Each change has to be paid for.
            tokens if tokens > each + each / if self.has_few_tokens { 8 } else { 2 } => each,
            tokens if tokens > 0 && each < self.larger(tokens) => tokens,
            tokens => {
                let more = u64::from(each.saturating_sub(member.counted.tokens)).min(self.free_tokens);
                let more = peers.map_or(more, |peers| more.min(peers.free_tokens(member)));
                self.free_tokens -= more;
                // All that is free, or all that it may have in force already.
                (member.counted.tokens + more as u32).min(each).max(tokens)
            }
        }
    }

    /// Tokens that are worth a change to more. The burst of a part grows little by little, as hits drain that other servers gave up.
    fn larger(&self, tokens: u32) -> u32 {
        tokens.saturating_add(if self.is_in_part { tokens.div_ceil(4) } else { tokens })
    }
}

/// The assignment of a share.
fn action(member: &Member, fill: Option<Fill>, settings: &Settings) -> Action {
    let ttl = settings.ttl;
    match fill.filter(|_| member.share.tokens > 0) {
        Some(fill) => fill.action(member.share.tokens, member.salt, ttl),
        None => Action::DenyAll { ttl },
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
        let direct = rates.direct.wanted(divisible);
        let rate = (direct, divisible.saturating_sub(remnants));
        let (targets, level) = self.targets(&seats, peers.as_ref(), rate, settings, now);
        let targeted = targets.iter().copied().fold(remnants, u64::saturating_add);
        let desired = (targeted + level.unclaimed / 2).max(in_force).min(divisible.max(in_force));
        counter(&mut |algorithm, leased| {
            rates.adjust(algorithm, leased, desired, (in_force, tokens), settings, now)
        });

        let growth = self.growth(&targets, peers.as_mut());
        let clients = peers.as_ref().map_or(self.members.len(), Peers::clients) + self.remnants.len();
        let free = rates.rate.saturating_sub(in_force);
        let free_tokens = rates.burst.saturating_sub(tokens).saturating_sub(rates.debt.div_ceil(1_000));
        let mut means = Means {
            growth,
            free,
            free_tokens,
            is_learning,
            // What no client demands stays where it is, except for a part that is kept free for new clients.
            is_short: growth > free
                || free < level.unclaimed / 4
                || in_force + level.direct(direct) > divisible,
            // Those that are to come find nothing.
            has_few_tokens: free_tokens < rates.tokens_of_each(clients).into(),
            is_in_part: self.part.is_some(),
        };
        for (member, target) in self.members.iter_mut().zip(targets) {
            if is_learning && !member.is_assigned || member.is_served_elsewhere(settings, now) {
                continue;
            }
            let (before, is_due) = (member.counted, member.is_due(settings, now));
            let fill = Fill::at_most(means.rate(member, target, is_due, peers.as_ref()));
            let rate = fill.map_or(0, Fill::rate);
            let each = rates.tokens_of(rate, clients);
            let share = match means.tokens(member, rate, each, peers.as_ref()) {
                0 => Share::default(),
                tokens => Share { rate, tokens },
            };
            let is_changed = share != member.share || !member.is_assigned;
            if is_changed || is_due {
                member.send(share, settings, now);
                let action = action(member, fill, settings);
                let (stream, bucket, is_renewal) = (member.stream, self.key, !is_changed);
                pushes.push(Push { stream, bucket, action, is_renewal });
            }
            if let Some(peers) = &mut peers {
                peers.note(member, before);
            }
        }
        rates.in_force = self.in_force().0;
    }

    /// The rate that each client is to have of a rate, a part of which requests to servers demand, and the level of the division.
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

    /// Rates that clients are to get beyond what may be in force.
    fn growth(&self, targets: &[u64], mut peers: Option<&mut Peers>) -> u64 {
        self.members.iter().zip(targets).fold(0, |growth: u64, (member, target)| {
            let more = target.saturating_sub(member.counted.rate);
            if let Some(peers) = &mut peers {
                peers.note_growth(member, more);
            }
            growth.saturating_add(more)
        })
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
