//! Shares of credits: how many hits one of several nodes is allotted. Pure arithmetic.

use super::Supply;
use crate::max_min::{self, Filled};

/// Demands of all nodes for one counter, in hits.
#[derive(Clone, Debug, Default)]
pub(super) struct Claims {
    /// Hits that each node expects in the time for which credits are granted.
    pub(super) wants: Vec<u64>,
    /// Hits that all nodes expect until their next report, at its shortest.
    pub(super) need: u64,
    /// Hits that become free until then, if all are used.
    pub(super) freed: u64,
}

/// Credits of one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Share {
    pub(super) credits: u64,
    pub(super) supply: Supply,
}

impl Claims {
    /// The share of the node with the claim `want`, which is one of the wants. `available` are the hits that are free and those that nodes
    /// hold.
    ///
    /// Half of the hits stay free, for decisions of the store and for nodes whose demand rises. If the time until the next report needs
    /// more than half, only a sixteenth stays free. All nodes have equal shares, but no share exceeds its claim (water-filling).
    pub(super) fn share(&self, want: u64, available: u64, grant_min: u64) -> Share {
        let wanted = self.wants.iter().fold(0_u64, |sum, &want| sum.saturating_add(want));
        let half = available / 2;
        let pool = if wanted <= half { wanted } else { half.max(self.need.min(available - available / 16)) };
        let credits = want.min(water_level(&self.wants, pool));
        // If nothing is free, the node's part of the hits that become free decides whether it is worth waiting for them.
        let freed = u128::from(self.freed) * u128::from(want) / u128::from(wanted.max(1));
        let supply = if credits < want && u128::from(credits).max(freed) < u128::from(grant_min) {
            return Share { credits: 0, supply: Supply::TooSmall };
        } else if pool < wanted && pool < self.need {
            Supply::Scarce
        } else {
            Supply::Ample
        };
        Share { credits, supply }
    }
}

/// The greatest share for which all shares, each no greater than its claim, fit into the pool.
fn water_level(wants: &[u64], pool: u64) -> u64 {
    let mut ascending = wants.to_vec();
    ascending.sort_unstable();
    match max_min::fill(ascending.iter().map(|&want| (want, 1)), ascending.len() as u64, pool) {
        Filled::Met { .. } => u64::MAX,
        Filled::Level(level) => level,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_claims_are_met_and_large_ones_are_equal() {
        assert_eq!(water_level(&[1, 2, 100, 100], 43), 20);
        assert_eq!(water_level(&[10, 10], 20), u64::MAX);
        assert_eq!(water_level(&[5, 900], 0), 0);
    }

    #[test]
    fn half_stays_free_unless_the_next_report_needs_it() {
        let claims = Claims { wants: vec![100, 100], need: 10, freed: 0 };
        assert_eq!(claims.share(100, 1_000, 4), Share { credits: 100, supply: Supply::Ample });
        assert_eq!(claims.share(100, 80, 4), Share { credits: 20, supply: Supply::Ample });
        assert_eq!(claims.share(100, 16, 4), Share { credits: 5, supply: Supply::Ample });
        let starved = Claims { need: 64, ..claims };
        assert_eq!(starved.share(100, 32, 4), Share { credits: 15, supply: Supply::Scarce });
        assert_eq!(starved.share(100, 6, 4), Share { credits: 0, supply: Supply::TooSmall });
    }

    proptest! {
        #[test]
        fn all_shares_together_fit(wants in prop::collection::vec(0..2_000_u64, 1..12), need in 0..5_000_u64, available in 0..9_000_u64) {
            let claims = Claims { wants: wants.clone(), need, freed: 0 };
            let shares = wants.iter().map(|&want| claims.share(want, available, 1).credits);
            prop_assert!(shares.sum::<u64>() <= available);
        }
    }
}
