//! A trace played to the limiter and to the naive decision, every answer compared.

use crate::{
    naive::{Asked, Hits, Naive, Status, Tightest, Wait},
    rules::Rules,
    traffic::{Step, What},
    world::{Settings, World},
};
use std::{fmt, num::NonZeroU64};
use tidegate::{
    clock::ManualClock,
    limit::{Code, Decision, Descriptor, Entry, Override, Request, RequestLimits, Reset, Timestamp, Unit},
    limiter::Limiter,
    proof::{MemoryDisk, start_in_memory},
    rules::{LoadOptions, RuleSet, Semantics, Source},
    snapshot::Writer,
    store::{OnFull, Seed, StoreSettings},
};

/// Where the two first differed.
pub struct Difference {
    /// Index of the step.
    pub step: usize,
    expected: String,
    found: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "expected {}\nfound {}", self.expected, self.found)
    }
}

/// Plays the trace; the first difference, if there is one.
pub fn play(world: &World) -> Result<(), Difference> {
    let mut naive = Naive::new(world.settings, world.rules.clone());
    let mut server = Server::start(world.settings, &world.rules);
    for (index, step) in world.trace.iter().enumerate() {
        let differs = |expected: String, found| Err(Difference { step: index, expected, found });
        let (expected, answered) = (naive.play(step), server.play(step));
        if answered != expected {
            return differs(format!("{expected:?}"), format!("{answered:?}"));
        }
        let (expected, held) = (naive.held(), server.limiter.store().counters());
        if held != expected {
            return differs(format!("{expected} counters"), format!("{held}"));
        }
    }
    Ok(())
}

/// What a process has of it, and what outlives the process.
struct Server {
    settings: Settings,
    rules: Rules,
    disk: MemoryDisk,
    limiter: Limiter,
    writer: Writer,
}

impl Server {
    fn start(settings: Settings, rules: &Rules) -> Self {
        let disk = MemoryDisk::default();
        let (limiter, writer) = start(settings, rules, &disk, 0);
        Self { settings, rules: rules.clone(), disk, limiter, writer }
    }

    /// Lets a step happen. Of a request, whether it is over, and what each descriptor is told.
    fn play(&mut self, Step { now, what }: &Step) -> Option<(bool, Vec<Status>)> {
        match what {
            What::Ask(asked) => {
                // With no room to spare, it matters which of the expired counters are still there.
                if self.settings.may_fill_up() {
                    self.sweep(*now);
                }
                return Some(decide(&self.limiter, asked, Timestamp::from_nanos(*now)));
            }
            What::ChangeRules(rules) => {
                self.rules = rules.clone();
                let former = self.limiter.rules();
                self.limiter.replace_rules(rule_set(self.settings, rules, Some(&former)));
            }
            What::Sweep => self.sweep(*now),
            What::Snapshot => self.write_snapshot(*now),
            What::Restart(start) => {
                self.write_snapshot(*now);
                self.restart(*start);
            }
            What::Crash(start) => self.restart(*start),
        }
        None
    }

    fn sweep(&self, now: u64) {
        let store = self.limiter.store();
        for shard in 0..store.shard_count() {
            while !store.sweep(shard, 1, Timestamp::from_nanos(now)).finished {}
        }
    }

    fn write_snapshot(&mut self, now: u64) {
        let rules = self.limiter.rules();
        let clock = ManualClock::new(Timestamp::from_nanos(now));
        self.writer.pass(self.limiter.store(), rules.limits(), &clock).expect("memory takes it");
    }

    fn restart(&mut self, now: u64) {
        (self.limiter, self.writer) = start(self.settings, &self.rules, &self.disk, now);
    }
}

/// A process that starts from what is on the disk.
fn start(settings: Settings, rules: &Rules, disk: &MemoryDisk, now: u64) -> (Limiter, Writer) {
    let on_full = if settings.denies_when_full { OnFull::Deny } else { OnFull::Allow };
    let build = |seed| {
        let store = StoreSettings { seed, counters_max: settings.counters_max, on_full };
        Limiter::new(rule_set(settings, rules, None), store, false)
    };
    let started = start_in_memory(disk, Seed::from_bytes([3; 16]), build, Timestamp::from_nanos(now));
    let (limiter, writer, _) = started.expect("what was written can be restored");
    (limiter, writer)
}

fn rule_set(settings: Settings, rules: &Rules, former: Option<&RuleSet>) -> RuleSet {
    let source = Source { name: "sim.yaml".to_owned(), text: rules.yaml() };
    let semantics = if settings.is_reference { Semantics::Reference } else { Semantics::Exact };
    let options = LoadOptions { semantics, ..LoadOptions::default() };
    RuleSet::parse(&[source], &options, former).unwrap_or_else(|errors| panic!("{errors}"))
}

fn decide(limiter: &Limiter, asked: &[Asked], now: Timestamp) -> (bool, Vec<Status>) {
    let names: Vec<(String, String)> =
        asked.iter().map(|asked| (format!("k{}", asked.rule), format!("v{}", asked.value))).collect();
    let mut request = Request::new("sim");
    for (asked, (key, value)) in asked.iter().zip(&names) {
        let hits = |hits| NonZeroU64::new(hits).expect("at least one hit");
        request.push(Descriptor {
            entries: [Entry { key, value }].into_iter().collect(),
            limit: asked.own.map(|requests| Override { requests, unit: Unit::Second }),
            hits: match asked.hits {
                Hits::Take(number) => tidegate::limit::Hits::Take(hits(number)),
                Hits::Peek => tidegate::limit::Hits::Peek,
                Hits::GiveBack(number) => tidegate::limit::Hits::GiveBack(hits(number)),
            },
        });
    }
    let request = request.checked(&RequestLimits::default()).expect("a good request");
    let pinned = limiter.pin();
    let Decision { code, statuses } = pinned.decide(&request, now);
    let statuses = statuses.iter().map(|status| Status {
        is_over: status.code == Code::OverLimit,
        limit: status.limit.map(|_| Tightest {
            remaining: u64::from(status.remaining),
            reset: match status.reset {
                Some(Reset::After(wait)) => Wait::After(wait.as_nanos() as u64),
                Some(Reset::Never) => Wait::Never,
                None => Wait::Unknown,
            },
        }),
    });
    (code == Code::OverLimit, statuses.collect())
}
