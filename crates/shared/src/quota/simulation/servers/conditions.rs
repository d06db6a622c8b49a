//! Events of servers that share a store.

use super::super::{
    client::{MILLIS, SECOND},
    limit::Limit,
};
use crate::lease::simulation::rng::Rng;

/// A planted fault. The product has no branch for any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StoreFault {
    /// The part of a server that is killed is free at once.
    ForgetsVanished,
    /// A store that was emptied grants as if there were no parts.
    NoLearning,
    /// A part shrinks before clients have less.
    ShrinksAtOnce,
    /// A request that is received twice counts as a new one.
    TakesLateRequests,
    /// Bursts of parts do not count for requests to servers.
    HoldsNothing,
    /// Hits that clients reported as spent are free again.
    CountsNothing,
    /// Slices of former clients are given back.
    ForgetsClosed,
    /// A server that stops also gives back what its clients have.
    FreesAll,
    /// As soon as a server gives up a rate of a window, the rate is free for others and for requests.
    ForgetsRates,
}

/// Random parameters. Gaps are mean times between two events; zero means never.
#[derive(Clone, Debug)]
pub(super) struct StoreConditions {
    pub(super) limit: Limit,
    pub(super) servers: usize,
    pub(super) clients: usize,
    pub(super) load: f64,
    pub(super) direct: f64,
    /// Number of clients that have nine tenths of the demand.
    pub(super) hot: usize,
    pub(super) length: u64,
    pub(super) delay_max: u64,
    pub(super) move_gap: u64,
    pub(super) client_gap: u64,
    pub(super) kill_gap: u64,
    /// Whether a killed server starts again with the same number.
    pub(super) restarts: bool,
    /// Whether a server stops in order instead.
    pub(super) stops: bool,
    /// Whether clients of a killed server end with it.
    pub(super) takes_clients: bool,
    pub(super) join_gap: u64,
    /// Time until a stream ends and its client reports to another server.
    pub(super) hop_gap: u64,
    pub(super) away_gap: u64,
    pub(super) empty_gap: u64,
    /// In this number of calls to the store, one is lost, one loses its response, and one is received again later.
    pub(super) lost_calls: u64,
    pub(super) fault: Option<StoreFault>,
}

/// Limits that are divided by rates.
pub(super) const RATES: &[u64] = &[0, 0, 0, 1];

/// Windows that are divided by rates.
pub(super) const WINDOWS: &[u64] = &[2, 3, 11, 12];

/// Limits that are divided by slices.
pub(super) const SLICES: &[u64] = &[4, 6, 7, 8, 9, 10];

impl StoreConditions {
    pub(super) fn random(rng: &mut Rng, kinds: &[u64]) -> Self {
        let gap = |rng: &mut Rng, secs: u64| if rng.once_in(2) { 0 } else { secs * SECOND };
        let clients = rng.pick(&[2, 3, 5, 10, 20]);
        // An emptied store has forgotten what was spent of windows.
        let empty_gap = if kinds == RATES && rng.once_in(3) { 30 * SECOND } else { 0 };
        Self {
            limit: Limit::random(rng, kinds),
            servers: rng.between(1, 5) as usize,
            clients,
            // Long windows should be spent within a world.
            load: rng.pick(if kinds == SLICES {
                &[1.0, 20.0, 50.0, 200.0, 1_000.0]
            } else {
                &[0.3, 0.8, 1.2, 3.0, 20.0]
            }),
            // An emptied store has forgotten requests to servers, whatever quota does.
            direct: if empty_gap > 0 { 0.0 } else { rng.pick(&[0.0, 0.0, 0.3, 2.0]) },
            hot: rng.between(1, clients as u64) as usize,
            length: rng.pick(&[60, 100]) * SECOND,
            delay_max: rng.pick(&[5, 50, 480]) * MILLIS,
            move_gap: gap(rng, 20),
            client_gap: gap(rng, 10),
            kill_gap: gap(rng, 25),
            restarts: rng.once_in(2),
            stops: rng.once_in(2),
            takes_clients: rng.once_in(4),
            join_gap: gap(rng, 25),
            hop_gap: gap(rng, 5),
            away_gap: gap(rng, 25),
            empty_gap,
            lost_calls: rng.pick(&[0, 3, 20]),
            fault: None,
        }
    }

    /// Conditions without events, for tests that make their own.
    pub(super) fn calm(servers: usize, clients: usize, hot: usize, load: f64) -> Self {
        Self {
            limit: Limit::bucket("token_bucket", 1_000, 1_000),
            servers,
            clients,
            load,
            direct: 0.0,
            hot,
            length: 0,
            delay_max: 20 * MILLIS,
            move_gap: 0,
            client_gap: 0,
            kill_gap: 0,
            restarts: false,
            stops: false,
            takes_clients: false,
            join_gap: 0,
            hop_gap: 0,
            away_gap: 0,
            empty_gap: 0,
            lost_calls: 0,
            fault: None,
        }
    }
}
