//! Comparison of two responses to one request.

use prost_types::{Struct, value::Kind};
use serde_json::Value;
use std::{collections::BTreeMap, fmt};
use tidegate::api::pb::{
    core::HeaderValue,
    service::{
        RateLimitResponse,
        rate_limit_response::{Code, DescriptorStatus},
    },
};
use tonic::Status;

/// Seconds by which durations may differ: both servers report whole seconds, of two moments.
const SECONDS: i64 = 1;

/// A difference that `docs/rules-reference.md` names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Documented {
    /// Quotas, in versions of the reference server in which they never deny.
    QuotaNeverDenies,
    /// `metadata` of a rule with `detailed_metric` or `value_to_metric`.
    MetadataDropped,
}

impl fmt::Display for Documented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::QuotaNeverDenies => "quotas never deny there",
            Self::MetadataDropped => "metadata of rules with metrics by value",
        })
    }
}

type Answer = Result<RateLimitResponse, Status>;

/// The differences between two responses: the documented differences, or a description of another difference.
pub fn compare(
    reference: &Answer,
    ours: &Answer,
    quotas_deny: bool,
    drops_metadata: bool,
) -> Result<BTreeMap<Documented, u32>, String> {
    let (reference, ours) = match (reference, ours) {
        (Ok(reference), Ok(ours)) => (reference, ours),
        (Err(one), Err(other)) if one.code() == other.code() => return Ok(BTreeMap::new()),
        (Err(one), Err(other)) => {
            return Err(format!("refused with {:?}, not {:?}", other.code(), one.code()));
        }
        (Ok(_), Err(refusal)) => return Err(format!("refused: {refusal}")),
        (Err(refusal), Ok(_)) => return Err(format!("not refused, as there: {refusal}")),
    };
    let mut documented = BTreeMap::new();
    let mut reference = reference.clone();
    if !quotas_deny {
        let quotas = with_quotas_that_deny(&mut reference, ours);
        if quotas > 0 {
            documented.insert(Documented::QuotaNeverDenies, quotas);
        }
    }
    let differs = |name: &str, there: &dyn fmt::Debug, here: &dyn fmt::Debug| {
        Err(format!("{name}: {here:?} here, {there:?} there"))
    };
    if reference.overall_code != ours.overall_code {
        return differs("overall_code", &reference.overall_code(), &ours.overall_code());
    }
    if reference.statuses.len() != ours.statuses.len() {
        return differs("statuses", &reference.statuses.len(), &ours.statuses.len());
    }
    for (index, (there, here)) in reference.statuses.iter().zip(&ours.statuses).enumerate() {
        if !is_same_status(there, here) {
            return differs(&format!("statuses[{index}]"), there, here);
        }
    }
    let (there, here) = (&reference.response_headers_to_add, &ours.response_headers_to_add);
    if there.len() != here.len() || !there.iter().zip(here).all(|(there, here)| is_same_header(there, here)) {
        return differs("response_headers_to_add", there, here);
    }
    let (there, here) = (metadata(reference.dynamic_metadata), metadata(ours.dynamic_metadata.clone()));
    for name in ["domain", "descriptors", "hitsAddend"] {
        if there[name] != here[name] {
            return differs(name, &there[name], &here[name]);
        }
    }
    if quotas_deny && there["metadata"] != here["metadata"] {
        if !drops_metadata {
            return differs("metadata", &there["metadata"], &here["metadata"]);
        }
        *documented.entry(Documented::MetadataDropped).or_default() += 1;
    }
    Ok(documented)
}

/// Rewrites quotas that are over their limit, which older versions report as OK and without a duration. Returns their number.
fn with_quotas_that_deny(reference: &mut RateLimitResponse, ours: &RateLimitResponse) -> u32 {
    let mut quotas = 0;
    for (there, here) in reference.statuses.iter_mut().zip(&ours.statuses) {
        let is_quota = there.current_limit.is_some() && there.duration_until_reset.is_none();
        if is_quota && here.code() == Code::OverLimit {
            there.set_code(Code::OverLimit);
            there.duration_until_reset = here.duration_until_reset;
            quotas += 1;
        }
    }
    if quotas > 0 {
        // The overall code may differ in this direction only.
        if reference.overall_code() == Code::Ok && ours.overall_code() == Code::OverLimit {
            reference.set_overall_code(Code::OverLimit);
        }
    }
    quotas
}

fn is_same_status(there: &DescriptorStatus, here: &DescriptorStatus) -> bool {
    let seconds = |status: &DescriptorStatus| status.duration_until_reset.map(|duration| duration.seconds);
    let is_near = match (seconds(there), seconds(here)) {
        (Some(there), Some(here)) => (there - here).abs() <= SECONDS,
        (None, None) => true,
        _ => false,
    };
    let without =
        |status: &DescriptorStatus| DescriptorStatus { duration_until_reset: None, ..status.clone() };
    is_near && without(there) == without(here)
}

fn is_same_header(there: &HeaderValue, here: &HeaderValue) -> bool {
    let number = |header: &HeaderValue| header.value.parse::<i64>().unwrap_or(i64::MIN);
    let is_reset = there.key.ends_with("Reset");
    there.key == here.key
        && (there.value == here.value || is_reset && (number(there) - number(here)).abs() <= SECONDS)
}

/// Metadata as JSON. The text of a limit in it has random spaces in the reference server.
fn metadata(metadata: Option<Struct>) -> Value {
    fn json(kind: Option<Kind>) -> Value {
        match kind {
            Some(Kind::NumberValue(number)) => number.into(),
            Some(Kind::StringValue(text)) => {
                text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ").into()
            }
            Some(Kind::BoolValue(boolean)) => boolean.into(),
            Some(Kind::StructValue(fields)) => object(fields),
            Some(Kind::ListValue(list)) => list.values.into_iter().map(|value| json(value.kind)).collect(),
            None | Some(Kind::NullValue(_)) => Value::Null,
        }
    }
    fn object(fields: Struct) -> Value {
        Value::Object(fields.fields.into_iter().map(|(name, value)| (name, json(value.kind))).collect())
    }
    metadata.map_or(Value::Null, object)
}
