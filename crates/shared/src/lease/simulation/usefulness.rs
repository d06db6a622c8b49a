//! Usefulness: the hits that leases admit, as a part of the hits of one exact limiter, in any window of ten lease lengths.

use super::{
    super::Settings,
    conditions::{Conditions, MILLIS, Network},
    rng::Rng,
    rule::{Rule, START},
    world::World,
};
use tidegate_core::{algorithm::State, limit::Timestamp};

/// Hits per second.
const LIMIT: u32 = 8_000;

const SECOND: u64 = 1_000 * MILLIS;

/// Demand of each of eight nodes, in thousandths of the total demand.
const EVEN: [u64; 8] = [125; 8];
const UNEVEN: [u64; 8] = [900, 15, 15, 14, 14, 14, 14, 14];

fn conditions(rule: Rule, shares: [u64; 8], demand_per_cent: u64) -> Conditions {
    let per_second = u64::from(LIMIT) * demand_per_cent / 100;
    with_gaps(rule, shares.map(|share| SECOND * 1_000 / (per_second * share)).to_vec())
}

/// Nodes with these mean times between two requests, on a good network.
fn with_gaps(rule: Rule, gaps: Vec<u64>) -> Conditions {
    Conditions {
        settings: Settings::default(),
        rules: vec![rule],
        gaps,
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
        stale_max: 0,
        fault: None,
    }
}

/// Admissions of one limiter that gets all requests without delay, after the learning phase.
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

/// Two servers get 10,000 requests per second each for one counter.
#[test]
fn of_a_flooded_counter_the_store_decides_few_requests() {
    for limit in [100, 499, 1_000, 10_000] {
        for rule in Rule::each(limit, SECOND) {
            let conditions =
                Conditions { length: 2 * SECOND, ..with_gaps(rule.clone(), vec![SECOND / 10_000; 2]) };
            let mut world = World::new(&conditions, Rng::of_seed(3));
            world.run();
            // During the lease length of learning before, the store is called for each request.
            let learning = 200 * MILLIS;
            let from = START + learning;
            let after: Vec<_> = world.requests.iter().copied().filter(|&(at, _)| at > from).collect();
            let before = (world.requests.len() - after.len()) as u64;
            let (admitted, possible) =
                (world.journal.admissions().count() as u64, exact(&rule, &after).len() as u64);
            let (by_store, all) = (world.tally.exact_requests.saturating_sub(before), after.len() as u64);
            println!(
                "{} {limit}/s: {}.{} % by the store, admitted {admitted} of {possible}",
                rule.algorithm.name(),
                by_store * 100 / all,
                by_store * 1_000 / all % 10,
            );
            assert!(by_store * 20 <= all, "{by_store} of {all} decisions by the store");
            assert!(admitted * 100 >= possible * 97, "{admitted} of {possible}");
        }
    }
}
