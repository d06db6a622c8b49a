//! Shares of a rate: max-min fairness over the demands, and the rest equally. Pure arithmetic.

/// The shares of all, of a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Level {
    /// The upper bound of a share, unless no other client demands the rest.
    level: u64,
    /// What each client gets beyond its demand.
    headroom: u64,
    /// What is not assigned.
    pub(super) unclaimed: u64,
}

impl Level {
    /// All that is demanded, and nothing more.
    pub(super) const ALL: Self = Self { level: u64::MAX, headroom: 0, unclaimed: 0 };

    /// Divides a rate by the demands of clients, which are sorted here, and that of requests to the server itself.
    ///
    /// Half of what no client demands is headroom of all clients. The rest is for new clients, and for such requests.
    pub(super) fn of(wanted: &mut [u64], direct: u64, rate: u64) -> Self {
        wanted.sort_unstable();
        let (mut left, mut clients) = (rate, wanted.len() as u64 + u64::from(direct > 0));
        let mut is_direct_met = direct == 0;
        for &want in &*wanted {
            if !is_direct_met && direct <= want {
                if direct > left / clients {
                    return Self { level: left / clients, headroom: 0, unclaimed: 0 };
                }
                (left, clients, is_direct_met) = (left - direct, clients - 1, true);
            }
            let level = left / clients;
            if want > level {
                return Self { level, headroom: 0, unclaimed: 0 };
            }
            (left, clients) = (left - want, clients - 1);
        }
        if !is_direct_met {
            if direct > left {
                return Self { level: left, headroom: 0, unclaimed: 0 };
            }
            left -= direct;
        }
        let headroom = left / 2 / (wanted.len() as u64).max(1);
        Self { level: u64::MAX, headroom, unclaimed: left - headroom * wanted.len() as u64 }
    }

    /// The share of a client.
    pub(super) fn share(self, wanted: u64) -> u64 {
        wanted.min(self.level).saturating_add(self.headroom)
    }

    /// The share without headroom: that of requests to the server.
    pub(super) fn direct(self, wanted: u64) -> u64 {
        wanted.min(self.level)
    }
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

    proptest! {
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
