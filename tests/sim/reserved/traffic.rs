//! Random traffic: starts, their ends, which are lost, repeated or late, and requests that give hits back; with rule changes and
//! disruptions in between.

use super::rules::{Limit, MILLI, Rules};
use crate::{
    machine::Disruption,
    outcome::{DescriptorHits, Hits},
    rng::Rng,
};

/// Values of a key.
pub const VALUES: usize = 2;

const STEPS: u64 = 60;

#[derive(Clone, Debug)]
pub struct Step {
    /// Nanoseconds since the step before.
    pub after: u64,
    pub event: Event,
}

/// A request with a ticket is identified by the number of later requests with a ticket.
#[derive(Clone, Debug)]
pub enum Event {
    Request(Vec<DescriptorHits>),
    /// The actual cost; it may be the second end.
    End {
        back: usize,
        cost: u64,
    },
    /// The end gives this much of the estimate back.
    GiveBack {
        back: usize,
        hits: u64,
    },
    /// A renewal, or a peek of a renewal. The request may have ended before.
    Renew {
        back: usize,
        is_peek: bool,
    },
    /// Other rules come into force.
    Rules(Rules),
    /// Numbers of limits that nothing uses are freed.
    FreeLimits,
    Disruption(Disruption),
}

pub fn random(rng: &mut Rng, rules: &Rules) -> Vec<Step> {
    let gaps = [0, 0, MILLI, 7 * MILLI, 50 * MILLI, 120 * MILLI + 1, 900 * MILLI, 4_000 * MILLI];
    let after = |rng: &mut Rng| match rng.below(60) {
        // Up to the next hour, when numbers change.
        0 => rng.between(1, 3_600_000) * MILLI,
        _ => rng.pick(&gaps),
    };
    let (mut rules, has_reloads) = (rules.clone(), rng.once_in(2));
    let mut step = |rng: &mut Rng| {
        let after = after(rng);
        if has_reloads && rng.once_in(12) {
            rules = rules.with_one_limit_changed(rng, Limit::instead_of);
            return Step { after, event: Event::Rules(rules.clone()) };
        }
        Step { after, event: event(rng, &rules) }
    };
    (0..rng.between(5, STEPS)).map(|_| step(rng)).collect()
}

fn event(rng: &mut Rng, rules: &Rules) -> Event {
    let latest = rng.pick(&[1, 3, 6]);
    let back = rng.below(latest) as usize;
    match rng.below(44) {
        0..24 => Event::Request((0..rng.pick(&[1, 1, 2, 3])).map(|_| descriptor(rng, rules)).collect()),
        24..34 => Event::End { back, cost: rng.pick(&[0, 1, 2, 3, 7, 15]) },
        34 => Event::GiveBack { back, hits: rng.between(1, 4) },
        35 => Event::Disruption(Disruption::Sweep),
        36 | 37 => Event::Disruption(Disruption::Snapshot),
        38 => Event::Disruption(Disruption::Restart),
        39..42 => Event::Renew { back, is_peek: rng.once_in(5) },
        42 => Event::FreeLimits,
        _ => Event::Disruption(Disruption::Crash),
    }
}

fn descriptor(rng: &mut Rng, rules: &Rules) -> DescriptorHits {
    let hits = match rng.below(8) {
        0 => Hits::Peek,
        1 | 2 => Hits::GiveBack(rng.between(1, 4)),
        _ => Hits::Take(rng.pick(&[1, 1, 2, 5])),
    };
    let (rule, value) = (rng.below(rules.0.len() as u64) as usize, rng.below(VALUES as u64) as usize);
    DescriptorHits { rule, value, hits, own: None }
}
