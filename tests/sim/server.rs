//! The limiter under test as a process runs it: with the calls of queued requests, and a disk that outlives the process.

use crate::{
    outcome::{DescriptorHits, Hits, Outcome, Status, Tightest, Wait},
    rules::Rules,
    traffic::{Event, Step},
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
use tidegate_core::{
    clock::ManualClock,
    limit::{
        Code, Decision, Descriptor, Entry, Request, RequestLimit, RequestLimits, Reset, Timestamp, Unit,
    },
    limiter::{Due, Limiter, QueueDecision, QueuePoll, QueuePosition},
    rules::{LoadOptions, RuleSet, Semantics, Source},
    store::{OnFull, Seed, StoreSettings},
};
use tidegate_snapshot::{SimulatedDisk, Writer, start_simulated};

/// State of the running process, and the disk, which outlives it.
pub struct Server {
    settings: Settings,
    rules: Rules,
    disk: SimulatedDisk,
    limiter: Arc<Limiter>,
    writer: Writer,
    /// In the order of arrival.
    queued: Vec<Call>,
    /// The latest time of a step in this process.
    latest: u64,
    /// Whether time ran backwards in this process; the clock of a real server never does.
    is_set_back: bool,
}

/// The call of a queued request.
struct Call {
    descriptors: Vec<DescriptorHits>,
    ticket: QueuePosition,
    /// The result of its last poll.
    polled: QueuePoll,
    wake_flag: Arc<WakeFlag>,
}

/// Whether a call was woken since it was polled last.
#[derive(Default)]
pub struct WakeFlag(pub AtomicBool);

impl Wake for WakeFlag {
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

    /// Runs a step. Returns the results of all requests that it completes, in the order of arrival.
    pub fn play(&mut self, Step { now, event }: &Step) -> Vec<Outcome> {
        self.is_set_back |= *now < self.latest;
        self.latest = *now;
        match event {
            Event::Request { descriptors, max_wait } => {
                return vec![self.decide(descriptors, *max_wait, *now)];
            }
            Event::Cancel(number) => {
                if let Some(index) = number.checked_rem(self.queued.len()) {
                    let call = self.queued.remove(index);
                    self.limiter.cancel(call.ticket, moment(*now));
                }
            }
            Event::Release => return self.release_all(*now),
            Event::EndQueues(after) => return self.end_queues(now + after, *now),
            Event::ChangeRules(rules) => {
                self.rules = rules.clone();
                let (sources, options) = rule_sources(self.settings, rules);
                let next = self.limiter.update_rules().build(&sources, &options);
                drop(next.unwrap_or_else(|errors| panic!("{errors}")).put_in_force());
            }
            Event::Reload { rules, meanwhile } => return self.reload(rules.as_ref(), meanwhile),
            Event::FreeLimits => _ = self.limiter.collect_limits(),
            Event::Sweep => self.sweep(*now),
            Event::Snapshot => self.write_snapshot(*now),
            Event::Restart(start) => {
                let mut outcomes = self.release_all(*now);
                outcomes.extend(self.end_queues(*now, *now));
                self.write_snapshot(*now);
                self.restart(*start);
                return outcomes;
            }
            Event::Crash(start) => self.restart(*start),
        }
        Vec::new()
    }

    /// Builds rules, or finds the error in them, and puts them in force after the steps that occur meanwhile.
    fn reload(&mut self, rules: Option<&Rules>, meanwhile: &[Step]) -> Vec<Outcome> {
        let limiter = Arc::clone(&self.limiter);
        let (mut sources, options) = rule_sources(self.settings, rules.unwrap_or(&self.rules));
        if rules.is_none() {
            sources = [Source::file("sim.yaml", self.rules.yaml() + "no_such_key: 1\n")];
        }
        let next = limiter.update_rules().build(&sources, &options);
        let mut outcomes = Vec::new();
        for step in meanwhile {
            if let (Event::Crash(_), Some(rules)) = (&step.event, rules) {
                self.rules = rules.clone();
            }
            outcomes.extend(self.play(step));
        }
        match (rules, next) {
            (Some(rules), Ok(next)) => {
                self.rules = rules.clone();
                drop(next.put_in_force());
            }
            (None, Err(_)) => {}
            (_, next) => panic!("unexpected result of a reload: {:?}", next.err()),
        }
        outcomes
    }

    fn decide(&mut self, descriptors: &[DescriptorHits], max_wait: u64, now: u64) -> Outcome {
        if self.settings.may_fill_up() {
            self.sweep(now);
        }
        let names = names(descriptors);
        let (request, pinned) = (request(descriptors, &names), self.limiter.pin());
        let ticket = match pinned.decide_or_queue(&request, Duration::from_nanos(max_wait), moment(now)) {
            QueueDecision::Decided(decision) => return outcome(&decision),
            QueueDecision::Queued(ticket) => ticket,
            QueueDecision::Waits(_) => unreachable!("no rule has slots"),
        };
        let wake_flag: Arc<WakeFlag> = Arc::default();
        let polled = self.limiter.poll(&ticket, &Waker::from(Arc::clone(&wake_flag)), moment(now));
        self.queued.push(Call { descriptors: descriptors.to_vec(), ticket, polled, wake_flag });
        Outcome::Queued
    }

    /// Number of counters, including expired counters that were not swept.
    pub fn counters(&self) -> usize {
        self.limiter.store().counters()
    }

    /// The time that each queued request still waits. An error if its call would be released late: calls are polled
    /// when they are woken, and at the time that the last poll returned.
    pub fn remaining_waits(&mut self, now: u64) -> Result<Vec<u64>, &'static str> {
        loop {
            let mut polls = 0;
            for Call { ticket, polled, wake_flag, .. } in &mut self.queued {
                let is_woken = wake_flag.0.swap(false, Ordering::Relaxed);
                if is_woken || matches!(*polled, QueuePoll::Again(at) if at <= moment(now)) {
                    *polled = self.limiter.poll(ticket, &Waker::from(Arc::clone(wake_flag)), moment(now));
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

    fn release_all(&mut self, now: u64) -> Vec<Outcome> {
        let mut released = Vec::new();
        let (due, later) = std::mem::take(&mut self.queued).into_iter().partition(|call: &Call| {
            matches!(self.limiter.due(&call.ticket), Due::At(release) if release <= moment(now))
        });
        self.queued = later;
        for Call { descriptors, ticket, .. } in due {
            let (names, pinned) = (names(&descriptors), self.limiter.pin());
            released.push(outcome(&pinned.queued_decision(
                &request(&descriptors, &names),
                &ticket,
                moment(now),
            )));
            self.limiter.release(ticket);
        }
        released
    }

    /// From now on no request is queued or released after the end.
    fn end_queues(&mut self, ends: u64, now: u64) -> Vec<Outcome> {
        self.limiter.end_queues_at(moment(ends));
        let mut cancelled = Vec::new();
        for call in std::mem::take(&mut self.queued) {
            // Cancelled requests before it may have advanced it.
            if self.limiter.due(&call.ticket) == Due::TooLate {
                self.limiter.cancel(call.ticket, moment(now));
                cancelled.push(self.decide(&call.descriptors, 0, now));
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

/// Starts a process from the disk.
fn start(settings: Settings, rules: &Rules, disk: &SimulatedDisk, now: u64) -> (Arc<Limiter>, Writer) {
    let on_full = if settings.denies_when_full { OnFull::Deny } else { OnFull::Allow };
    let build = |seed| {
        let store = StoreSettings { seed, counters_max: settings.counters_max, on_full };
        Limiter::new(rule_set(settings, rules), store, false).with_queued_max(settings.queued_max)
    };
    let started = start_simulated(disk, Seed::from_bytes([3; 16]), build, moment(now));
    let (limiter, writer, _) = started.expect("event was written can be restored");
    limiter.drop_ended_bans();
    (Arc::new(limiter), writer)
}

fn rule_sources(settings: Settings, rules: &Rules) -> ([Source; 1], LoadOptions) {
    let semantics = if settings.is_reference { Semantics::Reference } else { Semantics::Exact };
    ([Source::file("sim.yaml", rules.yaml())], LoadOptions { semantics, ..LoadOptions::default() })
}

fn rule_set(settings: Settings, rules: &Rules) -> RuleSet {
    let (sources, options) = rule_sources(settings, rules);
    RuleSet::parse(&sources, &options).unwrap_or_else(|errors| panic!("{errors}"))
}

pub fn moment(nanos: u64) -> Timestamp {
    Timestamp::from_nanos(nanos)
}

/// Key and value of each descriptor.
pub fn names(descriptors: &[DescriptorHits]) -> Vec<(String, String)> {
    descriptors
        .iter()
        .map(|DescriptorHits { rule, value, .. }| (format!("k{rule}"), format!("v{value}")))
        .collect()
}

pub fn request<'n>(descriptors: &[DescriptorHits], names: &'n [(String, String)]) -> Request<'n> {
    let mut request = Request::new("sim");
    for (descriptor, (key, value)) in descriptors.iter().zip(names) {
        let hits = |hits| NonZeroU64::new(hits).expect("at least one hit");
        request.push(Descriptor {
            entries: [Entry { key, value }].into_iter().collect(),
            limit: descriptor.own.map(|requests| RequestLimit { requests, unit: Unit::Second }),
            hits: match descriptor.hits {
                Hits::Take(number) => tidegate_core::limit::Hits::Take(hits(number)),
                Hits::Peek => tidegate_core::limit::Hits::Peek,
                Hits::GiveBack(number) => tidegate_core::limit::Hits::GiveBack(hits(number)),
            },
        });
    }
    request.checked(&RequestLimits::default()).expect("a good request")
}

pub fn outcome(Decision { code, statuses, .. }: &Decision<'_>) -> Outcome {
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
    Outcome::Decided(*code == Code::OverLimit, statuses.collect())
}
