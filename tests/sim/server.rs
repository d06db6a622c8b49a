//! The limiter under test as a process runs it: with the calls of queued requests, and a disk that outlives the process.

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
    limiter::{Due, Limiter, QueuePoll, Ticket, Verdict},
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
    /// In the order of arrival.
    queued: Vec<Call>,
    /// The latest time of a step in this process.
    latest: u64,
    /// Whether the clock went back in this process, which no clock of a server does.
    is_set_back: bool,
}

/// The call of a queued request.
struct Call {
    asked: Vec<Asked>,
    ticket: Ticket,
    /// The result of its last poll.
    polled: QueuePoll,
    bell: Arc<Bell>,
}

/// Whether a call was woken since it was polled last.
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
        let rules = rules.clone();
        Self { settings, rules, disk, limiter, writer, queued: Vec::new(), latest: 0, is_set_back: false }
    }

    /// Lets a step happen; what those are told who learn something by it, in the order of coming.
    pub fn play(&mut self, Step { now, what }: &Step) -> Vec<Told> {
        self.is_set_back |= *now < self.latest;
        self.latest = *now;
        match what {
            What::Ask { asked, patience } => return vec![self.ask(asked, *patience, *now)],
            What::GiveUp(number) => {
                if let Some(index) = number.checked_rem(self.queued.len()) {
                    let call = self.queued.remove(index);
                    self.limiter.cancel(call.ticket, moment(*now));
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
        let bell: Arc<Bell> = Arc::default();
        let polled = self.limiter.poll(&ticket, &Waker::from(Arc::clone(&bell)), moment(now));
        self.queued.push(Call { asked: asked.to_vec(), ticket, polled, bell });
        Told::Held
    }

    /// Counters that there are, expired ones that nobody swept too.
    pub fn counters(&self) -> usize {
        self.limiter.store().counters()
    }

    /// The time that each queued request still waits. An error if its call would be released late: calls are polled
    /// when they are woken, and at the time that the last poll returned.
    pub fn waits(&mut self, now: u64) -> Result<Vec<u64>, &'static str> {
        loop {
            let mut polls = 0;
            for Call { ticket, polled, bell, .. } in &mut self.queued {
                let is_woken = bell.0.swap(false, Ordering::Relaxed);
                if is_woken || matches!(*polled, QueuePoll::Again(at) if at <= moment(now)) {
                    *polled = self.limiter.poll(ticket, &Waker::from(Arc::clone(bell)), moment(now));
                    polls += 1;
                }
            }
            if polls == 0 {
                break;
            }
        }
        let mut waits = Vec::new();
        for Call { ticket, polled, .. } in &self.queued {
            let Due::At(release) = self.limiter.due(ticket) else { return Err("queued beyond the end") };
            if release <= moment(now) && *polled != QueuePoll::Release && !self.is_set_back {
                return Err("not polled at its release time");
            }
            waits.push(release.as_nanos().saturating_sub(now));
        }
        Ok(waits)
    }

    fn answer_all_due(&mut self, now: u64) -> Vec<Told> {
        let mut answers = Vec::new();
        let (due, later) = std::mem::take(&mut self.queued).into_iter().partition(|call: &Call| {
            matches!(self.limiter.due(&call.ticket), Due::At(release) if release <= moment(now))
        });
        self.queued = later;
        for Call { asked, ticket, .. } in due {
            let (names, pinned) = (names(&asked), self.limiter.pin());
            answers.push(told(&pinned.queued_decision(&request(&asked, &names), &ticket, moment(now))));
            self.limiter.release(ticket);
        }
        answers
    }

    /// From now on no request is queued or released beyond the end.
    fn end(&mut self, ends: u64, now: u64) -> Vec<Told> {
        self.limiter.end_queues_at(moment(ends));
        let mut cancelled = Vec::new();
        for call in std::mem::take(&mut self.queued) {
            // Those cancelled before it may have advanced it.
            if self.limiter.due(&call.ticket) == Due::TooLate {
                self.limiter.cancel(call.ticket, moment(now));
                cancelled.push(self.ask(&call.asked, 0, now));
            } else {
                self.queued.push(call);
            }
        }
        cancelled
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
        self.queued.clear();
        (self.latest, self.is_set_back) = (now, false);
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
