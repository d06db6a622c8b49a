//! `debt_max` of a limit: the most hits counted beyond it, in multiples of its requests per window.

use super::{algorithm::Counting, walk::Walk};
use crate::{
    algorithm::Algorithm,
    rules::{Reserve, semantics::ChargePolicy, yaml::Fields},
};

/// Windows of a bucket. A debt in a window ends with the next window; a bucket has to drain, which without a bound may take years.
const BUCKET_DEFAULT: u32 = 2;

/// The bound of a limit that states none.
pub(in crate::rules) fn debt_max_default(algorithm: &Algorithm) -> Option<u32> {
    algorithm.is_bucket().then_some(BUCKET_DEFAULT)
}

impl Walk<'_> {
    /// Reads `debt_max`, for a limit that counts beyond itself.
    pub(super) fn debt_max(
        &self,
        fields: &mut Fields<'_>,
        counting: &Counting,
        charge: ChargePolicy,
        reserve: Option<Reserve>,
    ) -> Option<u32> {
        let default = debt_max_default(&counting.algorithm);
        let Some(field) = fields.take("debt_max") else { return default };
        let refusal = if counting.algorithm.holds_slots() {
            "requests in flight are never beyond the limit; remove it"
        } else if reserve.is_some() && default.is_none() {
            "bounds costs beyond an estimate in buckets only, a window ends by itself; remove it, or write \
             `algorithm: token_bucket`"
        } else if reserve.is_none() && charge == ChargePolicy::Admitted {
            "has no effect, since only admitted requests are counted; add `charge: always` or remove it"
        } else {
            return field.whole().or(default);
        };
        field.reject(refusal);
        default
    }
}
