//! The audit log: what is written to it, and `ListAudit`.

use super::{
    caller::Admitted,
    convert::timestamp,
    error::{Error, Result},
    method::Handled,
    rules::page_size,
    try_json,
};
use crate::api::pb::control as pb;
use serde_json::Value;
use tidegate_core::{
    limit::Timestamp,
    rules::{Redaction, RuleSet},
};
use tidegate_operations::control::{AuditEntry, AuditEvent, INTENT, Role};
use tonic::Code;

const ENTRIES_DEFAULT: usize = 100;
const ENTRIES_MAX: usize = 1_000;

impl Admitted {
    /// Makes a change in a task of its own, which a cancelled call does not end. The intent is in the audit log before the change, the
    /// outcome after it. A change whose intent cannot be written is refused. Methods that change nothing leave no line.
    pub(super) async fn perform<M: Handled>(&self, request: M) -> Result<M::Response> {
        if M::ROLE != Role::Operate {
            return request.handle(self).await;
        }
        let event = self.intent(M::METHOD, &try_json(&request)?);
        let admitted = self.clone();
        let changed = tokio::spawn(async move {
            let (control, log) = (&admitted.control, &admitted.control.audit_log);
            let intent = log.append(event.clone(), control.now()).await;
            let intent = intent.map_err(|error| {
                let message = format!("{error}; nothing was changed: make room for it, then repeat the call");
                Error::new(Code::Unavailable, message)
            })?;
            let changed = request.handle(&admitted).await;
            let outcome = changed.as_ref().map_or_else(Error::code_name, |_| "OK").to_owned();
            let event = AuditEvent { outcome, intent: Some(intent), ..event };
            // A failure is ignored: an intent without an outcome means that the change may have been made.
            let _ = log.append(event, control.now()).await;
            changed
        });
        changed.await.map_err(|_| Error::new(Code::Internal, "the change failed"))?
    }

    /// The line before a change.
    fn intent(&self, method: &str, request: &[u8]) -> AuditEvent {
        let mut details: Value = serde_json::from_slice(request).unwrap_or_default();
        let reason = take_reason(&mut details);
        if let Some(limiter) = self.control.limiter() {
            self.redact(&mut details, &limiter.rules());
        }
        AuditEvent {
            actor: self.caller.actor.clone(),
            peer: self.caller.peer.clone(),
            action: method.to_owned(),
            outcome: INTENT.to_owned(),
            reason,
            details: details.to_string(),
            intent: None,
        }
    }

    /// Redacts the values of entries as the rules of their domain declare. Without such rules, as for a block of every domain, the strictest
    /// redaction of the key in any domain applies.
    fn redact(&self, details: &mut Value, rules: &RuleSet) {
        let domain_of = |value: &Value| value["domain"].as_str().and_then(|domain| rules.domain(domain));
        let domain = ["override", "block"].iter().find_map(|field| domain_of(&details[*field]));
        let domain = domain.or_else(|| domain_of(details));
        let redaction = |key: &str| match domain {
            Some(domain) => domain.redaction(key),
            None => rules.domains().filter_map(|domain| domain.redaction(key)).max(),
        };
        self.redact_entries(details, &|key| redaction(key).unwrap_or_default());
    }

    fn redact_entries(&self, details: &mut Value, redaction: &impl Fn(&str) -> Redaction) {
        match details {
            Value::Object(object) => {
                let redaction_of_key = object.get("key").and_then(Value::as_str).map(redaction);
                for field in ["value", "cidr"] {
                    if let (Some(of), Some(Value::String(value))) = (redaction_of_key, object.get(field)) {
                        let shown = self.control.values.redacted(of, value);
                        object.insert(field.into(), shown.into());
                    }
                }
                object.values_mut().for_each(|value| self.redact_entries(value, redaction));
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_entries(item, redaction)),
            _ => {}
        }
    }

    pub(super) async fn list_audit(&self, message: pb::ListAuditRequest) -> Result<pb::ListAuditResponse> {
        let limit = page_size(message.limit, ENTRIES_DEFAULT, ENTRIES_MAX);
        let entries = self.control.audit_log.recent(message.before, limit);
        Ok(pb::ListAuditResponse { entries: entries.into_iter().map(to_message).collect() })
    }
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
    let AuditEntry { number, time_ns, actor, peer, action, outcome, reason, details, intent: _, hash } =
        entry;
    let time = Some(timestamp(Timestamp::from_nanos(time_ns)));
    pb::AuditEntry { number, time, actor, peer, action, outcome, reason, details, hash }
}
