//! The limiter under trial, as a process has it: with the calls that wait for their answers, and a disk that outlives it.

use crate::{
    naive::{Asked, Hits, Status, Tightest, Told, Wait},
    rules::Rules,
    traffic::{Step, What},
    world::Settings,
};
use std::{
    num::NonZeroU64,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Wake, Waker},
    time::Duration,
};
use tidegate::{
    clock::ManualClock,
    limit::{Code, Decision, Descriptor, Entry, Override, Request, RequestLimits, Reset, Timestamp, Unit},
    limiter::{Due, Limiter, Ticket, Verdict},
    rules::{LoadOptions, RuleSet, Semantics, Source},
    snapshot::{SimulatedDisk, Writer, start_simulated},
    store::{OnFull, Seed, StoreSettings},
};

/// What a process has of it, and what outlives the process.
pub struct Server {
    settings: Settings,
    rules: Rules,
    disk: SimulatedDisk,
    limiter: Limiter,
    writer: Writer,
    /// In the order of coming.
    waiting: Vec<Waiting>,
}

/// A call that waits for its answer.
struct Waiting {
    asked: Vec<Asked>,
    ticket: Ticket,
    /// As it was when it was asked for last.
    due: Due,
    bell: Arc<Bell>,
}

/// Whether one who waits was told to ask again for its turn.
#[derive(Default)]
struct Bell(AtomicBool);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Server {
    pub fn start(settings: Settings, rules: &Rules) -> Self {
        let disk = SimulatedDisk::default();
        let (limiter, writer) = start(settings, rules, &disk, 0);
        Self { settings, rules: rules.clone(), disk, limiter, writer, waiting: Vec::new() }
    }

    /// Lets a step happen; what those are told who learn something by it, in the order of coming.
    pub fn play(&mut self, Step { now, what }: &Step) -> Vec<Told> {
        match what {
            What::Ask { asked, patience } => return vec![self.ask(asked, *patience, *now)],
            What::GiveUp(number) => {
                if let Some(index) = number.checked_rem(self.waiting.len()) {
                    let gone = self.waiting.remove(index);
                    self.limiter.cancel(gone.ticket, moment(*now));
                }
            }
            What::Answer => return self.answer_all_due(*now),
            What::End(after) => return self.end(now + after, *now),
            What::ChangeRules(rules) => {
                self.rules = rules.clone();
                let (sources, options) = rule_sources(self.settings, rules);
                let next = self.limiter.update_rules().build(&sources, &options);
                drop(next.unwrap_or_else(|errors| panic!("{errors}")).put_in_force());
            }
            What::Sweep => self.sweep(*now),
            What::Snapshot => self.write_snapshot(*now),
            What::Restart(start) => {
                let mut told = self.answer_all_due(*now);
                told.extend(self.end(*now, *now));
                self.write_snapshot(*now);
                self.restart(*start);
                return told;
            }
            What::Crash(start) => self.restart(*start),
        }
        Vec::new()
    }

    fn ask(&mut self, asked: &[Asked], patience: u64, now: u64) -> Told {
        if self.settings.may_fill_up() {
            self.sweep(now);
        }
        let names = names(asked);
        let (request, pinned) = (request(asked, &names), self.limiter.pin());
        let ticket = match pinned.decide_or_queue(&request, Duration::from_nanos(patience), moment(now)) {
            Verdict::Decided(decision) => return told(&decision),
            Verdict::Queued(ticket) => ticket,
        };
        let bell = Arc::default();
        let due = self.limiter.due(&ticket, &Waker::from(Arc::clone(&bell)));
        self.waiting.push(Waiting { asked: asked.to_vec(), ticket, due, bell });
        Told::Held
    }

    /// Counters that there are, expired ones that nobody swept too.
    pub fn counters(&self) -> usize {
        self.limiter.store().counters()
    }

    /// How long each of those who wait still has to. An error if a turn has moved and nobody was told.
    pub fn waits(&mut self, now: u64) -> Result<Vec<u64>, &'static str> {
        let mut waits = Vec::new();
        for Waiting { ticket, due, bell, .. } in &mut self.waiting {
            let (former, was_told) = (*due, bell.0.swap(false, Ordering::Relaxed));
            *due = self.limiter.due(ticket, &Waker::from(Arc::clone(bell)));
            if *due != former && !was_told {
                return Err("nobody was told that a turn has moved");
            }
            let Due::At(turn) = *due else { return Err("who comes too late still waits") };
            waits.push(turn.as_nanos().saturating_sub(now));
        }
        Ok(waits)
    }

    fn answer_all_due(&mut self, now: u64) -> Vec<Told> {
        let mut answers = Vec::new();
        for Waiting { asked, ticket, due, bell } in std::mem::take(&mut self.waiting) {
            let has_come = matches!(due, Due::At(turn) if turn <= moment(now));
            if !has_come {
                self.waiting.push(Waiting { asked, ticket, due, bell });
                continue;
            }
            let (names, pinned) = (names(&asked), self.limiter.pin());
            answers.push(told(&pinned.queued_decision(&request(&asked, &names), &ticket, moment(now))));
            self.limiter.release(ticket);
        }
        answers
    }

    /// From now on no answer is held beyond the end.
    fn end(&mut self, ends: u64, now: u64) -> Vec<Told> {
        self.limiter.end_queues_at(moment(ends));
        let mut sent_away = Vec::new();
        for waiting in std::mem::take(&mut self.waiting) {
            // Whoever was sent away before it has made room.
            if self.limiter.due(&waiting.ticket, Waker::noop()) == Due::TooLate {
                self.limiter.cancel(waiting.ticket, moment(now));
                sent_away.push(self.ask(&waiting.asked, 0, now));
            } else {
                self.waiting.push(waiting);
            }
        }
        sent_away
    }

    fn sweep(&self, now: u64) {
        let store = self.limiter.store();
        for shard in 0..store.shard_count() {
            while !store.sweep(shard, 1, moment(now)).finished {}
        }
    }

    fn write_snapshot(&mut self, now: u64) {
        let rules = self.limiter.rules();
        let clock = ManualClock::new(moment(now));
        self.writer.pass(self.limiter.store(), rules.limits(), &clock).expect("memory takes it");
    }

    fn restart(&mut self, now: u64) {
        self.waiting.clear();
        (self.limiter, self.writer) = start(self.settings, &self.rules, &self.disk, now);
    }
}

/// A process that starts from what is on the disk.
fn start(settings: Settings, rules: &Rules, disk: &SimulatedDisk, now: u64) -> (Limiter, Writer) {
    let on_full = if settings.denies_when_full { OnFull::Deny } else { OnFull::Allow };
    let build = |seed| {
        let store = StoreSettings { seed, counters_max: settings.counters_max, on_full };
        Limiter::new(rule_set(settings, rules), store, false).with_queued_max(settings.waiting_max)
    };
    let started = start_simulated(disk, Seed::from_bytes([3; 16]), build, moment(now));
    let (limiter, writer, _) = started.expect("what was written can be restored");
    (limiter, writer)
}

fn rule_sources(settings: Settings, rules: &Rules) -> ([Source; 1], LoadOptions) {
    let semantics = if settings.is_reference { Semantics::Reference } else { Semantics::Exact };
    ([Source::file("sim.yaml", rules.yaml())], LoadOptions { semantics, ..LoadOptions::default() })
}

fn rule_set(settings: Settings, rules: &Rules) -> RuleSet {
    let (sources, options) = rule_sources(settings, rules);
    RuleSet::parse(&sources, &options).unwrap_or_else(|errors| panic!("{errors}"))
}

fn moment(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

/// The key and the value that each descriptor has.
fn names(asked: &[Asked]) -> Vec<(String, String)> {
    asked.iter().map(|asked| (format!("k{}", asked.rule), format!("v{}", asked.value))).collect()
}

fn request<'n>(asked: &[Asked], names: &'n [(String, String)]) -> Request<'n> {
    let mut request = Request::new("sim");
    for (asked, (key, value)) in asked.iter().zip(names) {
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
    request.checked(&RequestLimits::default()).expect("a good request")
}

fn told(Decision { code, statuses }: &Decision<'_>) -> Told {
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
    Told::Answer(*code == Code::OverLimit, statuses.collect())
}
