//! Counts of decisions, from which the report is made.

use super::{
    DeniedMinute, DomainRow, Event, Key, KeyRow, Keys, Report, RuleRow, Samples, Series, Share, Side,
    report::KEYS_LISTED_MAX,
};
use crate::limit::{Code, Decision, Reset, Status, Timestamp};
use foldhash::fast::RandomState;
use smallvec::SmallVec;
use smol_str::SmolStr;
use std::time::Duration;

/// Its order is never seen: what is reported is sorted.
type HashMap<K, V> = hashbrown::HashMap<K, V, RandomState>;

/// Nanoseconds of a minute.
const MINUTE: u64 = 60_000_000_000;

/// Stands for a rule where no limit applies to a descriptor.
const NO_LIMIT: &str = "(no limit)";
/// Stands for a rule where the limit is the request's own.
const OWN_LIMIT: &str = "(limit of the request)";
/// Stands for a rule that the log leaves out.
const REDACTED: &str = "(redacted)";

/// Stands for a rule where the log has the verdict on the request only.
const NOT_RECORDED: &str = "(not recorded)";

/// How a request was decided, whether by rules or in the log.
pub(super) struct Outcome<'a> {
    code: Code,
    statuses: SmallVec<[DescriptorOutcome<'a>; 4]>,
}

#[derive(Clone, Copy)]
struct DescriptorOutcome<'a> {
    code: Code,
    remaining: u32,
    reset: Option<Reset>,
    rule: &'a str,
}

impl<'a> Outcome<'a> {
    /// A decision by rules.
    pub(super) fn decided(decision: &Decision<'a>) -> Self {
        let rule = |status: &Status<'a>| match (status.limit, status.rule) {
            (None, _) => NO_LIMIT,
            (Some(_), Some(rule)) => &rule.path,
            (Some(_), None) => OWN_LIMIT,
        };
        let statuses = decision.statuses.iter().map(|status| DescriptorOutcome {
            code: status.code,
            remaining: status.remaining,
            reset: status.reset,
            rule: rule(status),
        });
        Self { code: decision.code, statuses: statuses.collect() }
    }

    /// The decision in the log.
    pub(super) fn recorded(event: &'a Event) -> Self {
        let statuses = event.descriptors.iter().map(|descriptor| {
            let Some(recorded) = &descriptor.recorded else {
                return DescriptorOutcome { code: event.code, remaining: 0, reset: None, rule: NOT_RECORDED };
            };
            let rule = match recorded.rule.as_deref() {
                None => NO_LIMIT,
                Some("") if descriptor.own_limit.is_some() => OWN_LIMIT,
                Some("") => REDACTED,
                Some(path) => path,
            };
            DescriptorOutcome {
                code: recorded.code,
                remaining: recorded.remaining,
                reset: recorded.reset,
                rule,
            }
        });
        Self { code: event.code, statuses: statuses.collect() }
    }

    /// Whether a client would be sent the same response. The names of rules do not matter.
    /// Without recorded statuses, verdicts are compared.
    fn is_same_response(&self, other: &Outcome<'_>) -> bool {
        let facts = |status: &DescriptorOutcome<'_>| (status.code, status.remaining, status.reset);
        let has_statuses =
            |outcome: &Outcome<'_>| outcome.statuses.iter().all(|status| status.rule != NOT_RECORDED);
        if !has_statuses(self) || !has_statuses(other) {
            return self.code == other.code;
        }
        self.code == other.code && self.statuses.iter().map(facts).eq(other.statuses.iter().map(facts))
    }
}

/// Counts of all decisions so far.
pub(super) struct Tally {
    requests: u64,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
    is_current_recorded: bool,
    proposed: SideTally,
    current: SideTally,
    newly_denied: u64,
    newly_admitted: u64,
    responses_changed: u64,
    domains: HashMap<String, usize>,
    of_domains: Vec<DomainTally>,
    /// Of the last request: most logs have few domains.
    last_domain: usize,
    keys_newly_denied: HashMap<Key, u64>,
    keys_newly_admitted: HashMap<Key, u64>,
    with_hashes: u64,
    out_of_order: u64,
    samples: Option<Samples>,
    over_time: Series,
}

struct DomainTally {
    name: SmolStr,
    proposed: Share,
    current: Share,
    /// Under the proposed and the current rules.
    rules: HashMap<String, (Share, Share)>,
}

impl Tally {
    pub(super) fn new(is_current_recorded: bool) -> Self {
        Self {
            requests: 0,
            first: None,
            last: None,
            is_current_recorded,
            proposed: SideTally::default(),
            current: SideTally::default(),
            newly_denied: 0,
            newly_admitted: 0,
            responses_changed: 0,
            domains: HashMap::default(),
            of_domains: Vec::new(),
            last_domain: 0,
            keys_newly_denied: HashMap::default(),
            keys_newly_admitted: HashMap::default(),
            with_hashes: 0,
            out_of_order: 0,
            samples: None,
            over_time: Series::default(),
        }
    }

    /// Counts a request that was decided at `now`.
    pub(super) fn add(
        &mut self,
        event: &Event,
        proposed: &Outcome<'_>,
        current: &Outcome<'_>,
        now: Timestamp,
    ) {
        self.requests += 1;
        self.first.get_or_insert(now);
        self.last = Some(now);
        self.with_hashes += u64::from(event.is_hashed);
        self.out_of_order += u64::from(event.place.is_none() && event.time < now);
        let sample = event.sample;
        let samples = self.samples.get_or_insert(Samples { least: sample, greatest: sample });
        samples.least = samples.least.min(sample);
        samples.greatest = samples.greatest.max(sample);
        self.proposed.add(proposed, now);
        self.current.add(current, now);
        self.over_time.add(now, proposed.code, current.code);
        self.add_to_domain(event, proposed, current);
        self.responses_changed += u64::from(!proposed.is_same_response(current));
        match (current.code, proposed.code) {
            (Code::Ok, Code::OverLimit) => {
                self.newly_denied += 1;
                add_keys(&mut self.keys_newly_denied, event, proposed, current);
            }
            (Code::OverLimit, Code::Ok) => {
                self.newly_admitted += 1;
                add_keys(&mut self.keys_newly_admitted, event, current, proposed);
            }
            (Code::Ok, Code::Ok) | (Code::OverLimit, Code::OverLimit) => {}
        }
    }

    fn add_to_domain(&mut self, event: &Event, proposed: &Outcome<'_>, current: &Outcome<'_>) {
        let domain = self.domain(&event.domain);
        domain.proposed.add(proposed.code);
        domain.current.add(current.code);
        for (proposed, current) in proposed.statuses.iter().zip(&current.statuses) {
            let shares = domain.rules.entry_ref(proposed.rule).or_default();
            shares.0.add(proposed.code);
            // Most rules have the same name on both sides.
            let shares = match current.rule == proposed.rule {
                true => shares,
                false => domain.rules.entry_ref(current.rule).or_default(),
            };
            shares.1.add(current.code);
        }
    }

    fn domain(&mut self, name: &SmolStr) -> &mut DomainTally {
        if self.of_domains.get(self.last_domain).is_none_or(|last| last.name != *name) {
            let added = self.of_domains.len();
            self.last_domain = *self.domains.entry_ref(name.as_str()).or_insert(added);
            if self.last_domain == added {
                self.of_domains.push(DomainTally {
                    name: name.clone(),
                    proposed: Share::default(),
                    current: Share::default(),
                    rules: HashMap::default(),
                });
            }
        }
        &mut self.of_domains[self.last_domain]
    }

    pub(super) fn into_report(self) -> Report {
        let span = self.first.zip(self.last).map_or(Duration::ZERO, |(first, last)| last.since(first));
        let (mut domains, mut rules) = (Vec::new(), Vec::new());
        for tally in self.of_domains {
            let domain = tally.name;
            rules.extend(tally.rules.into_iter().map(|(rule, (proposed, current))| RuleRow {
                domain: domain.clone(),
                rule: rule.into(),
                proposed,
                current,
            }));
            domains.push(DomainRow { domain, proposed: tally.proposed, current: tally.current });
        }
        domains.sort_by(|one, other| one.domain.cmp(&other.domain));
        rules.sort_by(|one, other| (&one.domain, &one.rule).cmp(&(&other.domain, &other.rule)));
        Report {
            requests: self.requests,
            first: self.first,
            last: self.last,
            is_current_recorded: self.is_current_recorded,
            proposed: self.proposed.into_side(),
            current: self.current.into_side(),
            newly_denied: self.newly_denied,
            newly_admitted: self.newly_admitted,
            responses_changed: self.responses_changed,
            domains,
            rules,
            keys_newly_denied: keys(self.keys_newly_denied, span),
            keys_newly_admitted: keys(self.keys_newly_admitted, span),
            with_hashes: self.with_hashes,
            out_of_order: self.out_of_order,
            samples: self.samples.unwrap_or(Samples { least: 1.0, greatest: 1.0 }),
            over_time: self.over_time,
        }
    }
}

impl Share {
    fn add(&mut self, code: Code) {
        self.all += 1;
        self.denied += u64::from(code == Code::OverLimit);
    }
}

/// Counts the keys of a request that is denied on one side only: descriptors that are over their limit there only, or, if
/// there is none, as after a change of `quota_mode`, all that are over their limit there.
fn add_keys(keys: &mut HashMap<Key, u64>, event: &Event, denied: &Outcome<'_>, admitted: &Outcome<'_>) {
    let both = || event.descriptors.iter().zip(denied.statuses.iter().zip(&admitted.statuses));
    let is_over = |status: &DescriptorOutcome<'_>| status.code == Code::OverLimit;
    let differs = both().any(|(_, (there, here))| is_over(there) && !is_over(here));
    for (descriptor, (there, here)) in both() {
        if is_over(there) && !(differs && is_over(here)) {
            let key = Key { domain: event.domain.clone(), entries: descriptor.entries.clone() };
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

/// One side, with the minute of the latest request, which is not complete.
#[derive(Default)]
struct SideTally {
    side: Side,
    minute: Option<DeniedMinute>,
}

impl SideTally {
    fn add(&mut self, outcome: &Outcome<'_>, now: Timestamp) {
        let start = Timestamp::from_nanos(now.as_nanos() / MINUTE * MINUTE);
        if self.minute.is_none_or(|minute| minute.start != start) {
            self.end_minute();
        }
        let minute = self.minute.get_or_insert(DeniedMinute { start, requests: 0, denied: 0 });
        minute.requests += 1;
        if outcome.code == Code::Ok {
            self.side.admitted += 1;
            return;
        }
        minute.denied += 1;
        self.side.denied += 1;
        let over = outcome.statuses.iter().filter(|status| status.code == Code::OverLimit);
        // All descriptors that are over have to be admitted: the latest of them decides.
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
