//! Counts of decisions, from which the report is made.

use super::{
    DeniedMinute, DomainRow, Key, KeyRow, Keys, LoggedDecision, LoggedStatus, Report, RuleRow, Samples,
    Share, Side, report::KEYS_LISTED_MAX, unlimited::Unlimited,
};
use foldhash::fast::RandomState;
use smol_str::SmolStr;
use std::time::Duration;
use tidegate_core::limit::{Code, Decision, Request, Reset, Status, Timestamp};

/// Its order does not matter: reports are sorted.
type HashMap<K, V> = hashbrown::HashMap<K, V, RandomState>;

/// Nanoseconds of a minute.
const MINUTE: u64 = 60_000_000_000;

/// Stands for the rule of a descriptor without a limit.
const NO_LIMIT: &str = "(no limit)";
/// Stands for the rule if the limit is the request's own.
const OWN_LIMIT: &str = "(limit of the request)";
/// Stands for a rule that the log leaves out.
const REDACTED: &str = "(redacted)";

/// Stands for the rule if the log only has the verdict on the request.
const NOT_RECORDED: &str = "(not recorded)";

/// How a request was decided.
#[derive(Clone, Copy)]
pub(super) enum Outcome<'a, 'd> {
    /// The decision by rules.
    Decided(&'a Decision<'d>),
    /// The decision in the log.
    Recorded(&'a LoggedDecision<'d>),
}

#[derive(Clone, Copy)]
struct DescriptorOutcome<'a> {
    code: Code,
    remaining: u32,
    reset: Option<Reset>,
    /// Whether `reset` is an estimate from the mean hold of slots. A server forgets the mean hold of a counter without slots, and logs do
    /// not contain when.
    is_estimate: bool,
    rule: &'a str,
}

impl<'a> Outcome<'a, '_> {
    fn code(self) -> Code {
        match self {
            Self::Decided(decision) => decision.code,
            Self::Recorded(logged) => logged.code,
        }
    }

    /// The outcomes by descriptor.
    fn statuses(self) -> impl Iterator<Item = DescriptorOutcome<'a>> {
        let descriptors = match self {
            Self::Decided(decision) => decision.statuses.len(),
            Self::Recorded(logged) => logged.statuses.len(),
        };
        (0..descriptors).map(move |descriptor| self.status(descriptor))
    }

    #[inline]
    fn status(self, descriptor: usize) -> DescriptorOutcome<'a> {
        match self {
            Self::Decided(decision) => {
                let status: &Status<'_> = &decision.statuses[descriptor];
                let rule = match (status.limit, status.rule) {
                    (None, _) => NO_LIMIT,
                    (Some(_), Some(rule)) => &rule.path,
                    (Some(_), None) => OWN_LIMIT,
                };
                let Status { code, remaining, reset, .. } = *status;
                let is_estimate = code == Code::OverLimit && status.rule.is_some_and(|rule| rule.holds_slots);
                DescriptorOutcome { code, remaining, reset, is_estimate, rule }
            }
            Self::Recorded(logged) => {
                let Some(LoggedStatus { code, remaining, reset, rule }) = logged.statuses[descriptor] else {
                    return DescriptorOutcome {
                        code: logged.code,
                        remaining: 0,
                        reset: None,
                        is_estimate: false,
                        rule: NOT_RECORDED,
                    };
                };
                let rule = match rule {
                    None => NO_LIMIT,
                    Some("") if logged.request.descriptors()[descriptor].limit.is_some() => OWN_LIMIT,
                    Some("") => REDACTED,
                    Some(path) => path,
                };
                DescriptorOutcome { code, remaining, reset, is_estimate: false, rule }
            }
        }
    }

    fn has_statuses(self) -> bool {
        match self {
            Self::Decided(_) => true,
            Self::Recorded(logged) => logged.statuses.iter().all(Option::is_some),
        }
    }
}

/// Counts of all decisions so far.
#[derive(Default)]
pub(super) struct Tally {
    /// The figures that are complete after each request.
    report: Report,
    proposed: SideTally,
    current: SideTally,
    domains: ByName<DomainTally>,
    keys_newly_denied: HashMap<Key, u64>,
    keys_newly_admitted: HashMap<Key, u64>,
}

#[derive(Default)]
struct DomainTally {
    shares: Shares,
    /// Descriptors by the path of their rule.
    rules: ByName<Shares>,
}

/// The shares of both sides.
#[derive(Default)]
struct Shares {
    proposed: Share,
    current: Share,
}

/// Counts by name.
#[derive(Default)]
struct ByName<T> {
    indices: HashMap<String, usize>,
    all: Vec<(SmolStr, T)>,
    /// Indices of the names that were counted last, by a part of each name. Most names are found without a hash.
    last: [usize; 16],
}

impl<T: Default> ByName<T> {
    #[inline]
    fn of(&mut self, name: &str) -> &mut T {
        let part = name.as_bytes().get(name.len() / 4).map_or(0, |byte| usize::from(*byte));
        let last = &mut self.last[(name.len() ^ part) % 16];
        if self.all.get(*last).is_none_or(|(own, _)| own != name) {
            let added = self.all.len();
            *last = *self.indices.entry_ref(name).or_insert(added);
            if *last == added {
                self.all.push((name.into(), T::default()));
            }
        }
        &mut self.all[*last].1
    }

    /// All counts in the order of their names.
    fn sorted(mut self) -> Vec<(SmolStr, T)> {
        self.all.sort_by(|(one, _), (other, _)| one.cmp(other));
        self.all
    }
}

impl Tally {
    pub(super) fn new(is_current_recorded: bool) -> Self {
        Self { report: Report { is_current_recorded, ..Report::default() }, ..Self::default() }
    }

    /// Counts a request that was decided at `now`.
    pub(super) fn add(
        &mut self,
        logged: &LoggedDecision<'_>,
        proposed: Outcome<'_, '_>,
        current: Outcome<'_, '_>,
        now: Timestamp,
    ) {
        let is_same = self.add_to_domain(logged.request.domain(), proposed, current);
        let report = &mut self.report;
        report.first.get_or_insert(now);
        report.last = Some(now);
        report.with_hashes += u64::from(logged.is_hashed);
        report.samples = match (logged.sample, report.samples) {
            (sample, _) if report.requests == 0 => Samples { least: sample, greatest: sample },
            (sample, Samples { least, greatest }) => {
                Samples { least: least.min(sample), greatest: greatest.max(sample) }
            }
        };
        report.requests += 1;
        report.over_time.add(now, proposed.code(), current.code());
        report.responses_changed += u64::from(!is_same);
        self.proposed.add(proposed, now);
        self.current.add(current, now);
        note_unlimited(&mut report.unlimited, &logged.request, proposed);
        match (current.code(), proposed.code()) {
            (Code::Ok, Code::OverLimit) => {
                report.newly_denied += 1;
                add_keys(&mut self.keys_newly_denied, &logged.request, proposed, current);
            }
            (Code::OverLimit, Code::Ok) => {
                report.newly_admitted += 1;
                add_keys(&mut self.keys_newly_admitted, &logged.request, current, proposed);
            }
            (Code::Ok, Code::Ok) | (Code::OverLimit, Code::OverLimit) => {}
        }
    }

    /// Counts by domain and rule. Returns whether a client would be sent the same response. Names of rules do not matter. Without recorded
    /// statuses, only verdicts are compared.
    fn add_to_domain(&mut self, domain: &str, proposed: Outcome<'_, '_>, current: Outcome<'_, '_>) -> bool {
        let domain = self.domains.of(domain);
        domain.shares.proposed.add(proposed.code());
        domain.shares.current.add(current.code());
        let mut are_same = true;
        for (proposed, current) in proposed.statuses().zip(current.statuses()) {
            let facts = |status: &DescriptorOutcome<'_>| (status.code, status.remaining);
            let is_exact = !proposed.is_estimate && !current.is_estimate;
            are_same &= facts(&proposed) == facts(&current) && (!is_exact || proposed.reset == current.reset);
            let rule = domain.rules.of(proposed.rule);
            rule.proposed.add(proposed.code);
            // Most rules have the same name on both sides.
            let rule = match current.rule == proposed.rule {
                true => rule,
                false => domain.rules.of(current.rule),
            };
            rule.current.add(current.code);
        }
        proposed.code() == current.code() && (are_same || !proposed.has_statuses() || !current.has_statuses())
    }

    /// The report, with the number of requests that were out of order.
    pub(super) fn into_report(self, out_of_order: u64) -> Report {
        let mut report = self.report;
        let span = report.first.zip(report.last).map_or(Duration::ZERO, |(first, last)| last.since(first));
        for (domain, DomainTally { shares: Shares { proposed, current }, rules }) in self.domains.sorted() {
            for (rule, Shares { proposed, current }) in rules.sorted() {
                report.rules.push(RuleRow {
                    domain: domain.clone(),
                    rule,
                    limits: Vec::new(),
                    proposed,
                    current,
                });
            }
            report.domains.push(DomainRow { domain, proposed, current });
        }
        Report {
            proposed: self.proposed.into_side(),
            current: self.current.into_side(),
            keys_newly_denied: keys(self.keys_newly_denied, span),
            keys_newly_admitted: keys(self.keys_newly_admitted, span),
            out_of_order,
            ..report
        }
    }
}

fn note_unlimited(unlimited: &mut Unlimited, request: &Request<'_>, proposed: Outcome<'_, '_>) {
    let Outcome::Decided(decision) = proposed else { return };
    let statuses = decision.statuses.iter().enumerate();
    for (descriptor, _) in statuses.filter(|(_, status)| status.limit.is_none()) {
        unlimited.note(request, descriptor);
    }
}

impl Share {
    fn add(&mut self, code: Code) {
        self.all += 1;
        self.denied += u64::from(code == Code::OverLimit);
    }
}

/// Counts the keys of a request that is denied on one side only: descriptors that are over their limit only there. If there is none, for
/// example after a change of `quota_mode`, all descriptors that are over their limit there.
fn add_keys(
    keys: &mut HashMap<Key, u64>,
    request: &Request<'_>,
    denied: Outcome<'_, '_>,
    admitted: Outcome<'_, '_>,
) {
    let both = || request.descriptors().iter().zip(denied.statuses().zip(admitted.statuses()));
    let is_over = |status: &DescriptorOutcome<'_>| status.code == Code::OverLimit;
    let differs = both().any(|(_, (there, here))| is_over(&there) && !is_over(&here));
    for (descriptor, (there, here)) in both() {
        if is_over(&there) && !(differs && is_over(&here)) {
            let entries = descriptor.entries.iter().map(|entry| (entry.key.into(), entry.value.into()));
            let key = Key { domain: request.domain().into(), entries: entries.collect() };
            *keys.entry(key).or_default() += 1;
        }
    }
}

/// The keys with the most requests. A log shorter than a minute counts as a minute.
fn keys(counts: HashMap<Key, u64>, span: Duration) -> Keys {
    let all = counts.len() as u64;
    let minutes = (span.as_secs_f64() / 60.0).max(1.0);
    let mut counts: Vec<(Key, u64)> = counts.into_iter().collect();
    counts.sort_by(|(key, count), (other_key, other)| other.cmp(count).then_with(|| key.cmp(other_key)));
    counts.truncate(KEYS_LISTED_MAX);
    let row = |(key, requests)| KeyRow { key, requests, per_minute: requests as f64 / minutes };
    Keys { all, top: counts.into_iter().map(row).collect() }
}

/// One side, with the minute of the latest request, which is incomplete.
#[derive(Default)]
struct SideTally {
    side: Side,
    minute: Option<DeniedMinute>,
}

impl SideTally {
    fn add(&mut self, outcome: Outcome<'_, '_>, now: Timestamp) {
        let start = Timestamp::from_nanos(now.as_nanos() / MINUTE * MINUTE);
        if self.minute.is_none_or(|minute| minute.start != start) {
            self.end_minute();
        }
        let minute = self.minute.get_or_insert(DeniedMinute { start, requests: 0, denied: 0 });
        minute.requests += 1;
        if outcome.code() == Code::Ok {
            self.side.admitted += 1;
            return;
        }
        minute.denied += 1;
        self.side.denied += 1;
        let over = outcome.statuses().filter(|status| status.code == Code::OverLimit);
        // All descriptors that are over have to be admitted, so that the latest of them decides.
        match over.filter_map(|status| status.reset).max() {
            Some(Reset::After(wait)) => self.side.longest_wait = self.side.longest_wait.max(Some(wait)),
            Some(Reset::Never) => self.side.never_admitted += 1,
            None => {}
        }
    }

    fn end_minute(&mut self) {
        let Some(minute) = self.minute.take().filter(|minute| minute.denied > 0) else { return };
        if self.side.worst_minute.is_none_or(|worst| minute.denied > worst.denied) {
            self.side.worst_minute = Some(minute);
        }
    }

    fn into_side(mut self) -> Side {
        self.end_minute();
        self.side
    }
}
