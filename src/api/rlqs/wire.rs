//! Messages of quotas: reports that are read, and assignments.

use crate::api::{
    pb::{
        quota::{
            BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports,
            bucket_id::BucketEntry,
            rate_limit_quota_response::{
                BucketAction,
                bucket_action::{self, AbandonAction, QuotaAssignmentAction},
            },
        },
        types::{
            RateLimitStrategy, TokenBucket,
            rate_limit_strategy::{BlanketRule, Strategy},
        },
    },
    time::duration,
};
use std::borrow::Cow;
use tidegate_core::limit::RequestLimits;
use tidegate_service::{Assignment, BucketName, BucketReport, SentAssignment};
use tidegate_shared::quota::Usage;
use tonic::Status;

/// The most buckets in one message: four times as many as a stream may have. Longer messages are refused, so that none takes longer than
/// some milliseconds.
const REPORTS_MAX: usize = 4_000;

/// The reports of a message, or why it is refused.
pub(super) fn reports(
    message: &RateLimitQuotaUsageReports,
    limits: &RequestLimits,
) -> Result<Vec<BucketReport>, Status> {
    let invalid = |index: usize, what: String| {
        Err(Status::invalid_argument(format!("bucket_quota_usages[{index}].bucket_id.bucket {what}")))
    };
    let (bytes_max, entries_max) = (limits.text_bytes_max, limits.entries_max);
    if message.domain.len() > bytes_max {
        let bytes = message.domain.len();
        let message = format!("domain is {bytes} bytes long; at most {bytes_max} are accepted");
        return Err(Status::invalid_argument(message));
    }
    let mut reports = Vec::with_capacity(message.bucket_quota_usages.len().min(REPORTS_MAX));
    for (index, usage) in message.bucket_quota_usages.iter().take(REPORTS_MAX).enumerate() {
        let Some(id) = usage.bucket_id.as_ref().filter(|id| !id.bucket.is_empty()) else {
            return invalid(index, "is empty; send at least one key with a value".to_owned());
        };
        if id.bucket.len() > entries_max {
            return invalid(
                index,
                format!("has {} keys; at most {entries_max} are accepted", id.bucket.len()),
            );
        }
        if id.bucket.iter().any(|pair| pair.key.is_empty()) {
            return invalid(index, "has an empty key; every value needs a key".to_owned());
        }
        let pairs = id.bucket.iter().map(|pair| (&*pair.key, &*pair.value));
        let (allowed, denied) = (usage.num_requests_allowed, usage.num_requests_denied);
        // Envoy reports a new bucket at once, without elapsed time, and other buckets with whole seconds.
        let is_first = usage.time_elapsed.unwrap_or_default() == prost_types::Duration::default();
        let usage = Usage { allowed, denied, is_first };
        reports.push(BucketReport { bucket: BucketName::of_bytes(pairs, bytes_max), usage });
    }
    Ok(reports)
}

/// The message with these assignments.
pub(super) fn response(assignments: &[SentAssignment]) -> RateLimitQuotaResponse {
    let action = |SentAssignment { bucket, assignment, .. }: &SentAssignment| {
        let pair = |(key, value): (Cow<'_, [u8]>, Cow<'_, [u8]>)| BucketEntry {
            key: key.into(),
            value: value.into(),
        };
        let pairs = bucket.sent().map(pair);
        let bucket_id = Some(BucketId { bucket: pairs.collect() });
        BucketAction { bucket_id, bucket_action: Some(bucket_action(*assignment)) }
    };
    RateLimitQuotaResponse { bucket_action: assignments.iter().map(action).collect() }
}

fn bucket_action(assignment: Assignment) -> bucket_action::BucketAction {
    let strategy = match assignment {
        Assignment::Tokens { max_tokens, tokens_per_fill, fill_interval } => {
            let fill_interval = Some(duration(fill_interval));
            let bucket = TokenBucket { max_tokens, tokens_per_fill: Some(tokens_per_fill), fill_interval };
            Strategy::TokenBucket(bucket)
        }
        Assignment::AllowAll => Strategy::BlanketRule(BlanketRule::AllowAll.into()),
        Assignment::DenyAll => Strategy::BlanketRule(BlanketRule::DenyAll.into()),
        Assignment::Abandon => return bucket_action::BucketAction::AbandonAction(AbandonAction {}),
    };
    bucket_action::BucketAction::QuotaAssignmentAction(QuotaAssignmentAction {
        assignment_time_to_live: assignment.ttl().map(duration),
        rate_limit_strategy: Some(RateLimitStrategy { strategy: Some(strategy) }),
    })
}
