//! Max-min fairness: each claim is met, or gets the same as every other claim that is not. Pure arithmetic.

/// The result of dividing a pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Filled {
    /// All claims are met.
    Met {
        /// The part that is not claimed.
        left: u64,
    },
    /// The most for each head.
    Level(u64),
}

/// Divides a pool among claims, each with the number of its heads, in ascending order of the claim per head. `heads` is their sum.
pub(crate) fn fill(ascending: impl IntoIterator<Item = (u64, u64)>, heads: u64, pool: u64) -> Filled {
    let (mut left, mut others) = (pool, heads);
    for (claim, of_claim) in ascending {
        let level = left / others.max(1);
        if claim > level.saturating_mul(of_claim) {
            return Filled::Level(level);
        }
        (left, others) = (left - claim, others - of_claim);
    }
    Filled::Met { left }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_claims_are_met_and_large_ones_are_equal() {
        let of =
            |claims: &[u64], pool| fill(claims.iter().map(|&claim| (claim, 1)), claims.len() as u64, pool);
        assert_eq!(of(&[1, 2, 100, 100], 43), Filled::Level(20));
        assert_eq!(of(&[10, 10], 20), Filled::Met { left: 0 });
        assert_eq!(of(&[5, 900], 0), Filled::Level(0));
        assert_eq!(of(&[], 7), Filled::Met { left: 7 });
    }

    proptest! {
        #[test]
        fn shares_fit_and_one_more_for_each_does_not(
            mut claims in prop::collection::vec((0..900_u64, 1..9_u64), 1..12), pool in 0..9_000_u64,
        ) {
            for heads_max in [9, 1] {
                claims.iter_mut().for_each(|(_, heads)| *heads = (*heads).min(heads_max));
                claims.sort_by_key(|(claim, heads)| claim / heads);
                let heads = claims.iter().map(|(_, heads)| heads).sum();
                let total = |level: u64| claims.iter().map(|&(claim, heads)| claim.min(level * heads)).sum::<u64>();
                match fill(claims.clone(), heads, pool) {
                    Filled::Met { left } => prop_assert_eq!(total(1_000) + left, pool),
                    Filled::Level(level) => {
                        prop_assert!(total(level) <= pool);
                        prop_assert!(heads_max > 1 || total(level + 1) > pool);
                    }
                }
            }
        }
    }
}
