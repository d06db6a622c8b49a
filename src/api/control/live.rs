//! Decisions as they are made: `TopKeys` and `Tail`.

use super::{
    caller::{Admitted, Recheck},
    convert::{code, duration, reset, timestamp},
    counters::paths_named,
    error::{Error, Result, on_thread},
    rules::page_size,
};
use crate::api::pb::control::{self as pb, tail_response::Event};
use std::time::Duration;
use tidegate_core::{
    limit::{self, DenialCause, Timestamp},
    rules::{DomainRules, RuleSet},
};
use tidegate_operations::control::{
    KeyEntry, KeyOutcome, ReportWindow, ShownEntry, SketchKey, TailDecision, TailDescriptor, TailFilter,
    TailStream, ValueFilter,
};
use tokio::{sync::mpsc, time::timeout};
use tonic::Code;

const KEYS_DEFAULT: usize = 20;
const KEYS_MAX: usize = 100;

/// Time without a response after which an empty one is sent.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// Time after which decisions that were dropped are reported.
const DROPPED_INTERVAL: Duration = Duration::from_secs(1);
/// Responses that are queued for a connection.
const RESPONSES: usize = 64;

impl Admitted {
    pub(super) async fn top_keys(&self, message: pb::TopKeysRequest) -> Result<pb::TopKeysResponse> {
        use pb::top_keys_request::{Outcome, Window as WireWindow};
        let window = match WireWindow::try_from(message.window) {
            Ok(WireWindow::Minute) => ReportWindow::Minute,
            Ok(WireWindow::Hour) => ReportWindow::Hour,
            Err(_) => return Err(Error::invalid("window", "is unknown; send MINUTE or HOUR")),
        };
        let outcome = match Outcome::try_from(message.outcome) {
            Ok(Outcome::Denied) => KeyOutcome::Denied,
            Ok(Outcome::Admitted) => KeyOutcome::Admitted,
            Err(_) => return Err(Error::invalid("outcome", "is unknown; send DENIED or ADMITTED")),
        };
        let limiter = self.control.limiter().ok_or_else(Error::starting)?.clone();
        let control = self.control.clone();
        let of_rules = selected(&limiter.rules(), &message.domain, &message.rule)?;
        let listed = move || {
            let report = control.live.top_keys.report(window, outcome, control.now());
            let (rules, values) = (limiter.rules(), &control.values);
            let seconds = report.covers.as_secs_f64().max(1.0);
            let keys = report.keys.iter().filter_map(|(key, estimate)| {
                let (domain, entries) = key.texts();
                let is_selected = (message.domain.is_empty() || message.domain == domain)
                    && of_rules.as_ref().is_none_or(|paths| paths.iter().any(|path| path == key.rule()));
                if !is_selected {
                    return None;
                }
                let of_domain = rules.domain(&domain);
                let show = |entry: &KeyEntry| {
                    let shown = values.show(of_domain, &entry.key, &entry.value);
                    ShownEntry { is_redacted: shown.is_redacted || entry.is_shortened, ..shown }
                };
                let entries: Vec<ShownEntry> = entries.iter().map(show).collect();
                let is_redacted = entries.iter().any(|entry| entry.is_redacted);
                let of_key = of_domain.filter(|_| !is_redacted).map(|domain| limits(&rules, domain, key));
                Some(pb::TopKey {
                    limits: of_key.unwrap_or_default(),
                    // The path of a rule contains values of the rule file, which are those of the request.
                    rule: if is_redacted { String::new() } else { key.rule().to_owned() },
                    domain,
                    descriptor: Some(pb::Descriptor { entries: entries.into_iter().map(entry).collect() }),
                    hits: estimate.hits,
                    error: estimate.error,
                    hits_per_second: estimate.hits as f64 / seconds,
                    is_redacted,
                })
            });
            let limit = page_size(message.limit, KEYS_DEFAULT, KEYS_MAX);
            pb::TopKeysResponse {
                keys: keys.take(limit).collect(),
                unlisted_max: report.absent_max,
                total: report.total,
                covers: Some(duration(report.covers)),
            }
        };
        // The samples of all threads are merged.
        on_thread("the keys could not be read", listed).await
    }

    /// Decisions from now on, until the receiver is dropped, the caller has no role any more, or the server stops.
    pub(in crate::api) fn tail(
        &self,
        recheck: Recheck,
        message: pb::TailRequest,
    ) -> Result<mpsc::Receiver<pb::TailResponse>> {
        let rules = match &*message.rule {
            "" => None,
            _ => {
                let limiter = self.control.limiter().ok_or_else(Error::starting)?;
                selected(&limiter.rules(), &message.domain, &message.rule)?
            }
        };
        let stream = self.control.watch(filter(message, rules)?).ok_or_else(|| {
            Error::new(Code::ResourceExhausted, "too many streams of decisions are open; close one")
        })?;
        let (responses, receiver) = mpsc::channel(RESPONSES);
        tokio::spawn(pass_on(stream, responses, recheck));
        Ok(receiver)
    }
}

async fn pass_on(mut stream: TailStream, responses: mpsc::Sender<pb::TailResponse>, mut recheck: Recheck) {
    let mut silence = Duration::ZERO;
    loop {
        let event = match timeout(DROPPED_INTERVAL, stream.decisions.recv()).await {
            Ok(Some(decision)) => Some(Event::Decision(to_message(decision))),
            Ok(None) => return,
            Err(_) => None,
        };
        if !recheck.is_admitted() {
            return;
        }
        silence = if event.is_some() { Duration::ZERO } else { silence + DROPPED_INTERVAL };
        let is_sign_due = silence >= SIGN_OF_LIFE;
        let dropped = Some(stream.take_dropped()).filter(|dropped| *dropped > 0).map(Event::Dropped);
        let sign = is_sign_due.then_some(None);
        for event in event.map(Some).into_iter().chain(dropped.map(Some)).chain(sign) {
            silence = Duration::ZERO;
            if responses.send(pb::TailResponse { event }).await.is_err() {
                return;
            }
        }
        if responses.is_closed() {
            return;
        }
    }
}

/// The paths of the rules that a filter selects; none if it selects all.
fn selected(rules: &RuleSet, domain: &str, rule: &str) -> Result<Option<Vec<String>>> {
    let domain = Some(domain).filter(|domain| !domain.is_empty());
    if rule.is_empty() { Ok(None) } else { paths_named(rules, domain, rule).map(Some) }
}

/// The names of the limits of the rule that a key is counted by, as metrics have them. None if the rules have changed since.
fn limits(rules: &RuleSet, domain: &DomainRules, key: &SketchKey) -> Vec<String> {
    let (_, entries) = key.texts();
    let entries: Vec<limit::Entry<'_>> =
        entries.iter().map(|entry| limit::Entry { key: &entry.key, value: &entry.value }).collect();
    let found = domain.find(&entries).map(|found| found.rule);
    let rule = found.filter(|rule| *rule.info.path == *key.rule());
    let limits = rule.into_iter().flat_map(|rule| &rule.limits);
    limits.map(|limit| rules.limit_name(limit).limit.to_string()).collect()
}

fn filter(message: pb::TailRequest, rules: Option<Vec<String>>) -> Result<TailFilter> {
    let pb::TailRequest { domain, rule: _, code, key, value, sample } = message;
    let given = |text: String| Some(text).filter(|text| !text.is_empty());
    let code = match pb::Code::try_from(code) {
        Ok(pb::Code::Unknown) => None,
        Ok(pb::Code::Ok) => Some(limit::Code::Ok),
        Ok(pb::Code::OverLimit) => Some(limit::Code::OverLimit),
        Err(_) => return Err(Error::invalid("code", "is unknown; send OK or OVER_LIMIT")),
    };
    if key.is_empty() && !value.is_empty() {
        return Err(Error::invalid("value", "is given without a key"));
    }
    if !(0.0..=1.0).contains(&sample) {
        return Err(Error::invalid("sample", "is not from 0 to 1"));
    }
    let share = if sample == 0.0 { 1.0 } else { sample };
    let value = given(value).map(|value| ValueFilter::new(&value));
    Ok(TailFilter { domain: given(domain), rules, code, key: given(key), value, share })
}

pub(super) fn entry(entry: ShownEntry) -> pb::Entry {
    pb::Entry { key: entry.key, value: entry.value.unwrap_or_default() }
}

fn to_message(decision: TailDecision) -> pb::TailDecision {
    let TailDecision { received, latency, domain, code: of_request, peer, trace_id, descriptors } = decision;
    let hex = |bytes: [u8; 16]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let descriptor = |of: TailDescriptor| pb::TailDescriptor {
        is_redacted: of.entries.iter().any(|entry| entry.is_redacted),
        entries: of.entries.into_iter().map(entry).collect(),
        code: code(of.code).into(),
        rule: of.rule,
        hits: of.hits,
        requests: of.requests,
        remaining: of.remaining,
        window: Some(duration(of.window)).filter(|_| !of.window.is_zero()),
        reset_after: reset(of.reset),
        name: of.name,
        cause: of.cause.map_or("", DenialCause::name).to_owned(),
    };
    pb::TailDecision {
        time: Some(timestamp(Timestamp::from_nanos(received))),
        latency: Some(duration(latency)),
        domain,
        code: code(of_request).into(),
        peer,
        trace_id: trace_id.map_or_else(String::new, hex),
        descriptors: descriptors.into_iter().map(descriptor).collect(),
    }
}
