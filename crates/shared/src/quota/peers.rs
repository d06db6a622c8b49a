//! What the clients of one peer may have of a bucket together, if the rules bound it. False demand, many streams, streams that are opened
//! again and again, and demand that changes with every report take no more than this part from others.
//!
//! Invariant: the rates that may be in force of a peer, and the tokens that its clients have or gave up, are no more than its part, unless
//! the part was larger when they were assigned.

use super::{
    allocation::Level,
    debts::Debts,
    member::{Member, Remnant, Share},
    rates::Rates,
};
use crate::PeerId;
use foldhash::fast::RandomState;
use hashbrown::HashMap;
use tidegate_core::rules::Percent;

/// The parts of peers in a rate, and the most that each may have.
#[derive(Debug)]
pub(super) struct Peers {
    rate_max: u64,
    tokens_max: u64,
    share_max: Percent,
    clients: usize,
    peers: HashMap<PeerId, PeerPart, RandomState>,
}

#[derive(Clone, Copy, Debug)]
struct PeerPart {
    /// Rates and tokens that may be in force.
    rate: u64,
    tokens: u64,
    /// The rate of former clients.
    gone: u64,
    clients: usize,
    /// Division of the part among its clients.
    level: Level,
    /// Sum of the rates by which its clients' targets exceed what may be in force.
    growth: u64,
}

impl Default for PeerPart {
    fn default() -> Self {
        Self { rate: 0, tokens: 0, gone: 0, clients: 0, level: Level::ALL, growth: 0 }
    }
}

impl Peers {
    /// The peers of a bucket. None if each peer may have all of it.
    pub(super) fn of(
        members: &[Member],
        remnants: &[Remnant],
        debts: &Debts,
        rates: &Rates,
        share_max: Percent,
    ) -> Option<Self> {
        if share_max == Percent::ALL {
            return None;
        }
        let mut peers: HashMap<PeerId, PeerPart, RandomState> = HashMap::default();
        for member in members.iter().filter(|member| member.peer != PeerId::NONE) {
            let part = peers.entry(member.peer).or_default();
            part.rate = part.rate.saturating_add(member.counted.rate);
            part.tokens = part.tokens.saturating_add(member.counted.tokens.into());
            part.clients += 1;
        }
        for remnant in remnants.iter().filter(|remnant| remnant.peer != PeerId::NONE) {
            let part = peers.entry(remnant.peer).or_default();
            part.rate = part.rate.saturating_add(remnant.rate);
            part.gone = part.gone.saturating_add(remnant.rate);
            part.tokens = part.tokens.saturating_add(remnant.tokens);
        }
        for (peer, debt) in debts.iter() {
            let part = peers.entry(peer).or_default();
            part.tokens = part.tokens.saturating_add(debt.div_ceil(1_000));
        }
        let (rate_max, tokens_max) = (share_max.of(rates.of_limit()), share_max.of(rates.burst).max(1));
        let clients = members.len();
        let mut peers = Self { rate_max, tokens_max, share_max, clients, peers };
        peers.divide(members);
        Some(peers)
    }

    /// Divides the part of each peer among its clients.
    fn divide(&mut self, members: &[Member]) {
        let mut wanted: HashMap<PeerId, Vec<u64>, RandomState> = HashMap::default();
        for member in members {
            wanted.entry(member.peer).or_default().push(member.claim.wanted);
        }
        for (peer, mut wanted) in wanted {
            if let Some(part) = self.peers.get_mut(&peer) {
                part.level = Level::of(&mut wanted, 0, self.rate_max.saturating_sub(part.gone));
            }
        }
    }

    fn part(&self, member: &Member) -> PeerPart {
        self.peers.get(&member.peer).copied().unwrap_or_default()
    }

    /// The part of a client's demand that counts.
    pub(super) fn wanted(&self, member: &Member) -> u64 {
        self.part(member).level.direct(member.claim.wanted)
    }

    /// The highest rate of a client.
    pub(super) fn rate_max(&self, member: &Member) -> u64 {
        self.part(member).level.share(member.claim.wanted).min(self.rate_max)
    }

    /// Adds the rate by which a client's target exceeds what it may have in force.
    pub(super) fn note_growth(&mut self, member: &Member, growth: u64) {
        if let Some(part) = self.peers.get_mut(&member.peer) {
            part.growth = part.growth.saturating_add(growth);
        }
    }

    /// Whether the clients of its peer would together exceed the peer's part.
    pub(super) fn is_short(&self, member: &Member) -> bool {
        let part = self.part(member);
        part.rate.saturating_add(part.growth) > self.rate_max
    }

    /// By how much the rate of a client may grow.
    pub(super) fn free_rate(&self, member: &Member) -> u64 {
        self.rate_max.saturating_sub(self.part(member).rate)
    }

    /// By how much the tokens of a client may grow.
    pub(super) fn free_tokens(&self, member: &Member) -> u64 {
        self.tokens_max.saturating_sub(self.part(member).tokens)
    }

    /// The most tokens of a client.
    pub(super) fn tokens_max(&self, member: &Member) -> u32 {
        let each = self.tokens_max / self.part(member).clients.max(1) as u64;
        u32::try_from(each).unwrap_or(u32::MAX).max(1)
    }

    /// Notes that a client may have more in force than before.
    pub(super) fn note(&mut self, member: &Member, before: Share) {
        if let Some(part) = self.peers.get_mut(&member.peer) {
            part.rate = part.rate.saturating_add(member.counted.rate - before.rate);
            part.tokens = part.tokens.saturating_add(u64::from(member.counted.tokens - before.tokens));
        }
    }

    /// The number of clients among which bursts are divided. The clients of a peer count for at most its part beside the others.
    pub(super) fn clients(&self) -> usize {
        let most = |part: &PeerPart| {
            let percent = usize::from(self.share_max.get());
            let of_others = (self.clients - part.clients) * percent / (100 - percent).max(1);
            part.clients.min(of_others.max(1))
        };
        self.peers.values().map(most).sum()
    }

    /// The clients that can have a share if only `seats` clients can have one at once. A peer has at most its part of them.
    pub(super) fn eligible(&self, members: &[Member], seats: usize) -> Vec<usize> {
        let most = usize::try_from(self.share_max.of(seats as u64)).unwrap_or(usize::MAX).max(1);
        let mut of_peers: HashMap<PeerId, usize, RandomState> = HashMap::default();
        let mut is_eligible = |member: &Member| {
            let count = of_peers.entry(member.peer).or_insert(0);
            *count += 1;
            *count <= most
        };
        (0..members.len()).filter(|index| is_eligible(&members[*index])).collect()
    }

    /// What a client may get without its peer exceeding its part.
    pub(super) fn free(&self, member: &Member) -> Share {
        let tokens = u32::try_from(self.free_tokens(member)).unwrap_or(u32::MAX);
        Share { rate: self.free_rate(member), tokens }
    }
}
