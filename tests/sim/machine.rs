//! The limiter under test as a process on a machine runs it, with a disk that outlives the process; and events that affect both, beside
//! requests.

use std::sync::Arc;
use tidegate_core::{
    clock::ManualClock,
    limit::Timestamp,
    limiter::Limiter,
    rules::{LoadOptions, RuleSet, Source},
    store::{OnFull, Seed, StoreSettings},
};
use tidegate_snapshot::{SimulatedDisk, Writer, start_simulated};

/// More counters than any trace makes.
const COUNTERS_MAX: usize = 1_000;

/// A disk, and the process that runs.
pub struct Machine {
    pub limiter: Arc<Limiter>,
    writer: Writer,
    disk: SimulatedDisk,
}

impl Machine {
    /// Starts a process from the content of the disk.
    pub fn start(disk: SimulatedDisk, rules: Source, now: Timestamp) -> Self {
        let build = |seed| {
            let store = StoreSettings { seed, counters_max: COUNTERS_MAX, on_full: OnFull::Deny };
            let rules = RuleSet::parse(&[rules], &LoadOptions::default());
            Limiter::new(rules.unwrap_or_else(|errors| panic!("{errors}")), store, false)
        };
        let started = start_simulated(&disk, Seed::from_bytes([3; 16]), build, now);
        let (limiter, writer, _) = started.expect("what was written can be restored");
        limiter.drop_ended_bans();
        Self { limiter: Arc::new(limiter), writer, disk }
    }

    /// Starts the next process.
    pub fn restart(&mut self, rules: Source, now: Timestamp) {
        *self = Self::start(std::mem::take(&mut self.disk), rules, now);
    }

    /// Forgets the content of the disk. Only for a planted fault.
    pub fn lose_disk(&mut self) {
        self.disk = SimulatedDisk::default();
    }

    pub fn change_rules(&self, rules: Source) {
        let next = self.limiter.update_rules().build(&[rules], &LoadOptions::default());
        drop(next.unwrap_or_else(|errors| panic!("{errors}")).put_in_force());
    }

    pub fn sweep(&self, now: Timestamp) {
        let shards = 0..self.limiter.store().shard_count();
        shards.for_each(|shard| self.limiter.sweep(shard, usize::MAX, now));
    }

    pub fn save(&mut self, now: Timestamp) {
        let (rules, clock) = (self.limiter.rules(), ManualClock::new(now));
        self.writer.pass(self.limiter.store(), rules.limits(), &clock).expect("memory takes it");
    }
}

/// An event that changes no result of a process that works, except for changes that the last snapshot lacks.
#[derive(Clone, Copy, Debug)]
pub enum Disruption {
    Sweep,
    Snapshot,
    /// A stop, with a snapshot, and a start.
    Restart,
    /// A start from the last snapshot.
    Crash,
}

/// A limiter, or an oracle, that the event affects. Times are those of its world.
pub trait Disrupted {
    fn sweep(&mut self, _now: u64) {}
    fn save(&mut self, now: u64);
    /// Starts from the last saved state.
    fn restart(&mut self, now: u64);
}

impl Disruption {
    /// Plays the event on both. Returns the time after it.
    pub fn play(self, both: [&mut dyn Disrupted; 2], now: u64) -> u64 {
        // Ids consist of a time and a number: no process starts at the time of another process.
        let start = now + 1;
        for one in both {
            match self {
                Self::Sweep => one.sweep(now),
                Self::Snapshot => one.save(now),
                Self::Restart => {
                    one.save(now);
                    one.restart(start);
                }
                Self::Crash => one.restart(start),
            }
        }
        if matches!(self, Self::Restart | Self::Crash) { start } else { now }
    }
}
