//! Networks of rules: the last line is a value, the lines before it are networks. The rule of the value is that of the longest network with
//! its address, or with all addresses if the value is a network, found bit by bit.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::json;
use std::net::IpAddr;
use tidegate_core::{
    limit::Entry,
    rules::{LoadOptions, Network, RuleSet, Source},
};

fuzz_target!(|text: &str| {
    let Some((networks, value)) = text.rsplit_once('\n') else { return };
    let networks: Vec<&str> = networks.split('\n').collect();
    let descriptors = networks.iter().enumerate().map(|(at, network)| {
        json!({ "key": "k", "value_network": network, "metadata": { "at": at }, "rate_limit": { "unit": "day", "requests_per_unit": 2 } })
    });
    let file = json!({ "domain": "d", "descriptors": descriptors.collect::<Vec<_>>() }).to_string();
    let rules = match RuleSet::parse(&[Source::file("fuzz.yaml", file)], &LoadOptions::default()) {
        Ok(rules) => rules,
        Err(errors) => return assert!(!errors.to_string().is_empty()),
    };
    let of_value = value.parse().map(|value: Network| bits_of(&value.to_string()));
    let length = |network: &&str| {
        let (first, length) = bits_of(network);
        let (address, longer) = of_value.ok()?;
        let is_inside = is_v4((first, length)) == is_v4((address, longer))
            && length <= longer
            && (0..length).all(|bit| address << bit >> 127 == first << bit >> 127);
        is_inside.then_some(length)
    };
    let expected = networks.iter().enumerate().filter_map(|(at, network)| Some((length(network)?, at)));
    let expected = expected.max().map(|(_, at)| at as u64);
    let found = rules.domain("d").expect("it is declared").find(&[Entry { key: "k", value }]);
    let at = found.and_then(|found| found.rule.info.metadata.as_ref()?["at"].as_u64());
    assert_eq!(at, expected, "{value:?}");
    // Networks that contain other networks are named, and no others.
    let is_around = |outer: &&str, inner: &&str| {
        let ((first, length), (address, longer)) = (bits_of(outer), bits_of(inner));
        is_v4((first, length)) == is_v4((address, longer))
            && length < longer
            && (0..length).all(|bit| address << bit >> 127 == first << bit >> 127)
    };
    let inside = networks.iter().filter(|inner| networks.iter().any(|outer| is_around(outer, inner)));
    let warnings = rules.warnings();
    let named = warnings.iter().filter(|warning| warning.to_string().contains(" is inside "));
    assert_eq!(named.count(), inside.count());
});

/// First address and length of a network of a file, in bits of IPv6.
fn bits_of(network: &str) -> (u128, u32) {
    let (address, length) = network.split_once('/').unwrap_or((network, ""));
    let address: IpAddr = address.parse().expect("the file has loaded");
    let all = if address.is_ipv4() { 32 } else { 128 };
    let length = if length.is_empty() { all } else { length.parse().expect("the file has loaded") };
    (bits(address), 128 - all + length)
}

/// Whether a network has IPv4 addresses alone; no other network has any.
fn is_v4((first, length): (u128, u32)) -> bool {
    length >= 96 && first >> 32 == 0xffff
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}
