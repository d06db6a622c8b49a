//! A bound on the memory of a decoded message of reports: an empty report takes two bytes on the wire, and fifty times as many in memory.
//!
//! Invariant: a message that is passed on to the decoder has at most [`PARTS_MAX`] reports and pairs of keys and values.

use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use tonic::Status;

/// The most reports and pairs in one message; some 300 bytes each when decoded. A stream may have a thousand buckets.
const PARTS_MAX: usize = 40_000;

/// Refuses a message of reports that has too many parts.
pub(in crate::api) fn screen(message: &[u8]) -> Result<(), Status> {
    if parts(message) > PARTS_MAX {
        let reason = format!("a message of reports has more than {PARTS_MAX} buckets and keys; send fewer");
        return Err(Status::resource_exhausted(reason));
    }
    Ok(())
}

/// Number of reports in a message, and of pairs in their buckets.
fn parts(message: &[u8]) -> usize {
    const REPORTS: u32 = 2;
    const BUCKET_ID: u32 = 1;
    const PAIRS: u32 = 1;
    let of_bucket = |bucket| nested(bucket, PAIRS).count();
    let of_report = |report| 1 + nested(report, BUCKET_ID).map(of_bucket).sum::<usize>();
    nested(message, REPORTS).map(of_report).sum()
}

/// The messages in fields of this number. Ends where the message is malformed; the decoder reports that.
fn nested(mut message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        while !message.is_empty() {
            let (tag, wire_type) = decode_key(&mut message).ok()?;
            if wire_type != WireType::LengthDelimited {
                skip_field(wire_type, tag, &mut message, DecodeContext::default()).ok()?;
                continue;
            }
            let length = usize::try_from(decode_varint(&mut message).ok()?).ok()?;
            let (value, rest) = message.split_at_checked(length)?;
            message = rest;
            if tag == number {
                return Some(value);
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::pb::quota::{
        BucketId, RateLimitQuotaUsageReports, bucket_id::BucketEntry,
        rate_limit_quota_usage_reports::BucketQuotaUsage,
    };
    use prost::Message as _;

    fn report(pairs: usize) -> BucketQuotaUsage {
        let pair = |key: usize| BucketEntry { key: key.to_string().into(), value: "value".into() };
        let bucket = (0..pairs).map(pair).collect();
        let (num_requests_allowed, num_requests_denied) = (300, 2);
        BucketQuotaUsage {
            bucket_id: Some(BucketId { bucket }),
            time_elapsed: Some(prost_types::Duration { seconds: 5, nanos: 0 }),
            num_requests_allowed,
            num_requests_denied,
        }
    }

    #[test]
    fn reports_and_pairs_of_a_message_are_counted() {
        for (buckets, expected) in [(vec![], 0), (vec![1], 2), (vec![3, 0, 2], 8)] {
            let domain = "a domain".to_owned();
            let reports = buckets.into_iter().map(report).collect();
            let message = RateLimitQuotaUsageReports { domain, bucket_quota_usages: reports };
            assert_eq!(parts(&message.encode_to_vec()), expected);
        }
        // Empty reports, and what is malformed behind them.
        assert_eq!(parts(&[[0x12, 0].as_slice(), &[0x12, 0, 0xff]].concat()), 2);
    }
}
