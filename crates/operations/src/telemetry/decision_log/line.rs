//! Lines of the decision log, version 2: `docs/decision-log.md` describes them.

use super::record::{DescriptorRecord, LimitRecord, Record};
use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};
use std::{collections::BTreeMap, fmt};
use tidegate_core::{
    limit::{Code, DenialCause, Hits, Reset},
    limiter::{RENEWAL_KEY, TICKET_KEY},
    rules::{Redaction, RuleSet},
};

/// The version of the format. It is raised by a change that a reader of the former version would misread.
pub(super) const VERSION: u32 = 2;

/// The redaction of values.
pub(super) struct Values<'s> {
    /// None before any rules are in force.
    pub(crate) rules: Option<&'s RuleSet>,
    /// Redaction of keys without a declaration.
    pub(crate) default: Redaction,
    /// The secret of the hashes.
    pub(crate) salt: &'s [u8],
}

/// A line: the fields of all kinds, then its content.
#[derive(Serialize)]
struct Line<C> {
    v: u32,
    time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<Run>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u64>,
    #[serde(flatten)]
    content: C,
}

/// The place of a line among those of its process.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// No place: decisions without a number, and lines outside their order.
    None,
    /// Only the process.
    Run(Run),
    /// The process, the number, and the generation of the rules.
    Numbered(Run, u64, u64),
}

#[derive(Serialize)]
struct DecisionFields<'r> {
    domain: &'r str,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    report: bool,
    code: Code,
    sample: f64,
    latency_ns: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    peer: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<Hex<16>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    span_id: Option<Hex<8>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ticket: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ticket_hash: Option<Hex<16>>,
    descriptors: Vec<Descriptor<'r>>,
}

#[derive(Serialize)]
struct Descriptor<'r> {
    entries: Vec<Entry<'r>>,
    hits: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    give_back: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    own_limit: Option<OwnLimit>,
    code: Code,
    limit: Option<LimitLine<'r>>,
    remaining: u32,
    reset_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ban: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'static str>,
}

#[derive(Serialize)]
pub(super) struct Entry<'r> {
    key: &'r str,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value_hash: Option<Hex<16>>,
}

#[derive(Serialize)]
struct OwnLimit {
    requests: u32,
    unit: &'static str,
}

#[derive(Serialize)]
struct LimitLine<'r> {
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'r str,
    #[serde(skip_serializing_if = "str::is_empty")]
    rule: &'r str,
    requests: u32,
    window_ns: u64,
}

/// Nanoseconds since the Unix epoch, written as RFC 3339 with nine digits of a second.
struct Time(u64);

impl Serialize for Time {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let text = self.text();
        serializer.serialize_str(str::from_utf8(&text).map_err(serde::ser::Error::custom)?)
    }
}

impl Time {
    /// The text is made here: with ten thousand lines a second, the time would otherwise be the most expensive part of a line.
    fn text(&self) -> [u8; 30] {
        let Self(nanos) = *self;
        let (seconds, fraction) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        let time = jiff::Timestamp::from_second(seconds as i64).expect("nanoseconds end in the year 2554");
        let time = jiff::tz::Offset::UTC.to_datetime(time);
        let mut text = *b"0000-00-00T00:00:00.000000000Z";
        for (start, end, number) in [
            (0, 4, time.year() as u64),
            (5, 7, time.month() as u64),
            (8, 10, time.day() as u64),
            (11, 13, time.hour() as u64),
            (14, 16, time.minute() as u64),
            (17, 19, time.second() as u64),
            (20, 29, fraction),
        ] {
            text[start..end].iter_mut().rev().fold(number, |number, digit| {
                *digit = b'0' + (number % 10) as u8;
                number / 10
            });
        }
        text
    }
}

/// Bytes in hexadecimal.
#[derive(Clone, Copy)]
pub(super) struct Hex<const N: usize>(pub(super) [u8; N]);

impl<const N: usize> fmt::Display for Hex<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl<const N: usize> Serialize for Hex<N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The process that writes the log, by a random number.
pub(super) type Run = Hex<8>;

impl Place {
    /// The place of a record of this process.
    pub(super) fn of(record: &Record<'_>, run: Run) -> Self {
        match record.number {
            0 => Self::None,
            number => Self::Numbered(run, number, record.generation),
        }
    }
}

impl<'s> Values<'s> {
    /// The redaction of each key in a domain.
    pub(super) fn of_domain(&self, domain: &str) -> impl Fn(&str) -> Redaction + use<'s> {
        let (domain, default) = (self.rules.and_then(|rules| rules.domain(domain)), self.default);
        move |key| {
            // Redacted as a value of the other key, since it is the same text.
            let key = if key == RENEWAL_KEY { TICKET_KEY } else { key };
            domain.and_then(|domain| domain.redaction(key)).unwrap_or(default)
        }
    }
}

/// Appends the line of a decision.
pub(crate) fn decision(record: &Record<'_>, values: &Values<'_>, run: Run, out: &mut Vec<u8>) {
    let redaction = values.of_domain(record.domain);
    let descriptors = record.descriptors.iter().map(|of: &DescriptorRecord<'_>| {
        let (hits, give_back) = match of.hits {
            Hits::Take(hits) => (hits.get(), false),
            Hits::Peek => (0, false),
            Hits::GiveBack(hits) => (hits.get(), true),
        };
        let limit = of.limit.as_ref();
        let shown = |key| redaction(key) == Redaction::Plain;
        Descriptor {
            entries: of
                .entries
                .iter()
                .map(|(key, value)| entry(key, value, redaction(key), values.salt))
                .collect(),
            hits,
            give_back,
            own_limit: of.own_limit.map(|(requests, unit)| OwnLimit { requests, unit: unit.name() }),
            code: of.code,
            // The path of a rule contains values from the rule file, which are those of the request.
            limit: limit.map(|limit| LimitLine {
                rule: if of.entries.iter().all(|(key, _)| shown(key)) { limit.rule } else { "" },
                ..self::limit(limit)
            }),
            remaining: of.remaining,
            reset_ns: of.reset.and_then(nanos),
            ban: of.ban.name(),
            cause: of.cause.map(DenialCause::name),
        }
    });
    let (ticket, ticket_hash) = ticket(record, values);
    let decision = DecisionFields {
        domain: record.domain,
        report: record.is_report,
        code: record.code,
        sample: record.sample,
        latency_ns: record.latency,
        peer: record.peer,
        trace_id: record.trace.map(|trace| Hex(trace.trace_id)),
        span_id: record.trace.map(|trace| Hex(trace.span_id)),
        ticket,
        ticket_hash,
        descriptors: descriptors.collect(),
    };
    append(record.received, Place::of(record, run), decision, out);
}

/// The ticket of a record and its hash. Only one is written, as the value of the entry of its end is.
pub(super) fn ticket<'r>(record: &Record<'r>, values: &Values<'_>) -> (Option<&'r str>, Option<Hex<16>>) {
    if record.ticket.is_empty() {
        return (None, None);
    }
    let redaction = values.of_domain(record.domain)(TICKET_KEY);
    let Entry { value, value_hash, .. } = entry(TICKET_KEY, record.ticket, redaction, values.salt);
    (value, value_hash)
}

/// Appends a line with the number of missing decisions before it.
pub(crate) fn dropped(count: u64, now: u64, out: &mut Vec<u8>) {
    append_named(now, Place::None, ("dropped", count), out);
}

/// Appends a line whose content has one name.
pub(super) fn append_named(
    time: u64,
    place: Place,
    content: (&'static str, impl Serialize),
    out: &mut Vec<u8>,
) {
    append(time, place, BTreeMap::from([content]), out);
}

fn append(time: u64, place: Place, content: impl Serialize, out: &mut Vec<u8>) {
    let (run, seq, generation) = match place {
        Place::None => (None, None, None),
        Place::Run(run) => (Some(run), None, None),
        Place::Numbered(run, number, generation) => (Some(run), Some(number), Some(generation)),
    };
    let line = Line { v: VERSION, time: Time(time), run, seq, generation, content };
    serde_json::to_writer(&mut *out, &line).expect("texts and numbers are JSON, and memory takes all bytes");
    out.push(b'\n');
}

pub(super) fn entry<'r>(key: &'r str, value: &'r str, redaction: Redaction, salt: &[u8]) -> Entry<'r> {
    let (value, value_hash) = match redaction {
        Redaction::Plain => (Some(value), None),
        Redaction::Hash => (None, Some(hash(salt, value))),
        Redaction::Omit => (None, None),
    };
    Entry { key, value, value_hash }
}

/// The hexadecimal hash of a value, as in lines.
pub(crate) fn value_hash(salt: &[u8], value: &str) -> String {
    hash(salt, value).to_string()
}

/// The first 16 bytes of SHA-256 over the salt and the value.
fn hash(salt: &[u8], value: &str) -> Hex<16> {
    let digest = Sha256::new().chain_update(salt).chain_update(value).finalize();
    let mut first = [0; 16];
    first.copy_from_slice(&digest[..16]);
    Hex(first)
}

fn limit<'r>(limit: &LimitRecord<'r>) -> LimitLine<'r> {
    LimitLine { name: limit.name, rule: limit.rule, requests: limit.requests, window_ns: limit.window }
}

/// None means never.
fn nanos(reset: Reset) -> Option<u64> {
    match reset {
        Reset::After(wait) => u64::try_from(wait.as_nanos()).ok(),
        Reset::Never => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    proptest::proptest! {
        #[test]
        fn times_are_those_of_the_calendar(nanos: u64) {
            let expected = jiff::Timestamp::from_nanosecond(i128::from(nanos)).expect("within the range");
            let text = Time(nanos).text();
            proptest::prop_assert_eq!(str::from_utf8(&text), Ok(&*format!("{expected:.9}")));
        }
    }
}
