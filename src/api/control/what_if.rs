//! `RecordDecisions` and `WhatIf`: what proposed rules would have decided.

use super::{
    caller::Admitted,
    convert::{duration, timestamp},
    error::{Error, Result},
};
use crate::api::pb::control::{
    self as pb,
    what_if_request::{Against, ShareOf as WireShareOf},
};
use std::time::Duration;
use tidegate_core::rules::RuleSet;
use tidegate_operations::control::{RECORDED_BYTES_MAX, Suggest, Values, WhatIf, WhatIfError, WhatIfReport};
use tidegate_replay::{DeniedAt, KeyRow, Point, RuleRow, Series, ShareOf, Side, Suggestion};
use tonic::Code;

/// Rules for which limits are suggested in one call.
const SUGGESTED_MAX: usize = 10;
const SHARE_DEFAULT: f64 = 0.01;

impl Admitted {
    pub(super) async fn record_decisions(
        &self,
        _: pb::RecordDecisionsRequest,
    ) -> Result<pb::RecordDecisionsResponse> {
        let status = self.control.record_decisions();
        Ok(pb::RecordDecisionsResponse {
            decisions: status.decisions,
            first: status.first.map(timestamp),
            bytes: status.bytes as u64,
            bytes_max: RECORDED_BYTES_MAX as u64,
            share: status.share,
            dropped: status.dropped,
        })
    }

    pub(super) async fn what_if(&self, message: pb::WhatIfRequest) -> Result<pb::WhatIfResponse> {
        let suggest = suggest(&message)?;
        let pb::WhatIfRequest { rules, log, last, against, .. } = message;
        let against_recorded = match Against::try_from(against) {
            Ok(Against::InForce) => false,
            Ok(Against::Recorded) => true,
            Err(_) => return Err(Error::invalid("against", "is unknown; send IN_FORCE or RECORDED")),
        };
        let last = last.map(Duration::try_from).transpose();
        let last = last.map_err(|_| Error::invalid("last", "is not a time from 0 s on"))?;
        let log = Some(log).filter(|log| !log.is_empty());
        let limiter = self.control.limiter().ok_or_else(Error::starting)?.clone();
        let compared = self.control.what_if(WhatIf { rules, log, last, against_recorded, suggest }).await?;
        Ok(response(compared, &limiter.rules(), &self.control.values))
    }
}

impl From<WhatIfError> for Error {
    fn from(error: WhatIfError) -> Self {
        match error {
            WhatIfError::Starting => Self::starting(),
            WhatIfError::Running => Self::new(Code::ResourceExhausted, error.to_string()),
            WhatIfError::NoRules => Self::invalid("rules", error.to_string()),
            WhatIfError::Rules(errors) => Self::invalid("rules", errors.to_string()),
            WhatIfError::UnknownRule(_) => Self::invalid("suggest_for", error.to_string()),
            WhatIfError::Compression(_) | WhatIfError::LogBytes | WhatIfError::OutOfOrder(_) => {
                Self::invalid("log", error.to_string())
            }
            WhatIfError::NoDecisions => Self::new(Code::FailedPrecondition, error.to_string()),
            WhatIfError::InForce(_) | WhatIfError::Thread(_) | WhatIfError::Failed => {
                Self::new(Code::Internal, error.to_string())
            }
        }
    }
}

fn suggest(message: &pb::WhatIfRequest) -> Result<Suggest> {
    let of = match WireShareOf::try_from(message.suggest_of) {
        Ok(WireShareOf::Keys) => ShareOf::Keys,
        Ok(WireShareOf::Hits) => ShareOf::Hits,
        Err(_) => return Err(Error::invalid("suggest_of", "is unknown; send KEYS or HITS")),
    };
    let share = message.suggest_share;
    if !(0.0..=1.0).contains(&share) {
        return Err(Error::invalid("suggest_share", "is not from 0 to 1"));
    }
    let rules = message.suggest_for.clone();
    if rules.len() > SUGGESTED_MAX {
        return Err(Error::invalid("suggest_for", format!("has more than {SUGGESTED_MAX} rules")));
    }
    Ok(Suggest { rules, share_max: if share == 0.0 { SHARE_DEFAULT } else { share }, of })
}

fn suggestion(of: Suggestion) -> pb::WhatIfSuggestion {
    let denied = |at: DeniedAt| pb::WhatIfDenied { requests: at.requests, keys: at.keys, hits: at.hits };
    pb::WhatIfSuggestion {
        domain: of.domain.into(),
        rule: of.rule.into(),
        name: of.limit.into(),
        window: Some(duration(Duration::from_nanos(of.window_ns))),
        keys: of.keys,
        hits: of.hits,
        proposed: Some(denied(of.present)),
        suggested: of.suggested.map(denied),
        p50: of.per_key_and_window.p50,
        p95: of.per_key_and_window.p95,
        p99: of.per_key_and_window.p99,
        max: of.per_key_and_window.max,
        curve: of.curve.into_iter().map(denied).collect(),
    }
}

fn response(compared: WhatIfReport, rules: &RuleSet, values: &Values) -> pb::WhatIfResponse {
    let WhatIfReport { report, notes, suggestions } = compared;
    let keys = |rows: Vec<KeyRow>| rows.into_iter().map(|row| key(row, rules, values)).collect();
    pb::WhatIfResponse {
        requests: report.requests,
        first: report.first.map(timestamp),
        last: report.last.map(timestamp),
        proposed: Some(side(&report.proposed)),
        current: Some(side(&report.current)),
        newly_denied: report.newly_denied,
        newly_admitted: report.newly_admitted,
        rules: report.rules.into_iter().map(rule).collect(),
        keys_newly_denied_total: report.keys_newly_denied.all,
        keys_newly_admitted_total: report.keys_newly_admitted.all,
        keys_newly_denied: keys(report.keys_newly_denied.top),
        keys_newly_admitted: keys(report.keys_newly_admitted.top),
        over_time: Some(series(&report.over_time)),
        notes,
        suggestions: suggestions.into_iter().map(suggestion).collect(),
    }
}

fn side(side: &Side) -> pb::WhatIfSide {
    pb::WhatIfSide {
        admitted: side.admitted,
        denied: side.denied,
        worst_minute: side.worst_minute.map(|minute| timestamp(minute.start)),
        worst_minute_requests: side.worst_minute.map_or(0, |minute| minute.requests),
        worst_minute_denied: side.worst_minute.map_or(0, |minute| minute.denied),
        longest_wait: side.longest_wait.map(duration),
        never_admitted: side.never_admitted,
    }
}

fn rule(row: RuleRow) -> pb::WhatIfRule {
    pb::WhatIfRule {
        domain: row.domain.into(),
        rule: row.rule.into(),
        descriptors_proposed: row.proposed.all,
        denied_proposed: row.proposed.denied,
        descriptors_current: row.current.all,
        denied_current: row.current.denied,
        limits: row.limits.into_iter().map(Into::into).collect(),
    }
}

fn key(row: KeyRow, rules: &RuleSet, values: &Values) -> pb::WhatIfKey {
    let domain = rules.domain(&row.key.domain);
    let entries = row.key.entries.iter().map(|(key, value)| values.show(domain, key, value));
    let entries: Vec<_> = entries.collect();
    let is_redacted = entries.iter().any(|entry| entry.is_redacted);
    let entries = entries.into_iter();
    let entries = entries.map(|shown| pb::Entry { key: shown.key, value: shown.value.unwrap_or_default() });
    pb::WhatIfKey {
        domain: row.key.domain.into(),
        descriptor: Some(pb::Descriptor { entries: entries.collect() }),
        requests: row.requests,
        requests_per_minute: row.per_minute,
        is_redacted,
    }
}

fn series(series: &Series) -> pb::WhatIfSeries {
    let point = |point: &Point| pb::WhatIfPoint {
        requests: point.requests,
        denied_proposed: point.denied_proposed,
        denied_current: point.denied_current,
    };
    pb::WhatIfSeries {
        start: series.start.map(timestamp),
        interval: Some(duration(Duration::from_nanos(series.interval))),
        points: series.points.iter().map(point).collect(),
    }
}
