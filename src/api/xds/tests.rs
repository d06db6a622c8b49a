//! Resources as documents, and the acceptance and refusal of responses.

use super::{
    resource::{TYPE_URL, source},
    stream::State,
};
use crate::api::{
    pb::{
        discovery::DiscoveryResponse,
        rules::{RateLimitConfig, RateLimitDescriptor, RateLimitPolicy, RateLimitReplace, RateLimitUnit},
    },
    protobuf_struct::to_struct,
};
use prost::Message as _;
use prost_types::Any;
use std::time::Duration;
use tidegate_core::{
    limit::Entry,
    rules::{LoadOptions, RuleSet, Source},
};

fn resource(name: &str, descriptors: Vec<RateLimitDescriptor>) -> Any {
    let config = RateLimitConfig { name: name.into(), domain: "d".into(), descriptors };
    Any { type_url: TYPE_URL.into(), value: config.encode_to_vec() }
}

fn descriptor(key: &str, rate_limit: Option<RateLimitPolicy>) -> RateLimitDescriptor {
    RateLimitDescriptor { key: key.into(), rate_limit, ..RateLimitDescriptor::default() }
}

fn policy(requests_per_unit: u32, unit: RateLimitUnit) -> Option<RateLimitPolicy> {
    Some(RateLimitPolicy { requests_per_unit, unit: unit.into(), ..RateLimitPolicy::default() })
}

fn with_metadata(mut descriptor: RateLimitDescriptor, json: serde_json::Value) -> RateLimitDescriptor {
    let serde_json::Value::Object(object) = json else { panic!("an object") };
    descriptor.metadata = Some(to_struct(object));
    descriptor
}

fn parse(resource: &Any) -> Result<RuleSet, String> {
    let source: Source = source(resource)?;
    RuleSet::parse(&[source], &LoadOptions::default()).map_err(|errors| errors.to_string())
}

/// Limits of the only domain, as `path: requests per window, algorithm`.
fn limits(resource: &Any) -> Vec<String> {
    let rules = parse(resource).expect("a good resource");
    let limits = rules.rule_limits();
    let shown = |(rule, limit): (&tidegate_core::rules::Rule, &tidegate_core::rules::RuleLimit)| {
        let algorithm = limit.algorithm.name();
        format!("{}: {} per {}, {algorithm}", rule.info.path, limit.requests, limit.window)
    };
    limits.map(shown).collect()
}

#[test]
fn every_field_of_a_resource_has_its_meaning() {
    let nested = RateLimitDescriptor {
        value: "gold".into(),
        descriptors: vec![RateLimitDescriptor {
            shadow_mode: true,
            detailed_metric: true,
            ..descriptor("user", policy(3, RateLimitUnit::Hour))
        }],
        ..descriptor("plan", None)
    };
    let unlimited = RateLimitPolicy { unlimited: true, ..RateLimitPolicy::default() };
    let replacing = RateLimitPolicy {
        name: "burst".into(),
        replaces: vec![RateLimitReplace { name: "daily".into() }],
        ..policy(5, RateLimitUnit::Week).unwrap_or_default()
    };
    let quota = RateLimitDescriptor { quota_mode: true, ..descriptor("quota", Some(replacing)) };
    let resource = resource("r", vec![nested, descriptor("free", Some(unlimited)), quota]);
    let rules = parse(&resource).expect("a good resource");
    let domain = rules.domain("d").expect("its domain");
    let [_, user, free, quota] = &domain.rules()[..] else { panic!("four rules") };
    assert!(user.shadow && user.detailed_metric && free.unlimited && quota.info.quota);
    assert_eq!((&*quota.limits[0].name, quota.replaced_names()[0]), ("burst", "daily"));
    assert_eq!(
        limits(&resource),
        ["plan=gold → user: 3 per 1h, sliding_window", "quota: 5 per 7d, sliding_window"]
    );
    assert!(user.origin.to_string().starts_with("xds:r:"), "{}", user.origin);
}

/// A key with U+007F or U+FFFF refused the whole response, and the rules of all other resources stayed old.
#[test]
fn keys_and_values_of_any_characters_are_those_of_the_resource() {
    // `*` in a key or a value is a wildcard.
    let all: Vec<char> = ('\0'..=char::MAX).filter(|one| *one != '*').collect();
    let texts = all.chunks(512).map(|characters| format!("x{}x", characters.iter().collect::<String>()));
    let texts: Vec<String> = texts.chain(all.iter().take(1 << 8).map(char::to_string)).collect();
    let declared = texts.iter().map(|text| RateLimitDescriptor {
        value: text.clone(),
        ..descriptor(text, policy(1, RateLimitUnit::Day))
    });
    let rules = parse(&resource("r", declared.collect())).expect("a good resource");
    let domain = rules.domain("d").expect("its domain");
    for text in &texts {
        let found = domain.find(&[Entry { key: text, value: text }]);
        assert!(found.is_some_and(|found| found.rule.limits.len() == 1), "{text:?}");
    }
}

#[test]
fn metadata_of_tidegate_adds_keys_of_rule_files() {
    let bucket = serde_json::json!({ "tidegate": { "algorithm": "leaky_bucket", "burst": 7 }, "team": "a" });
    let several = serde_json::json!({ "tidegate": { "rate_limits": [
        { "name": "burst", "per": "10s", "requests_per_unit": 2 },
        { "name": "daily", "unit": "day", "requests_per_unit": 9 },
    ] } });
    let window = serde_json::json!({ "tidegate": { "per": "90s" } });
    let resource = resource(
        "r",
        vec![
            with_metadata(descriptor("a", policy(5, RateLimitUnit::Second)), bucket),
            with_metadata(descriptor("b", policy(5, RateLimitUnit::Second)), several),
            with_metadata(descriptor("c", policy(5, RateLimitUnit::Second)), window),
        ],
    );
    assert_eq!(
        limits(&resource),
        [
            "a: 5 per 1s, leaky_bucket",
            "b: 2 per 10s, sliding_window",
            "b: 9 per 1d, sliding_window",
            "c: 5 per 90s, sliding_window",
        ]
    );
    let rules = parse(&resource).expect("a good resource");
    let domain = rules.domain("d").expect("its domain");
    assert_eq!(domain.rules()[0].info.metadata, Some(serde_json::json!({ "team": "a" })));
}

#[test]
fn metadata_of_tidegate_sets_values_in_the_place_of_the_one_in_the_message() {
    let of = |tidegate: serde_json::Value| {
        let named = RateLimitDescriptor {
            value: "office".into(),
            ..descriptor("ip", policy(5, RateLimitUnit::Minute))
        };
        limits(&resource("r", vec![with_metadata(named, serde_json::json!({ "tidegate": tidegate }))]))
    };
    assert_eq!(
        of(serde_json::json!({ "value_network": ["10.0.0.0/8"] })),
        ["ip=(network 10.0.0.0/8): 5 per 1m, sliding_window"]
    );
    assert_eq!(
        of(serde_json::json!({ "value_ignore_case": true })),
        ["ip=(value office, any case): 5 per 1m, sliding_window"]
    );
}

#[test]
fn errors_name_the_resource_the_path_the_value_and_the_remedy() {
    let error = |descriptors| parse(&resource("r", descriptors)).expect_err("a bad resource");
    let unit = error(vec![descriptor("a", policy(5, RateLimitUnit::Unknown))]);
    assert!(
        unit.starts_with("xds:r:") && unit.contains("descriptors[0].rate_limit.unit: \"unknown\""),
        "{unit}"
    );
    let both = RateLimitPolicy { unlimited: true, ..policy(5, RateLimitUnit::Day).unwrap_or_default() };
    assert!(error(vec![descriptor("a", Some(both))]).contains("descriptors[0].rate_limit.unit"));
    let tidegate = with_metadata(descriptor("a", None), serde_json::json!({ "tidegate": 5 }));
    assert!(error(vec![tidegate]).contains("descriptors[0].tidegate"));
    let other = Any { type_url: "type.googleapis.com/a.B".into(), value: Vec::new() };
    assert!(parse(&other).expect_err("not a config").contains("a.B"));
    let cut = Any { type_url: TYPE_URL.into(), value: vec![0x0a, 0x05] };
    assert!(parse(&cut).expect_err("not a message").contains("cannot be decoded"));
}

#[test]
fn a_version_that_is_sent_again_is_refused_later() {
    let response = |version: &str| DiscoveryResponse {
        version_info: version.into(),
        nonce: format!("nonce of {version}"),
        ..DiscoveryResponse::default()
    };
    let (mut state, random) = (State::default(), u32::MAX);
    assert_eq!(state.accept(&response("1")).version_info, "1");
    let (refusal, wait) = state.refuse(&response("2"), "bad".into(), random);
    assert_eq!((refusal.version_info.as_str(), refusal.response_nonce.as_str()), ("1", "nonce of 2"));
    assert_eq!(refusal.error_detail.map(|detail| detail.message), Some("bad".into()));
    assert_eq!(wait, Duration::ZERO);
    let mut again = || state.refuse(&response("2"), String::new(), random).1.as_secs();
    assert_eq!([again(), again(), again()], [1, 2, 4]);
    assert_eq!(state.refuse(&response("3"), String::new(), random).1, Duration::ZERO);
    state.accept(&response("4"));
    assert_eq!(state.refuse(&response("3"), String::new(), random).1, Duration::ZERO);
}

/// 400,000 leaves at depth 60 took 639 MiB: their document consisted of indentation.
#[test]
fn the_document_of_a_deep_resource_is_in_proportion_to_it() {
    let leaves = (0..2_000).map(|number| descriptor(&format!("k{number}"), None)).collect();
    let deep = (0..60)
        .fold(leaves, |descriptors, _| vec![RateLimitDescriptor { descriptors, ..descriptor("d", None) }]);
    let resource = resource("deep", deep);
    let document = source(&resource).expect("a document");
    let text = document.text();
    assert!(text.len() < 4 * resource.value.len(), "{} of {}", text.len(), resource.value.len());
}
