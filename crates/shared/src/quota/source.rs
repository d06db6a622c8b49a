//! Where hits that are divided by slices are counted, and how many are left.

use super::{server_part::ServerPart, settings::Settings};
use tidegate_core::{
    algorithm::{Algorithm, Leased},
    limit::Timestamp,
};

/// Where the hits of slices are counted.
pub(super) enum Source<'a> {
    /// The counter of the limiter.
    Counter(&'a Algorithm, &'a mut Leased),
    /// This server's part of a counter in a store.
    Part(&'a mut ServerPart),
}

impl Source<'_> {
    pub(super) fn algorithm(&self) -> &Algorithm {
        match self {
            Self::Counter(algorithm, _) => algorithm,
            Self::Part(part) => &part.algorithm,
        }
    }

    /// Hits that can be divided, beyond those that clients have.
    pub(super) fn free(&self, now: Timestamp) -> u64 {
        match self {
            Self::Counter(algorithm, leased) => {
                algorithm.remaining(&leased.state, now).saturating_sub(leased.outstanding())
            }
            Self::Part(part) => part.idle(),
        }
    }

    /// Hits that are left of the limit, beyond those that clients have.
    pub(super) fn left(&self, now: Timestamp) -> u64 {
        match self {
            Self::Counter(..) => self.free(now),
            Self::Part(part) => part.left(),
        }
    }

    /// The most free hits for one of `clients` clients, which demands `demanded`.
    pub(super) fn share(&self, demanded: u64, clients: u64, now: Timestamp) -> u64 {
        match self {
            Self::Counter(..) => self.free(now) / (clients + 1),
            Self::Part(part) => part.share(demanded, clients),
        }
    }

    /// Counts hits as spent. Clients had `of_slices` of them in slices.
    pub(super) fn spend(&mut self, hits: u64, of_slices: u64, now: Timestamp) {
        match self {
            Self::Counter(algorithm, leased) => {
                leased.add(algorithm, hits, now);
                hold(leased, of_slices, 0);
            }
            Self::Part(part) => {
                part.spend(hits, of_slices);
                part.hold(of_slices, 0);
            }
        }
    }

    /// Replaces the unspent hits of a client.
    pub(super) fn hold(&mut self, before: u64, after: u64) {
        match self {
            Self::Counter(_, leased) => hold(leased, before, after),
            Self::Part(part) => part.hold(before, after),
        }
    }

    /// Whether an assignment that is sent now can last for its whole life.
    pub(super) fn can_assign(&self, is_learning: bool, settings: &Settings, now: Timestamp) -> bool {
        match self {
            Self::Counter(..) => !is_learning,
            Self::Part(part) => part.outlasts(settings, now),
        }
    }
}

/// Replaces the held hits of one client.
fn hold(leased: &mut Leased, before: u64, after: u64) {
    if let Some(assigned) = &mut leased.assigned {
        assigned.held = assigned.held.saturating_sub(before).saturating_add(after);
    }
}
