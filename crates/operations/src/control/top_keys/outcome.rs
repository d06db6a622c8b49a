//! Outcomes of hits.

/// Outcome of hits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyOutcome {
    /// Denied by a limit of the key.
    Denied,
    /// Admitted.
    Admitted,
}

/// Sums by outcome.
pub(super) type ByOutcome<T> = [T; 2];
