//! Failures of calls.

/// The reason why the store did not decide.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Failure {
    /// It was unavailable before the call.
    #[error("the store is unavailable")]
    Unavailable,
    /// No response in time. The store may have charged the request.
    #[error("the store did not respond in time")]
    Timeout,
    /// The call failed.
    #[error("the call to the store failed")]
    Failed,
    /// The store decides nothing until outstanding credits are known.
    #[error("the store is learning which credits are outstanding")]
    Learning,
    /// The value of one of the request's counters is damaged.
    #[error("the store has a damaged counter of the request")]
    Damaged,
    /// The request has too many counters for one call.
    #[error("the request has too many counters for the store")]
    TooLarge,
}
