//! Shares of a rate: max-min fairness over the demands, and the rest equally. Pure arithmetic.

use crate::max_min::{self, Filled};

/// A division of a rate, from which each share follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Level {
    /// The upper bound of a share, unless no other client demands the rest.
    level: u64,
    /// What each client gets beyond its demand.
    headroom: u64,
    /// The rate that is not assigned.
    pub(super) unclaimed: u64,
}

impl Level {
    /// The level at which every share is the demand, and no more.
    pub(super) const ALL: Self = Self { level: u64::MAX, headroom: 0, unclaimed: 0 };

    /// Divides a rate by the demands of clients, which are sorted here, and the demand of requests to the server itself.
    ///
    /// Half of what no client demands is headroom of all clients. The rest is for new clients, and for requests to the server.
    pub(super) fn of(wanted: &mut [u64], direct: u64, rate: u64) -> Self {
        wanted.sort_unstable();
        Self::among(wanted, |want| (*want, 1), direct, rate)
    }

    /// Divides a rate by the demands of servers and the demand of requests to servers. A server counts as its clients do. Requests count as
    /// one client. Sorts the servers. The level and the headroom are those of a client.
    pub(super) fn of_servers(servers: &mut [Claimant], direct: u64, rate: u64) -> Self {
        servers.sort_unstable_by_key(|server| server.demand / server.clients.max(1));
        Self::among(servers, |server| (server.demand, server.clients), direct, rate)
    }

    /// Divides a rate among claimants, which are in ascending order of the demand of a client. `claim` returns the demand of a claimant and
    /// the number of its clients.
    fn among<C>(ascending: &[C], claim: impl Fn(&C) -> (u64, u64) + Copy, direct: u64, rate: u64) -> Self {
        let clients =
            ascending.iter().map(claim).fold(0, |sum: u64, (_, clients)| sum.saturating_add(clients));
        let is_below = |(demand, clients): (u64, u64)| demand / clients.max(1) < direct;
        let (below, above) = ascending.split_at(ascending.partition_point(|one| is_below(claim(one))));
        let own = (direct > 0).then_some((direct, 1));
        let all = below.iter().map(claim).chain(own).chain(above.iter().map(claim));
        let left = match max_min::fill(all, clients + u64::from(direct > 0), rate) {
            Filled::Met { left } => left,
            Filled::Level(level) => return Self { level, headroom: 0, unclaimed: 0 },
        };
        let headroom = left / 2 / clients.max(1);
        Self { level: u64::MAX, headroom, unclaimed: left - headroom * clients }
    }

    /// Whether the demands exceed the rate.
    pub(super) fn is_bound(self) -> bool {
        self.level < u64::MAX
    }

    /// The share of a client.
    pub(super) fn share(self, wanted: u64) -> u64 {
        wanted.min(self.level).saturating_add(self.headroom)
    }

    /// The share of a server.
    pub(super) fn share_of(self, server: Claimant) -> u64 {
        let most = self.level.saturating_mul(server.clients);
        server.demand.min(most).saturating_add(self.headroom.saturating_mul(server.clients))
    }

    /// The share without headroom, as requests to the server have it.
    pub(super) fn direct(self, wanted: u64) -> u64 {
        wanted.min(self.level)
    }
}

/// The clients of a server together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Claimant {
    /// What they demand.
    pub(super) demand: u64,
    /// Their number.
    pub(super) clients: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shares(wanted: &[u64], direct: u64, rate: u64) -> (Vec<u64>, Level) {
        let level = Level::of(&mut wanted.to_vec(), direct, rate);
        (wanted.iter().map(|&want| level.share(want)).collect(), level)
    }

    #[test]
    fn small_demands_are_met_and_large_ones_are_equal() {
        assert_eq!(shares(&[900, 1, 2, 100], 0, 43).0, [20, 1, 2, 20]);
        assert_eq!(shares(&[900, 1, 2, 100], 10, 43).0, [15, 1, 2, 15]);
        assert_eq!(shares(&[900], 500, 100).0, [50]);
        assert_eq!(shares(&[10, 20], 0, 100).0, [27, 37]);
        assert_eq!(shares(&[], 0, 100).0, [0; 0]);
    }

    fn parts(servers: &[(u64, u64)], direct: u64, rate: u64) -> Vec<u64> {
        let servers: Vec<Claimant> =
            servers.iter().map(|&(demand, clients)| Claimant { demand, clients }).collect();
        let level = Level::of_servers(&mut servers.clone(), direct, rate);
        servers.into_iter().map(|server| level.share_of(server)).collect()
    }

    #[test]
    fn servers_have_parts_by_their_demand_and_their_number_of_clients() {
        assert_eq!(parts(&[(900, 1), (900, 9)], 0, 1_000), [100, 900]);
        assert_eq!(parts(&[(900, 1), (90, 9)], 0, 1_000), [900, 90]);
        assert_eq!(parts(&[(900, 1), (900, 1)], 500, 900), [300, 300]);
        assert_eq!(parts(&[(900, 1), (900, 1)], 100, 900), [400, 400]);
        assert_eq!(parts(&[(100, 1), (0, 1)], 0, 1_000), [325, 225]);
        assert_eq!(parts(&[(100, 1), (0, 0)], 2_000, 1_000), [100, 0]);
    }

    proptest! {
        #[test]
        fn all_parts_fit_and_one_client_for_each_server_is_the_division_among_clients(
            servers in prop::collection::vec((0..2_000_u64, 0..9_u64), 1..12), direct in 0..3_000_u64, rate in 0..9_000_u64
        ) {
            let fitting: Vec<(u64, u64)> = servers.iter().map(|&(demand, clients)| (demand.min(clients * 2_000), clients)).collect();
            prop_assert!(parts(&fitting, direct, rate).iter().sum::<u64>() <= rate);
            let wanted: Vec<u64> = servers.iter().map(|&(demand, _)| demand).collect();
            let of_one: Vec<(u64, u64)> = wanted.iter().map(|&demand| (demand, 1)).collect();
            prop_assert_eq!(parts(&of_one, direct, rate), shares(&wanted, direct, rate).0);
        }

        #[test]
        fn all_shares_fit_and_a_smaller_demand_is_no_smaller_part(
            wanted in prop::collection::vec(0..2_000_u64, 0..12), direct in 0..3_000_u64, rate in 0..9_000_u64
        ) {
            let (shares, level) = shares(&wanted, direct, rate);
            prop_assert!(shares.iter().sum::<u64>() + level.direct(direct) + level.unclaimed <= rate);
            let is_met = shares.iter().zip(&wanted).all(|(share, want)| share >= want) && level.direct(direct) == direct;
            let least_unmet = shares.iter().zip(&wanted).filter(|(share, want)| share < want).map(|(share, _)| *share).min();
            if let Some(least) = least_unmet {
                prop_assert!(shares.iter().all(|&share| share <= least));
            }
            prop_assert!(is_met || level.headroom == 0);
        }
    }
}
