//! Random parameters of a world.

use super::{
    client::{MILLIS, SECOND},
    fault::Fault,
    hostile::{self, Hostility},
    limit::Limit,
    process::Memory,
};
use crate::lease::simulation::rng::Rng;
use tidegate_core::rules::Percent;

/// Random parameters of a world. Times are in nanoseconds; gaps are mean times between two events, zero means never.
#[derive(Clone, Debug)]
pub(super) struct Conditions {
    pub(super) limit: Limit,
    pub(super) clients: usize,
    /// The most that a client may have of the limit.
    pub(super) share_max: Percent,
    /// Kind of false reports, and the number of clients that send them. These are the first clients, and are of one peer.
    pub(super) hostile: (Option<Hostility>, usize),
    /// Demand of all clients, in parts of the limit.
    pub(super) load: f64,
    /// Demand of requests to the server itself.
    pub(super) direct: f64,
    /// Holders of leases, each of which demands a part of the limit.
    pub(super) holders: usize,
    /// Number of clients that have nine tenths of the demand.
    pub(super) hot: usize,
    pub(super) clump: u64,
    pub(super) length: u64,
    /// The longest time that a message takes, either way.
    pub(super) delay_max: u64,
    /// Whether the connection acknowledges what is received.
    pub(super) acknowledges: bool,
    /// Time until demand moves to other clients.
    pub(super) move_gap: u64,
    pub(super) join_gap: u64,
    pub(super) kill_gap: u64,
    /// Time until a stream ends, which both sides notice at once.
    pub(super) close_gap: u64,
    /// Time until a stream stops carrying messages, which both sides notice later.
    pub(super) stall_gap: u64,
    pub(super) lost_report_gap: u64,
    pub(super) restart_gap: u64,
    /// The longest time without a server at a restart.
    pub(super) down_max: u64,
    /// Whether a restart keeps the counters.
    pub(super) keeps_counters: bool,
    /// What a process can use of the former process.
    pub(super) memory: Memory,
    /// The most that clients have if nothing is recorded.
    pub(super) unrecorded: Percent,
    /// The longest time until a record is written.
    pub(super) write_max: u64,
    pub(super) fault: Option<Fault>,
}

impl Conditions {
    pub(super) fn random(rng: &mut Rng, kinds: &[u64]) -> Self {
        let gap = |rng: &mut Rng, secs: u64| if rng.once_in(2) { 0 } else { secs * SECOND };
        let keeps_counters = rng.once_in(2);
        let restart_gap = if rng.once_in(3) { rng.pick(&[10, 20, 40]) * SECOND } else { 0 };
        let direct = rng.pick(&[0.0, 0.0, 0.3, 2.0]);
        let clients = rng.pick(&[2, 2, 3, 3, 5, 10, 20, 50]);
        let limit = Limit::random(rng, kinds);
        let counts_reports = limit.counts_reports();
        let mut conditions = Self {
            limit,
            clients,
            share_max: Percent::new(rng.pick(&[100, 100, 60, 25])).expect("a percentage"),
            hostile: if rng.once_in(4) {
                (Some(rng.pick(&hostile::ALL)), rng.between(1, 3) as usize)
            } else {
                (None, 0)
            },
            load: rng.pick(&[0.3, 0.8, 1.2, 3.0, 20.0]),
            // A limiter that starts empty has forgotten requests to the server, whatever quota does.
            direct: if restart_gap > 0 && !keeps_counters { 0.0 } else { direct },
            // A server that forgets its counters also forgets what was spent of credits.
            holders: if restart_gap > 0 && !keeps_counters { 0 } else { rng.pick(&[0, 0, 2, 3]) },
            hot: rng.between(1, clients as u64) as usize,
            clump: rng.pick(&[1, 1, 5, 50]),
            length: rng.pick(&[40, 60, 80]) * SECOND,
            delay_max: rng.pick(&[5, 50, 480]) * MILLIS,
            acknowledges: rng.once_in(2),
            move_gap: gap(rng, 20),
            join_gap: gap(rng, 10),
            kill_gap: gap(rng, 15),
            close_gap: gap(rng, 15),
            stall_gap: gap(rng, 20),
            // Slices depend on reports, and a stream loses no report before it ends. Assigned rates do not depend on reports.
            lost_report_gap: gap(rng, 3) * u64::from(!counts_reports),
            restart_gap,
            down_max: rng.pick(&[1, 12]) * SECOND,
            keeps_counters,
            memory: if keeps_counters { rng.pick(&Memory::ALL) } else { Memory::None },
            unrecorded: Percent::new(rng.pick(&[50, 50, 20, 100])).expect("a percentage"),
            write_max: rng.pick(&[500, 500, 20_000]) * MILLIS,
            fault: None,
        };
        // An empty server has forgotten all that clients spent of a window that was divided by slices.
        conditions.keeps_counters |= counts_reports;
        if counts_reports && conditions.memory == Memory::Counters && conditions.lost_report_gap > 0 {
            conditions.memory = Memory::None;
        }
        if conditions.hostile.0 == Some(Hostility::Totals) {
            // A server without knowledge of the former assignments believes the reports of its clients.
            conditions.restart_gap = 0;
        }
        conditions
    }
}
