//! Usefulness: the part of the hits of one exact limiter that leases admit, in any window of ten lease lengths.

use super::{
    super::Settings,
    conditions::{Conditions, MILLIS, Network},
    rng::Rng,
    rule::{Rule, START},
    world::World,
};
use crate::{algorithm::State, limit::Timestamp};

/// Hits per second.
const LIMIT: u32 = 8_000;

const SECOND: u64 = 1_000 * MILLIS;

/// Demand of each of eight nodes, in hundredths of that of all.
const EVEN: [u64; 8] = [125; 8];
const UNEVEN: [u64; 8] = [900, 15, 15, 14, 14, 14, 14, 14];

fn conditions(rule: Rule, shares: [u64; 8], demand_per_cent: u64) -> Conditions {
    let per_second = u64::from(LIMIT) * demand_per_cent / 100;
    Conditions {
        settings: Settings::default(),
        rules: vec![rule],
        gaps: shares.map(|share| SECOND * 1_000 / (per_second * share)).to_vec(),
        hits_max: 1,
        length: 4 * SECOND,
        poll_every: MILLIS,
        network: Network {
            delay: (200_000, 400_000),
            slow_once_in: 0,
            slow_delay_max: 0,
            loss_once_in: 0,
            duplicate_once_in: 0,
        },
        drift_ppm_max: 0,
        pause_once_in: 0,
        crash_once_in: 0,
        give_back_once_in: 0,
        reset_once_in: 0,
        failover_gap: 0,
        writes_lost_max: 0,
    }
}

/// Admissions of one limiter that gets all requests after the learning phase at once.
fn exact(rule: &Rule, requests: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut state = State::EMPTY;
    let mut admitted = Vec::new();
    for &(at, hits) in requests {
        let now = Timestamp::from_nanos(at);
        if rule.algorithm.remaining(&state, now) >= hits {
            state = rule.algorithm.add(state, hits, now);
            admitted.push((at, hits));
        }
    }
    admitted
}

/// The least ratio of hits, in parts per thousand, in any window of ten lease lengths.
fn least_ratio(leased: &[(u64, u64)], exact: &[(u64, u64)], end: u64) -> u64 {
    let width = 2 * SECOND;
    let within = |list: &[(u64, u64)], from: u64| -> u64 {
        list.iter().filter(|(at, _)| (from..from + width).contains(at)).map(|(_, hits)| hits).sum()
    };
    let starts = (START + 200 * MILLIS..=end - width).step_by(100 * MILLIS as usize);
    let ratio = |from| (within(leased, from) * 1_000).checked_div(within(exact, from));
    starts.filter_map(ratio).min().expect("admissions")
}

#[test]
fn leases_admit_97_per_cent_of_what_one_limiter_would() {
    let mut least = 1_000;
    for rule in Rule::each(LIMIT, SECOND) {
        for (name, shares) in [("even", EVEN), ("90:10", UNEVEN)] {
            for demand in [80, 98, 120, 250] {
                let conditions = conditions(rule.clone(), shares, demand);
                let mut world = World::new(&conditions, Rng::of_seed(demand));
                world.run();
                let leased: Vec<_> = world.journal.admissions().collect();
                let from = START + 200 * MILLIS;
                let requests: Vec<_> = world.requests.iter().copied().filter(|&(at, _)| at > from).collect();
                let exact = exact(&rule, &requests);
                let ratio = least_ratio(&leased, &exact, START + conditions.length);
                println!(
                    "{} {name}, demand {demand} %: {}.{} % admitted; {:?}",
                    rule.algorithm.name(),
                    ratio / 10,
                    ratio % 10,
                    world.tally,
                );
                least = least.min(ratio);
            }
        }
    }
    assert!(least >= 970, "{} per thousand", least);
}
