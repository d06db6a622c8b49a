//! Parts of a world: nodes, rules, demand, network and faults.

use super::{super::Settings, fault::Fault, rng::Rng, rule::Rule};

pub(super) const MILLIS: u64 = 1_000_000;

/// Random parameters of a world. Times are in nanoseconds; `once_in` counts are chances, zero means never.
#[derive(Clone, Debug)]
pub(super) struct Conditions {
    pub(super) settings: Settings,
    pub(super) rules: Vec<Rule>,
    /// Mean time between two requests of each node.
    pub(super) gaps: Vec<u64>,
    /// The most hits of a request.
    pub(super) hits_max: u64,
    pub(super) length: u64,
    /// Time between two polls of a node.
    pub(super) poll_every: u64,
    pub(super) network: Network,
    /// Drift of a node's clock against the store's, in parts per million, either way.
    pub(super) drift_ppm_max: u64,
    /// Chance after a request that its node stops for a while, or is replaced.
    pub(super) pause_once_in: u64,
    pub(super) crash_once_in: u64,
    /// Chance that a request gives hits back, or resets a counter.
    pub(super) give_back_once_in: u64,
    pub(super) reset_once_in: u64,
    /// Mean time between two failovers or restarts of the store; zero means none.
    pub(super) failover_gap: u64,
    /// The most acknowledged writes that a failover loses; zero is a restart with all of them.
    pub(super) writes_lost_max: u64,
    /// The most time for which a thread is suspended between a reading of the node's clock and its use.
    pub(super) stale_max: u64,
    /// A planted fault.
    pub(super) fault: Option<Fault>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Network {
    pub(super) delay: (u64, u64),
    pub(super) slow_once_in: u64,
    pub(super) slow_delay_max: u64,
    pub(super) loss_once_in: u64,
    pub(super) duplicate_once_in: u64,
}

impl Conditions {
    /// With rules of these kinds. `loses_writes`: failovers may lose writes that the store acknowledged.
    pub(super) fn random(rng: &mut Rng, kinds: &[u64], loses_writes: bool) -> Self {
        let rules: Vec<Rule> = (0..rng.between(1, 2)).map(|_| Rule::random(rng, kinds)).collect();
        // If a lost write opened a window from the first hit, the exact limiter's window is not known any more.
        let loses_writes = loses_writes && !rules.iter().any(Rule::is_from_first_hit);
        let nodes = rng.between(1, 8);
        let gap = rng.pick(&[1, 2, 4]) * MILLIS * nodes;
        let gaps = (0..nodes).map(|_| gap * rng.pick(&[1, 1, 1, 6])).collect();
        let rarely = |rng: &mut Rng, times: &[u64]| if rng.once_in(2) { 0 } else { rng.pick(times) };
        let grant_min = rng.pick(&[1, 1, 1, 3]);
        Self {
            settings: Settings { grant_min, limit_min: 0, ..Settings::default() },
            rules,
            gaps,
            hits_max: rng.pick(&[1, 1, 2, 4]),
            length: rng.between(600, 1_600) * MILLIS,
            poll_every: rng.pick(&[3, 6, 12, 30]) * MILLIS,
            network: Network {
                delay: (50_000, rng.pick(&[100_000, 2_000_000, 10_000_000])),
                slow_once_in: rarely(rng, &[3, 5, 20]),
                slow_delay_max: rng.pick(&[100, 250, 500]) * MILLIS,
                loss_once_in: rarely(rng, &[3, 10, 30]),
                duplicate_once_in: rarely(rng, &[2, 5, 20]),
            },
            drift_ppm_max: rng.pick(&[0, 100, 900]),
            pause_once_in: rarely(rng, &[20, 60]),
            crash_once_in: rarely(rng, &[40, 100]),
            give_back_once_in: rarely(rng, &[8, 40]),
            reset_once_in: rarely(rng, &[100]),
            failover_gap: if loses_writes || rng.once_in(3) { rng.between(200, 800) * MILLIS } else { 0 },
            writes_lost_max: if loses_writes { rng.pick(&[5, 20, 80]) } else { 0 },
            stale_max: rng.pick(&[0, 0, 0, 300]) * MILLIS,
            fault: None,
        }
    }
}
