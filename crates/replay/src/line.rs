//! Reads lines of the decision log, versions 1 and 2. `docs/decision-log.md` describes them.

use super::{
    CancelledStep, Event, EventDescriptor, LoggedDecision, Place, RecordedStatus, ResetStep, RulesStep, Step,
    access_log::TIME_FORMS,
    fast_line,
    line_fields::{
        LoggedDescriptor, LoggedEntry, LoggedLine, LoggedOwnLimit, LoggedReset, LoggedRules, LoggedVersion,
    },
};
use smol_str::SmolStr;
use std::{num::NonZeroU64, time::Duration};
use tidegate_core::{
    limit::{Hits, RequestError, RequestForm, RequestLimit, RequestLimits, Reset, Timestamp, Unit},
    limiter::Compat,
    rules::DefaultAlgorithm,
};

/// The newest version that is read.
const VERSION: u32 = 2;

/// Requests of any size and form: the server that wrote the log has accepted them.
pub(super) const ANY_SIZE: RequestLimits = RequestLimits {
    descriptors_max: usize::MAX,
    entries_max: usize::MAX,
    text_bytes_max: usize::MAX,
    form: RequestForm::Reference,
    keep_sent_hits: false,
};

/// Content of a line.
#[derive(Clone, PartialEq, Debug)]
pub enum LineContent {
    /// A step that can be repeated.
    Step(Step),
    /// A line without the value of an entry, because the server's rules omit it. Its counters are unknown.
    Omitted,
    /// The assignment of a client of quotas. The client decides by itself, and its requests are not in the log.
    Assignment,
    /// Number of missing lines before this line.
    Dropped(u64),
    /// A request of an access log without an applicable descriptor, because fields are absent.
    WithoutDescriptors,
}

/// The reason why a line cannot be read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message is its own documentation")]
pub enum LineError {
    #[error("{reason} (column {column})")]
    Syntax { reason: String, column: usize },
    #[error("version {0}; this program reads versions 1 and 2")]
    Version(u32),
    #[error("the field `{0}` is missing")]
    Missing(SmolStr),
    #[error("time is {0:?}; it must be a time in RFC 3339")]
    Time(SmolStr),
    #[error("the time is {0:?}; the forms that are read are {TIME_FORMS}")]
    AccessTime(SmolStr),
    #[error("the line does not fit the format: {0}")]
    Format(String),
    #[error(
        "the line fits the format in several ways: the field `{field}` at column {column} might start later"
    )]
    Ambiguous { column: usize, field: String },
    #[error("rules.default_algorithm is {0:?}, which is no algorithm")]
    Algorithm(SmolStr),
    #[error("run is {0:?}; it must be 16 hexadecimal digits")]
    Run(SmolStr),
    #[error("descriptors[{descriptor}].own_limit.unit is {unit:?}; it must be a unit such as minute")]
    Unit { descriptor: usize, unit: SmolStr },
    #[error("the field `{field}` is {text:?}; it must be a whole number")]
    Number { field: SmolStr, text: SmolStr },
    #[error("{0} fields; the header has {1}")]
    Columns(usize, usize),
    #[error("a quoted field is not closed")]
    OpenQuote,
    #[error("the container runtime split this line; its parts are not read")]
    Split,
    #[error("the line is not UTF-8")]
    NotUtf8,
    #[error(transparent)]
    Request(#[from] RequestError),
}

/// Reads the lines of a log one after another. The result for a line does not depend on the lines before.
#[derive(Default)]
pub struct LineParser(fast_line::Repeated);

impl LineParser {
    /// Reads one line, with or without its line feed. If the line is a decision in the usual form, the result is none, and the decision is
    /// in `decision`, with the texts of the line. `decision` has to be empty before.
    #[inline]
    pub fn parse<'l>(
        &mut self,
        line: &'l [u8],
        decision: &mut LoggedDecision<'l>,
    ) -> Result<Option<LineContent>, LineError> {
        match fast_line::parse(line, &mut self.0, decision) {
            Some(()) => Ok(None),
            None => parse_json(line).map(Some),
        }
    }
}

/// Reads one line, with or without its line feed.
pub fn parse_line(line: &[u8]) -> Result<LineContent, LineError> {
    let mut decision = LoggedDecision::default();
    let other = LineParser::default().parse(line, &mut decision)?;
    Ok(other.unwrap_or_else(|| LineContent::Step(Step::Decision(decision.to_event()))))
}

/// Reads a line with its fields in any order.
pub(super) fn parse_json(line: &[u8]) -> Result<LineContent, LineError> {
    let logged: LoggedLine = serde_json::from_slice(line).map_err(|error| {
        // A line of another version may differ in any field except `v`.
        match serde_json::from_slice::<LoggedVersion>(line) {
            Ok(LoggedVersion { v }) if !is_known(v) => LineError::Version(v),
            _ => syntax(&error),
        }
    })?;
    if !is_known(logged.v) {
        return Err(LineError::Version(logged.v));
    }
    if let Some(count) = logged.dropped {
        return Ok(LineContent::Dropped(count));
    }
    if logged.assignment.is_some() {
        return Ok(LineContent::Assignment);
    }
    let time = time(&logged.time).ok_or(LineError::Time(logged.time))?;
    let place = place(logged.run, logged.seq, logged.generation)?;
    if let Some(rules) = logged.rules {
        let step = rules_step(rules, time, place.ok_or_else(|| missing("seq"))?)?;
        return Ok(LineContent::Step(Step::Rules(step)));
    }
    if let Some(reset) = logged.reset {
        return Ok(reset_line(reset, time, place.ok_or_else(|| missing("seq"))?));
    }
    if let Some(cancelled) = logged.cancelled {
        let ticket = cancelled.ticket.or(cancelled.ticket_hash);
        return Ok(match ticket {
            Some(ticket) => LineContent::Step(Step::Cancelled(CancelledStep { time, place, ticket })),
            None => LineContent::Omitted,
        });
    }
    let domain = logged.domain.ok_or_else(|| missing("domain"))?;
    let code = logged.code.ok_or_else(|| missing("code"))?;
    let logged_descriptors = logged.descriptors.ok_or_else(|| missing("descriptors"))?;
    let (mut is_hashed, mut is_omitted) = (false, false);
    for entry in logged_descriptors.iter().flat_map(|descriptor| &descriptor.entries) {
        is_hashed |= entry.value.is_none() && entry.value_hash.is_some();
        is_omitted |= entry.value.is_none() && entry.value_hash.is_none();
    }
    let descriptors = logged_descriptors.into_iter().enumerate().map(|(at, logged)| descriptor(at, logged));
    let descriptors = descriptors.collect::<Result<Vec<_>, _>>()?;
    let (is_report, sample) = (logged.report, logged.sample.unwrap_or(1.0));
    let ticket = logged.ticket.or(logged.ticket_hash);
    let event = Event { time, place, is_report, domain, descriptors, code, sample, is_hashed, ticket };
    event.request().check(&ANY_SIZE)?;
    Ok(if is_omitted { LineContent::Omitted } else { LineContent::Step(Step::Decision(event)) })
}

fn is_known(version: u32) -> bool {
    (1..=VERSION).contains(&version)
}

/// The number of a process.
fn run(digits: &str) -> Option<u64> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let is_run = digits.len() == 16 && digits.bytes().all(is_digit);
    is_run.then(|| u64::from_str_radix(digits, 16).ok()).flatten()
}

fn place(
    of_run: Option<SmolStr>,
    number: Option<u64>,
    generation: Option<u64>,
) -> Result<Option<Place>, LineError> {
    let Some(of_run) = of_run else { return Ok(None) };
    let number = number.ok_or_else(|| missing("seq"))?;
    let generation = generation.ok_or_else(|| missing("generation"))?;
    let run = run(&of_run).ok_or(LineError::Run(of_run))?;
    Ok(Some(Place { run, number, generation }))
}

fn rules_step(rules: LoggedRules, time: Timestamp, place: Place) -> Result<RulesStep, LineError> {
    let LoggedRules { semantics, default_algorithm, merge_domains, global_shadow, .. } = rules;
    let LoggedRules { quota_mode, stop_counting, sources, .. } = rules;
    let algorithm = |name: SmolStr| DefaultAlgorithm::named(&name).ok_or(LineError::Algorithm(name));
    let default_algorithm = default_algorithm.map(algorithm).transpose()?;
    let compat = Compat { quota_mode, stop_counting };
    Ok(RulesStep { time, place, semantics, default_algorithm, merge_domains, global_shadow, compat, sources })
}

fn reset_line(reset: LoggedReset, time: Timestamp, place: Place) -> LineContent {
    let LoggedReset { domain, rule, descriptors } = reset;
    let text = |entry: LoggedEntry| Some((entry.key, entry.value.or(entry.value_hash)?));
    let entries = |entries: Vec<LoggedEntry>| entries.into_iter().map(text).collect();
    match descriptors.into_iter().map(entries).collect() {
        Some(descriptors) => {
            LineContent::Step(Step::Reset(ResetStep { time, place, domain, rule, descriptors }))
        }
        None => LineContent::Omitted,
    }
}

fn descriptor(at: usize, logged: LoggedDescriptor) -> Result<EventDescriptor, LineError> {
    let own_limit = logged.own_limit.map(|LoggedOwnLimit { requests, unit }| match Unit::from_name(&unit) {
        Some(unit) => Ok(RequestLimit { requests, unit }),
        None => Err(LineError::Unit { descriptor: at, unit }),
    });
    let hits = match (NonZeroU64::new(logged.hits), logged.give_back) {
        (None, _) => Hits::Peek,
        (Some(hits), false) => Hits::Take(hits),
        (Some(hits), true) => Hits::GiveBack(hits),
    };
    let value = |value: Option<SmolStr>, hash: Option<SmolStr>| value.or(hash).unwrap_or_default();
    let reset = logged.reset_ns.map_or(Reset::Never, |nanos| Reset::After(Duration::from_nanos(nanos)));
    Ok(EventDescriptor {
        entries: logged
            .entries
            .into_iter()
            .map(|entry| (entry.key, value(entry.value, entry.value_hash)))
            .collect(),
        hits,
        own_limit: own_limit.transpose()?,
        recorded: Some(RecordedStatus {
            code: logged.code,
            remaining: logged.remaining,
            reset: logged.limit.is_some().then_some(reset),
            rule: logged.limit.map(|limit| limit.rule),
        }),
    })
}

fn missing(field: &'static str) -> LineError {
    LineError::Missing(SmolStr::new_static(field))
}

/// A time of RFC 3339 in the range of a server's time.
pub(super) fn time(text: &str) -> Option<Timestamp> {
    let time: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(time.as_nanosecond()).ok().map(Timestamp::from_nanos)
}

/// The message without its `at line 1 column 7`, as this is not the line of the file.
pub(super) fn syntax(error: &serde_json::Error) -> LineError {
    let text = error.to_string();
    let reason = text.rsplit_once(" at line ").map_or(&*text, |(reason, _)| reason);
    LineError::Syntax { reason: reason.to_owned(), column: error.column() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(line: &str) -> String {
        parse_line(line.as_bytes()).expect_err("not a line").to_string()
    }

    fn with_descriptors(descriptors: &str) -> String {
        format!(
            r#"{{"v":1,"time":"2026-03-01T12:00:00.000000001Z","domain":"d","code":"OK","new":[],"descriptors":{descriptors}}}"#
        )
    }

    const STATUS: &str = r#""code":"OVER_LIMIT","limit":{"rule":"user","requests":2},"remaining":0"#;

    #[test]
    fn a_line_has_hits_own_limits_and_the_recorded_status() {
        let line = with_descriptors(&format!(
            r#"[{{"entries":[{{"key":"user","value":"\u00e9\n"}}],"hits":3,"give_back":true,"own_limit":{{"requests":5,"unit":"hour"}},{STATUS},"reset_ns":7}},
               {{"entries":[{{"key":"user","value_hash":"ab"}}],"hits":0,{STATUS},"reset_ns":null}}]"#
        ));
        let LineContent::Step(Step::Decision(event)) = parse_line(line.as_bytes()).unwrap() else {
            panic!("a decision")
        };
        assert_eq!(event.time.as_nanos() % 1_000_000_000, 1);
        assert!(event.is_hashed);
        let [first, second] = &event.descriptors[..] else { panic!("two descriptors") };
        assert_eq!(first.entries, [("user".into(), "é\n".into())]);
        assert_eq!(first.hits, Hits::GiveBack(NonZeroU64::new(3).unwrap()));
        assert_eq!(first.own_limit, Some(RequestLimit { requests: 5, unit: Unit::Hour }));
        let recorded = |descriptor: &EventDescriptor| descriptor.recorded.clone().expect("a status");
        assert_eq!(recorded(first).reset, Some(Reset::After(Duration::from_nanos(7))));
        assert_eq!(second.hits, Hits::Peek);
        assert_eq!(second.entries[0].1, "ab");
        assert_eq!(recorded(second).reset, Some(Reset::Never));
        assert_eq!(recorded(second).rule.as_deref(), Some("user"));
    }

    #[test]
    fn a_decision_without_a_value_and_an_assignment_are_not_replayed_and_a_dropped_line_is_a_number() {
        let line = with_descriptors(&format!(r#"[{{"entries":[{{"key":"token"}}],"hits":1,{STATUS}}}]"#));
        assert_eq!(parse_line(line.as_bytes()).unwrap(), LineContent::Omitted);
        let dropped = parse_line(br#"{"v":1,"time":"2026-03-01T12:00:00Z","dropped":42}"#);
        assert_eq!(dropped.unwrap(), LineContent::Dropped(42));
        let assignment = parse_line(
            br#"{"v":2,"time":"2026-03-01T12:00:00Z","run":"0000000000000001","assignment":{"kind":"abandon"}}"#,
        );
        assert_eq!(assignment.unwrap(), LineContent::Assignment);
    }

    #[test]
    fn a_call_that_was_reset_has_its_ticket_or_its_hash() {
        let line = |ticket: &str| {
            let place = r#""run":"00ff00000000000a","seq":2,"generation":1"#;
            let line = format!(
                r#"{{"v":2,"time":"2026-03-01T12:00:00Z",{place},"cancelled":{{"domain":"d"{ticket}}}}}"#
            );
            parse_line(line.as_bytes()).unwrap()
        };
        for ticket in [r#","ticket":"slot-1""#, r#","ticket_hash":"slot-1""#] {
            let LineContent::Step(Step::Cancelled(step)) = line(ticket) else { panic!("{ticket}") };
            assert_eq!((&*step.ticket, step.place.map(|place| place.number)), ("slot-1", Some(2)));
        }
        assert_eq!(line(""), LineContent::Omitted);
    }

    #[test]
    fn the_reason_of_a_bad_line_names_the_place() {
        assert_eq!(error("{\"v\":1,\"time\":"), "EOF while parsing a value (column 14)");
        assert_eq!(error("{\"v\":3,\"time\":7}"), "version 3; this program reads versions 1 and 2");
        assert_eq!(error("{\"v\":1,\"time\":\"noon\"}"), "time is \"noon\"; it must be a time in RFC 3339");
        assert_eq!(error("{\"v\":1,\"time\":\"2026-03-01T12:00:00Z\"}"), "the field `domain` is missing");
        assert!(error(&with_descriptors("[]")).contains("at least one descriptor"));
        let own = r#"[{"entries":[{"key":"k","value":""}],"hits":1,"own_limit":{"requests":1,"unit":"eon"},"#;
        assert!(error(&with_descriptors(&format!("{own}{STATUS}}}]"))).contains("own_limit.unit is \"eon\""));
        assert!(parse_line(b"\xff\xfe").is_err());
    }

    #[test]
    fn a_time_before_the_epoch_or_after_the_last_representable_one_is_refused() {
        for text in ["1969-12-31T23:59:59Z", "2999-01-01T00:00:00Z"] {
            assert_eq!(time(text), None, "{text}");
        }
    }
}
