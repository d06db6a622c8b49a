//! Wire compatibility with Envoy: compares our messages with the prost types of the `envoy-types` crate.
//!
//! For generated messages with every field set, the value is built in our types and in those of `envoy-types`; the bytes that one type
//! encodes must decode to the value of the other.

use envoy_types::pb::{envoy as theirs, google::protobuf as google};
use proptest::{collection::vec, option, prelude::*};
use prost::Message;
use tidegate::api::pb::{common, core, service};

type TheirRequest = theirs::service::ratelimit::v3::RateLimitRequest;
type TheirResponse = theirs::service::ratelimit::v3::RateLimitResponse;

/// One value in both types.
type Both<A, B> = (A, B);

fn entry() -> impl Strategy<
    Value = Both<
        common::rate_limit_descriptor::Entry,
        theirs::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry,
    >,
> {
    (".*", ".*").prop_map(|(key, value)| {
        let ours =
            common::rate_limit_descriptor::Entry { key: key.clone().into(), value: value.clone().into() };
        (ours, theirs::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry { key, value })
    })
}

fn descriptor() -> impl Strategy<
    Value = Both<common::RateLimitDescriptor, theirs::extensions::common::ratelimit::v3::RateLimitDescriptor>,
> {
    let limit = option::of((any::<u32>(), any::<i32>()));
    (vec(entry(), 0..4), limit, option::of(any::<u64>()), any::<bool>()).prop_map(
        |(entries, limit, hits, is_negative_hits)| {
            let (our_entries, their_entries) = entries.into_iter().unzip();
            let ours = common::RateLimitDescriptor {
                entries: our_entries,
                limit: limit.map(|(requests_per_unit, unit)| {
                    common::rate_limit_descriptor::RateLimitOverride { requests_per_unit, unit }
                }),
                hits_addend: hits,
                is_negative_hits,
            };
            use theirs::extensions::common::ratelimit::v3 as t;
            let their_limit = limit.map(|(requests_per_unit, unit)| {
                t::rate_limit_descriptor::RateLimitOverride { requests_per_unit, unit }
            });
            let theirs = t::RateLimitDescriptor {
                entries: their_entries,
                limit: their_limit,
                hits_addend: hits.map(|value| google::UInt64Value { value }),
                is_negative_hits,
            };
            (ours, theirs)
        },
    )
}

fn request() -> impl Strategy<Value = Both<service::RateLimitRequest, TheirRequest>> {
    (".*", vec(descriptor(), 0..4), any::<u32>()).prop_map(|(domain, descriptors, hits_addend)| {
        let (our_descriptors, their_descriptors) = descriptors.into_iter().unzip();
        let ours =
            service::RateLimitRequest { domain: domain.clone(), descriptors: our_descriptors, hits_addend };
        (ours, TheirRequest { domain, descriptors: their_descriptors, hits_addend })
    })
}

fn quota() -> impl Strategy<
    Value = Both<
        service::rate_limit_response::Quota,
        theirs::service::ratelimit::v3::rate_limit_response::Quota,
    >,
> {
    let valid_until = option::of((any::<i64>(), any::<i32>()));
    (any::<u32>(), valid_until, ".*").prop_map(|(requests, valid_until, id)| {
        use service::rate_limit_response as o;
        use theirs::service::ratelimit::v3::rate_limit_response as t;
        let ours = o::Quota {
            requests,
            expiration_specifier: valid_until.map(|(seconds, nanos)| {
                o::quota::ExpirationSpecifier::ValidUntil(prost_types::Timestamp { seconds, nanos })
            }),
            id: id.clone(),
        };
        let expiration_specifier = valid_until.map(|(seconds, nanos)| {
            t::quota::ExpirationSpecifier::ValidUntil(google::Timestamp { seconds, nanos })
        });
        (ours, t::Quota { requests, id, expiration_specifier })
    })
}

fn status() -> impl Strategy<
    Value = Both<
        service::rate_limit_response::DescriptorStatus,
        theirs::service::ratelimit::v3::rate_limit_response::DescriptorStatus,
    >,
> {
    use service::rate_limit_response as o;
    use theirs::service::ratelimit::v3::rate_limit_response as t;
    let limit = option::of((".*", any::<u32>(), any::<i32>()));
    let reset = option::of((any::<i64>(), any::<i32>()));
    (any::<i32>(), limit, any::<u32>(), reset, option::of(quota())).prop_map(
        |(code, limit, limit_remaining, reset, quota)| {
            let (our_quota, their_quota) = quota.unzip();
            let our_limit = limit.clone().map(|(name, requests_per_unit, unit)| o::RateLimit {
                name,
                requests_per_unit,
                unit,
                window: None,
            });
            let their_limit =
                limit.map(|(name, requests_per_unit, unit)| t::RateLimit { name, requests_per_unit, unit });
            let ours = o::DescriptorStatus {
                code,
                current_limit: our_limit,
                limit_remaining,
                duration_until_reset: reset.map(|(seconds, nanos)| prost_types::Duration { seconds, nanos }),
                quota: our_quota,
                mode: 0,
                estimated: false,
            };
            let theirs = t::DescriptorStatus {
                code,
                current_limit: their_limit,
                limit_remaining,
                duration_until_reset: reset.map(|(seconds, nanos)| google::Duration { seconds, nanos }),
                quota: their_quota,
            };
            (ours, theirs)
        },
    )
}

fn header() -> impl Strategy<Value = Both<core::HeaderValue, theirs::config::core::v3::HeaderValue>> {
    (".*", ".*", vec(any::<u8>(), 0..9)).prop_map(|(key, value, raw_value)| {
        let ours = core::HeaderValue { key: key.clone(), value: value.clone(), raw_value: raw_value.clone() };
        (ours, theirs::config::core::v3::HeaderValue { key, value, raw_value })
    })
}

/// A struct with one field of each kind of value.
fn metadata() -> impl Strategy<Value = Both<prost_types::Struct, google::Struct>> {
    (".*", any::<f64>().prop_filter("NaN equals nothing", |x| !x.is_nan()), any::<bool>()).prop_map(
        |(text, number, truth)| {
            use google::value::Kind as T;
            use prost_types::value::Kind as O;
            let ours = |kind| prost_types::Value { kind: Some(kind) };
            let theirs = |kind| google::Value { kind: Some(kind) };
            let our_list = prost_types::ListValue { values: vec![ours(O::NullValue(0))] };
            let their_list = google::ListValue { values: vec![theirs(T::NullValue(0))] };
            let our_fields = [
                ("text", O::StringValue(text.clone())),
                ("number", O::NumberValue(number)),
                ("truth", O::BoolValue(truth)),
                ("list", O::ListValue(our_list)),
            ];
            let their_fields = [
                ("text", T::StringValue(text)),
                ("number", T::NumberValue(number)),
                ("truth", T::BoolValue(truth)),
                ("list", T::ListValue(their_list)),
            ];
            (
                prost_types::Struct { fields: our_fields.map(|(key, kind)| (key.into(), ours(kind))).into() },
                google::Struct { fields: their_fields.map(|(key, kind)| (key.into(), theirs(kind))).into() },
            )
        },
    )
}

fn response() -> impl Strategy<Value = Both<service::RateLimitResponse, TheirResponse>> {
    let headers = || vec(header(), 0..3);
    let parts = (
        any::<i32>(),
        vec(status(), 0..4),
        headers(),
        headers(),
        vec(any::<u8>(), 0..40),
        option::of(metadata()),
        option::of(quota()),
    );
    parts.prop_map(|(overall_code, statuses, to_response, to_request, raw_body, metadata, quota)| {
        let (our_statuses, their_statuses) = statuses.into_iter().unzip();
        let (our_to_response, their_to_response) = to_response.into_iter().unzip();
        let (our_to_request, their_to_request) = to_request.into_iter().unzip();
        let (our_metadata, their_metadata) = metadata.unzip();
        let (our_quota, their_quota) = quota.unzip();
        let ours = service::RateLimitResponse {
            overall_code,
            statuses: our_statuses,
            response_headers_to_add: our_to_response,
            request_headers_to_add: our_to_request,
            raw_body: raw_body.clone(),
            dynamic_metadata: our_metadata,
            quota: our_quota,
        };
        let theirs = TheirResponse {
            overall_code,
            statuses: their_statuses,
            response_headers_to_add: their_to_response,
            request_headers_to_add: their_to_request,
            raw_body,
            dynamic_metadata: their_metadata,
            quota: their_quota,
        };
        (ours, theirs)
    })
}

proptest! {
    #[test]
    fn a_request_is_the_same_on_both_sides((ours, theirs) in request()) {
        prop_assert_eq!(&TheirRequest::decode(&*ours.encode_to_vec()).unwrap(), &theirs);
        prop_assert_eq!(&service::RateLimitRequest::decode(&*theirs.encode_to_vec()).unwrap(), &ours);
    }

    #[test]
    fn a_response_is_the_same_on_both_sides((ours, theirs) in response()) {
        prop_assert_eq!(&TheirResponse::decode(&*ours.encode_to_vec()).unwrap(), &theirs);
        prop_assert_eq!(&service::RateLimitResponse::decode(&*theirs.encode_to_vec()).unwrap(), &ours);
    }
}

#[test]
fn the_call_has_the_path_that_envoy_calls() {
    use theirs::service::ratelimit::v3::rate_limit_service_server as their_server;
    use tidegate::api::pb::service::rate_limit_service_server as ours;
    assert_eq!(ours::SERVICE_NAME, their_server::SERVICE_NAME);
}
