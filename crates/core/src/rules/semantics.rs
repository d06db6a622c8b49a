//! Semantics of decisions, and the requests that are charged.

use crate::{
    algorithm::{Algorithm, Schedule},
    limit::{Unit, Window},
};
use serde::{Deserialize, Serialize};

/// The requests whose hits are counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ChargePolicy {
    /// Hits of admitted requests.
    #[default]
    Admitted,
    /// Hits are counted in any case, beyond the limit too: for costs that are known only afterwards.
    Always,
}

/// Semantics of decisions where Tidegate and the reference server differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Semantics {
    /// Exact resets; a peek reports whether one more hit would be admitted.
    #[default]
    Exact,
    /// As the reference server: a reset is the end of the window, and a peek is admitted at exactly the limit.
    Reference,
}

impl Semantics {
    /// See [`RuleLimit::is_joined`]: holds for limits that the reference server has too.
    pub(super) fn joins(self, algorithm: &Algorithm, charge: ChargePolicy, unit: Option<Unit>) -> bool {
        self == Self::Reference
            && algorithm.is_on_the_clock()
            && charge == ChargePolicy::Always
            && unit.is_some()
    }

    /// The algorithm of a limit that names none, unless [`LoadOptions`](super::LoadOptions) have a default.
    pub(super) fn algorithm(self, limit: u32, window: Window) -> Algorithm {
        match self {
            Self::Exact => Algorithm::sliding_window(limit, window, 1),
            Self::Reference => Algorithm::fixed_window(limit, Schedule::Clock(window)),
        }
    }
}
