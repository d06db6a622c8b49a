//! Clients that send false reports. They admit what they are assigned, and as many requests as they can of that.

use super::{
    super::Usage,
    client::{MILLIS, SECOND},
    conditions::Conditions,
    fault::Fault,
    limit::Limit,
    usefulness::calm,
    world::World,
};
use crate::lease::simulation::rng::Rng;
use tidegate_core::rules::Percent;

/// Time between two reports of such a client.
pub(super) const HOSTILE_INTERVAL: u64 = 600 * MILLIS;

/// The way in which reports are false.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hostility {
    /// Demand is as high as can be.
    Demand,
    /// Demand alternates between none and as high as can be.
    Flaps,
    /// Many more requests are reported as admitted than were.
    Totals,
    /// Admitted requests are not reported, and more are demanded.
    Silent,
    /// Each report is on a stream of its own, with demand as high as can be.
    Reconnects,
}

pub(super) const ALL: [Hostility; 5] =
    [Hostility::Demand, Hostility::Flaps, Hostility::Totals, Hostility::Silent, Hostility::Reconnects];

impl Hostility {
    /// The report to send now instead of the true one.
    pub(super) fn report(self, usage: Usage, now: u64) -> Usage {
        let most = 1_000_000_000;
        match self {
            Self::Demand | Self::Reconnects => Usage { denied: most, ..usage },
            Self::Flaps if (now / (4 * SECOND)).is_multiple_of(2) => Usage::default(),
            Self::Flaps => Usage { denied: most, ..usage },
            Self::Totals => Usage { allowed: u64::MAX, denied: most, ..usage },
            Self::Silent => Usage { allowed: 0, denied: most, ..usage },
        }
    }
}

/// Four clients that demand more than there is, and `hostile` clients of one peer.
fn beside(hostility: Option<Hostility>, hostile: usize, limit: Limit, share_max: u32) -> World {
    let share_max = Percent::new(share_max).expect("a percentage");
    let clients = hostile + 4;
    let calm =
        Conditions { limit, share_max, hostile: (hostility, hostile), ..calm(clients, clients, 6.0, true) };
    let mut world = World::new(calm, Rng::of_seed(hostile as u64));
    let demand = 1.5 * world.conditions.limit.rate;
    world.clients.iter_mut().for_each(|client| client.demand = demand);
    world
}

/// Requests that the other clients admitted.
fn by_others(world: &World) -> u64 {
    let (_, hostile) = world.conditions.hostile;
    world.clients[hostile..].iter().map(|client| client.admitted).sum()
}

/// A rate: the bound holds at any time.
#[test]
fn a_hostile_peer_takes_no_more_than_its_part_of_a_rate() {
    for hostility in ALL {
        for hostile in [1, 30] {
            let limit = Limit::bucket("token_bucket", 1_000, 1_000);
            let mut world = beside(Some(hostility), hostile, limit, 40);
            world.run_for(30 * SECOND);
            let before = by_others(&world);
            world.run_for(60 * SECOND);
            let part = (by_others(&world) - before) as f64 / 60_000.0;
            println!("{hostility:?}, {hostile} streams: others get {part:.3}");
            assert!(part >= 0.57, "{hostility:?}, {hostile} streams: others get {part:.3}");
            assert_eq!(world.excess.0, 0, "{hostility:?}, {hostile} streams");
        }
    }
}

/// A new client beside the peer gets a share as any other.
#[test]
fn a_hostile_peer_does_not_keep_new_clients_out() {
    for hostility in ALL {
        let mut world = beside(Some(hostility), 30, Limit::bucket("token_bucket", 1_000, 1_000), 40);
        world.run_for(60 * SECOND);
        let last = world.clients.len() - 1;
        world.kill(last);
        world.run_for(25 * SECOND);
        let before = world.clients[last].admitted;
        world.run_for(20 * SECOND);
        let part = (world.clients[last].admitted - before) as f64 / 20_000.0;
        println!("{hostility:?}: the new one gets {part:.3}");
        assert!(part >= 0.12, "{hostility:?}: the new one gets {part:.3}");
    }
}

/// A window: the bound holds until its end.
#[test]
fn a_hostile_peer_takes_no_more_than_its_part_of_a_window() {
    for hostility in ALL {
        for hostile in [1, 30] {
            let mut world = beside(Some(hostility), hostile, Limit::log(6_000, 1_200), 40);
            world.run_for(300 * SECOND);
            let part = by_others(&world) as f64 / 6_000.0;
            println!("{hostility:?}, {hostile} streams: others get {part:.3}");
            assert!(part >= 0.57, "{hostility:?}, {hostile} streams: others get {part:.3}");
            assert_eq!(world.excess.0, 0, "{hostility:?}, {hostile} streams");
        }
    }
}

/// A limit that is too small for all clients at once.
#[test]
fn a_hostile_peer_takes_no_more_than_its_part_of_the_turns() {
    for hostile in [1, 30] {
        let mut world = beside(Some(Hostility::Demand), hostile, Limit::bucket("token_bucket", 1, 10), 40);
        world.run_for(300 * SECOND);
        let before = by_others(&world);
        world.run_for(1_200 * SECOND);
        let part = (by_others(&world) - before) as f64 / 1_200.0;
        println!("{hostile} streams: others get {part:.3}");
        assert!(part >= 0.5, "{hostile} streams: others get {part:.3}");
    }
}

/// Clients that end as soon as they have spent their tokens. Others with full buckets follow them.
#[test]
fn forgetting_tokens_that_were_given_up_is_found() {
    let excess = |fault| {
        let mut world = beside(None, 8, Limit::bucket("token_bucket", 10, 1_000), 100);
        world.conditions.fault = fault;
        for _ in 0..34 {
            world.run_for(18 * SECOND);
            (0..8).for_each(|client| world.replace(client, 0));
        }
        world.excess.0
    };
    assert!(excess(Some(Fault::ForgetsDebt)) > 0);
    assert_eq!(excess(None), 0);
}
