//! The share of one client in a division, limited by what is free.

use super::{
    Push, Settings,
    assignment::{Assignment, Fill},
    member::{Member, Share},
    peers::Peers,
    rates::Rates,
};
use tidegate_core::limit::Timestamp;

/// Reciprocal of the relative change of a rate above which a changed share is sent ahead of its renewal.
const RATE_PER_STEP: u64 = 128;

/// Reciprocal of the relative excess over its demand above which a client grows only when its share is renewed.
const WANTED_PER_SPARE: u64 = 16;

/// What is free for shares that grow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Means {
    /// Sum of the rates by which shares are to exceed what may be in force.
    pub(super) growth: u64,
    /// The rate that is free.
    pub(super) free: u64,
    /// Tokens that are free.
    pub(super) free_tokens: u64,
    /// The number of clients among which bursts are divided.
    pub(super) clients: usize,
    /// Whether assignments of a former process may be in force.
    pub(super) has_former: bool,
    /// The most tokens of a client without an assignment, while assignments of a former process are in force: others need some too.
    pub(super) tokens_of_new: u32,
    /// Whether shares above their target shrink at once.
    pub(super) is_short: bool,
    pub(super) has_few_tokens: bool,
    /// Whether a server's part of a bucket is divided.
    pub(super) is_in_part: bool,
}

impl Means {
    /// Whether a client should keep its share of a former process, because it would be sent less. New clients have no such share.
    pub(super) fn waits_for_former(&self, member: &Member, target: u64, peers: Option<&Peers>) -> bool {
        let needed = if member.is_bare { 1 } else { member.claim.wanted };
        let is_short =
            || self.tokens_of_new == 0 || self.rate(member, target, false, peers) < needed.min(target).max(1);
        self.has_former && !member.is_assigned && is_short()
    }

    /// The rate of a client with this target.
    fn rate(&self, member: &Member, target: u64, is_due: bool, peers: Option<&Peers>) -> u64 {
        let rate = member.share.rate;
        let is_short = self.is_short || peers.is_some_and(|peers| peers.is_short(member));
        // A share that is sent anyway may change by any difference.
        let step = if is_due { 0 } else { rate / RATE_PER_STEP };
        if self.has_former && target <= rate {
            // Other clients may have more in force than this client would give up for them. Only what it does not demand is of use to them.
            let kept = target.max(member.claim.wanted).min(rate);
            if is_short && !member.is_pending() && rate - kept > step { kept } else { rate }
        } else if target > rate
            && !is_due
            && rate > member.claim.wanted.saturating_add(member.claim.wanted / WANTED_PER_SPARE)
        {
            // The client has more than it demands, and reports before it can need the rest.
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

    /// The tokens of a client with this rate. `each` is the number that every client with the rate is to have.
    fn tokens(&mut self, member: &Member, rate: u64, each: u32, peers: Option<&Peers>) -> u32 {
        let each = peers.map_or(each, |peers| each.min(peers.tokens_max(member)));
        let each = if self.has_former && !member.is_assigned { each.min(self.tokens_of_new) } else { each };
        match member.share.tokens {
            _ if rate == 0 => 0,
            // Each change of tokens has a cost.
            tokens if tokens > each + each / if self.has_few_tokens { 8 } else { 2 } => each,
            tokens if tokens > 0 && each < self.larger(tokens) => tokens,
            tokens => {
                let more = u64::from(each.saturating_sub(member.counted.tokens)).min(self.free_tokens);
                let more = peers.map_or(more, |peers| more.min(peers.free_tokens(member)));
                self.free_tokens -= more;
                // All that is free, or all that the client may have in force already.
                (member.counted.tokens + more as u32).min(each).max(tokens)
            }
        }
    }

    /// The least number of tokens that is worth a change to more. The burst of a part grows little by little, as hits drain that other
    /// servers gave up.
    fn larger(&self, tokens: u32) -> u32 {
        tokens.saturating_add(if self.is_in_part { tokens.div_ceil(4) } else { tokens })
    }
}

/// Sends a client a share as near to its target as what is free allows, if the share has changed or its renewal is due. Returns whether the
/// client has what it needs.
pub(super) fn assign(
    member: &mut Member,
    target: u64,
    (rates, means): (&Rates, &mut Means),
    peers: Option<&Peers>,
    settings: &Settings,
    now: Timestamp,
    pushes: &mut Vec<Push>,
) -> bool {
    let is_due = member.is_due(settings, now);
    let fill = Fill::at_most(means.rate(member, target, is_due, peers));
    let rate = fill.map_or(0, Fill::rate);
    let each = rates.tokens_of(rate, means.clients);
    let share = match means.tokens(member, rate, each, peers) {
        0 => Share::default(),
        tokens => Share { rate, tokens },
    };
    let is_changed = share != member.share || !member.is_assigned;
    if is_changed || is_due {
        member.send(share, settings, now);
        let assignment = assignment(member, fill);
        let (stream, place, is_renewal) = (member.stream, member.place, !is_changed);
        pushes.push(Push { stream, place, assignment, is_renewal });
    }
    let (needed, step) = (target.min(member.claim.wanted), share.rate / RATE_PER_STEP);
    share.rate + step >= needed || Fill::at_most(needed).is_none_or(|whole| share.rate + step >= whole.rate())
}

/// The assignment of a share.
fn assignment(member: &Member, fill: Option<Fill>) -> Assignment {
    match fill.filter(|_| member.share.tokens > 0) {
        Some(fill) => fill.assignment(member.share.tokens, member.salt),
        None => Assignment::DenyAll,
    }
}
