//! The audit log: what is written to it, and `ListAudit`.

use super::{caller::ControlApi, convert::timestamp, error::Error, rules::page_size};
use crate::{
    api::{grpc::status::status_name, pb::control as pb},
    control::{AuditEntry, AuditEvent, Caller},
    limit::Timestamp,
    rules::{DomainRules, RuleSet},
};
use serde_json::Value;

const ENTRIES_DEFAULT: usize = 100;
const ENTRIES_MAX: usize = 1_000;

impl ControlApi {
    /// Writes that a caller called a method that changes something.
    pub(super) fn audit(&self, caller: &Caller, method: &str, request: &[u8], failed: Option<&Error>) {
        let mut details: Value = serde_json::from_slice(request).unwrap_or_default();
        let reason = take_reason(&mut details);
        if let Some(limiter) = self.control.limiter() {
            self.redact(&mut details, &limiter.rules());
        }
        self.control.audit(AuditEvent {
            actor: caller.actor.clone(),
            peer: caller.peer.clone(),
            action: method.to_owned(),
            outcome: failed.map_or("OK", |error| name_of(error)).to_owned(),
            reason,
            details: details.to_string(),
        });
    }

    /// Writes that a call was denied.
    pub(super) fn audit_denied(&self, actor: Option<String>, peer: &str, method: &str, denied: &Error) {
        self.control.audit(AuditEvent {
            actor: actor.unwrap_or_else(|| "unknown".to_owned()),
            peer: peer.to_owned(),
            action: method.chars().filter(|c| c.is_ascii_alphanumeric()).take(64).collect(),
            outcome: name_of(denied).to_owned(),
            ..AuditEvent::default()
        });
    }

    /// Redacts the values of entries as the rules declare.
    fn redact(&self, details: &mut Value, rules: &RuleSet) {
        let domain_of = |value: &Value| value["domain"].as_str().and_then(|domain| rules.domain(domain));
        let domain = ["override", "block"].iter().find_map(|field| domain_of(&details[*field]));
        let domain = domain.or_else(|| domain_of(details));
        self.redact_entries(details, domain);
    }

    fn redact_entries(&self, details: &mut Value, domain: Option<&DomainRules>) {
        match details {
            Value::Object(object) => {
                if let (Some(Value::String(key)), Some(Value::String(value))) =
                    (object.get("key"), object.get("value"))
                {
                    let shown = self.control.values().show(domain, key, value);
                    object.insert("value".into(), shown.value.into());
                }
                object.values_mut().for_each(|value| self.redact_entries(value, domain));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_entries(item, domain)),
            _ => {}
        }
    }

    pub(super) async fn list_audit(
        &self,
        _: &Caller,
        message: pb::ListAuditRequest,
    ) -> Result<pb::ListAuditResponse, Error> {
        let limit = if message.limit == 0 { ENTRIES_DEFAULT } else { page_size(message.limit, ENTRIES_MAX) };
        let entries = self.control.audit_log().recent(message.before, limit);
        Ok(pb::ListAuditResponse { entries: entries.into_iter().map(to_message).collect() })
    }
}

fn name_of(error: &Error) -> &'static str {
    status_name(error.code() as u32).unwrap_or("UNKNOWN")
}

/// The reason that the caller gave.
fn take_reason(details: &mut Value) -> String {
    let of = |value: &mut Value| match value.as_object_mut()?.remove("reason")? {
        Value::String(reason) => Some(reason),
        _ => None,
    };
    let nested = |field: &str, details: &mut Value| details.get_mut(field).and_then(of);
    of(details)
        .or_else(|| nested("override", details))
        .or_else(|| nested("block", details))
        .unwrap_or_default()
}

fn to_message(entry: AuditEntry) -> pb::AuditEntry {
    let AuditEntry { number, time_ns, actor, peer, action, outcome, reason, details, hash } = entry;
    let time = Some(timestamp(Timestamp::from_nanos(time_ns)));
    pb::AuditEntry { number, time, actor, peer, action, outcome, reason, details, hash }
}
