//! Matchers of requests, and the values of buckets: how an entry of a descriptor is read from a request.

use crate::cli::output::yaml::Yaml;
use std::{collections::BTreeMap, str::FromStr};
use tidegate_core::rules::{
    DeclaredEntry, DeclaredPath, DeclaredValues, Network, Pattern, SetValues, ValueSet,
};
use tidegate_envoy_config::KeySource;

/// `key=header:NAME`, `key=source_ip` or `key=constant`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct KeyInput {
    pub(super) key: String,
    pub(super) input: KeySource,
}

/// The reason why a descriptor has no bucket in Envoy.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(super) enum NoBucket {
    #[error("its key is a wildcard, which names no part of a request")]
    WildcardKey,
    #[error("`{0}` is constant, but has no single value in the rule")]
    Constant(String),
    #[error("`{0}` is an address, and the rule has texts for it; write `value_network`")]
    AddressByText(String),
    #[error("`{0}` is a header, and the rule has networks for it; write --input {0}=source_ip")]
    HeaderByNetwork(String),
}

impl FromStr for KeyInput {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let input = |text: &str| match text.split_once(':') {
            // The first colon of a pseudo-header's name is that of the name.
            Some(("header", name)) if !name.is_empty() => Some(KeySource::Header(name.to_ascii_lowercase())),
            None if text == "source_ip" => Some(KeySource::SourceIp),
            None if text == "constant" => Some(KeySource::Constant),
            _ => None,
        };
        let parsed = text.split_once('=').and_then(|(key, text)| Some((key, input(text)?)));
        match parsed {
            Some((key, input)) if !key.is_empty() => Ok(Self { key: key.to_owned(), input }),
            _ => Err("write KEY=header:NAME, KEY=source_ip or KEY=constant".to_owned()),
        }
    }
}

/// The input of a matcher.
fn input_of(source: &KeySource) -> Yaml {
    match source {
        KeySource::Header(name) => Yaml::extension(
            "header",
            "envoy.type.matcher.v3.HttpRequestHeaderMatchInput",
            [("header_name", Yaml::text(name))],
        ),
        KeySource::SourceIp | KeySource::Constant => Yaml::extension(
            "source_ip",
            "envoy.extensions.matching.common_inputs.network.v3.SourceIPInput",
            [],
        ),
    }
}

/// The bucket of a descriptor: the predicate of its requests, if it has one, and the values of its keys.
pub(super) fn bucket(
    path: &DeclaredPath<'_>,
    inputs: &BTreeMap<String, KeySource>,
) -> Result<(Option<Yaml>, Yaml), NoBucket> {
    let (mut predicates, mut values) = (Vec::new(), Vec::new());
    for DeclaredEntry { key, values: declared } in &path.entries {
        let key = key.ok_or(NoBucket::WildcardKey)?;
        let input = inputs.get(key).cloned().unwrap_or_else(|| KeySource::of_key(key));
        let fixed = fixed_value(*declared);
        let value = match (&input, fixed) {
            (KeySource::Constant, None) => return Err(NoBucket::Constant(key.to_owned())),
            (_, Some(value)) => Yaml::map([("string_value", Yaml::text(value))]),
            (input, None) => Yaml::map([("custom_value", input_of(input))]),
        };
        values.push((key.to_owned(), value));
        predicates.extend(predicate(key, &input, *declared)?);
    }
    let predicate = match predicates.len() {
        0 => None,
        1 => predicates.pop(),
        _ => Some(Yaml::map([("and_matcher", Yaml::map([("predicate", Yaml::List(predicates))]))])),
    };
    Ok((predicate, Yaml::Map(values)))
}

/// A value for all requests of a descriptor: its only value, or any of its values if they share a counter.
fn fixed_value(declared: DeclaredValues<'_>) -> Option<String> {
    match declared {
        DeclaredValues::Exact(value) => Some(value.to_owned()),
        DeclaredValues::Wildcard { pattern, shares_counter: true } => any_match(pattern),
        DeclaredValues::Set(set) if set.shares_counter() => match set.values() {
            SetValues::Texts(texts) => texts.first().map(ToString::to_string),
            SetValues::Wildcard(pattern) => any_match(pattern),
            SetValues::Networks(networks) => networks.first().map(first_address),
            SetValues::Regex(_) => None,
        },
        DeclaredValues::Any | DeclaredValues::Wildcard { .. } | DeclaredValues::Set(_) => None,
    }
}

/// A text that matches the pattern. Values of buckets are not empty.
fn any_match(pattern: &Pattern) -> Option<String> {
    let text = pattern.as_str().replace('*', "");
    Some(if text.is_empty() { "any".to_owned() } else { text }).filter(|text| pattern.matches(text))
}

fn first_address(network: &Network) -> String {
    network.to_string().split('/').next().unwrap_or_default().to_owned()
}

/// The predicate of requests with these values; none if every request has one of them.
fn predicate(key: &str, input: &KeySource, declared: DeclaredValues<'_>) -> Result<Option<Yaml>, NoBucket> {
    let name = match input {
        KeySource::Header(name) => name,
        KeySource::SourceIp => return address_predicate(key, declared),
        KeySource::Constant => return Ok(None),
    };
    let matches = match declared {
        // A header without a value has no bucket.
        DeclaredValues::Any => vec![regex(".+", false)],
        DeclaredValues::Exact(value) => vec![text("exact", value, false)],
        DeclaredValues::Wildcard { pattern, .. } => vec![wildcard(pattern, false)],
        DeclaredValues::Set(set) => set_matches(key, set)?,
    };
    let single = |matching: Yaml| {
        let input = input_of(&KeySource::Header(name.clone()));
        Yaml::map([("single_predicate", Yaml::map([("input", input), ("value_match", matching)]))])
    };
    let mut all: Vec<Yaml> = matches.into_iter().map(single).collect();
    Ok(match all.len() {
        1 => all.pop(),
        _ => Some(Yaml::map([("or_matcher", Yaml::map([("predicate", Yaml::List(all))]))])),
    })
}

fn set_matches(key: &str, set: &ValueSet) -> Result<Vec<Yaml>, NoBucket> {
    let any_case = set.ignores_case();
    Ok(match set.values() {
        SetValues::Texts(texts) => texts.iter().map(|value| text("exact", value, any_case)).collect(),
        SetValues::Wildcard(pattern) => vec![wildcard(pattern, any_case)],
        // Tidegate searches, Envoy matches the whole value.
        SetValues::Regex(expression) => vec![regex(&format!("(?s).*(?:{expression}).*"), any_case)],
        SetValues::Networks(_) => return Err(NoBucket::HeaderByNetwork(key.to_owned())),
    })
}

/// Envoy has no predicate that is an address by text, and needs none for any address.
fn address_predicate(key: &str, declared: DeclaredValues<'_>) -> Result<Option<Yaml>, NoBucket> {
    let networks: Vec<String> = match declared {
        DeclaredValues::Any => return Ok(None),
        DeclaredValues::Exact(value) if value.parse::<std::net::IpAddr>().is_ok() => vec![value.to_owned()],
        DeclaredValues::Set(set) => match set.values() {
            SetValues::Networks(networks) => networks.iter().map(ToString::to_string).collect(),
            _ => return Err(NoBucket::AddressByText(key.to_owned())),
        },
        _ => return Err(NoBucket::AddressByText(key.to_owned())),
    };
    let range = |network: String| {
        let (address, length) = match network.split_once('/') {
            Some((address, length)) => (address.to_owned(), length.parse().unwrap_or_default()),
            None => (network.clone(), if network.contains(':') { 128 } else { 32 }),
        };
        Yaml::map([("address_prefix", Yaml::Text(address)), ("prefix_len", Yaml::Number(length))])
    };
    let ranges = Yaml::List(networks.into_iter().map(range).collect());
    let matcher = Yaml::extension(
        "ip",
        "envoy.extensions.matching.input_matchers.ip.v3.Ip",
        [("cidr_ranges", ranges), ("stat_prefix", Yaml::text("rlqs"))],
    );
    let predicate = Yaml::map([("input", input_of(&KeySource::SourceIp)), ("custom_match", matcher)]);
    Ok(Some(Yaml::map([("single_predicate", predicate)])))
}

fn text(kind: &str, value: &str, any_case: bool) -> Yaml {
    let mut pairs = vec![(kind.to_owned(), Yaml::text(value))];
    if any_case {
        pairs.push(("ignore_case".to_owned(), Yaml::True));
    }
    Yaml::Map(pairs)
}

/// A whole value that an expression of RE2 matches. Envoy refuses it without `google_re2`.
fn regex(expression: &str, any_case: bool) -> Yaml {
    let flags = if any_case { "(?i)" } else { "" };
    let regex = Yaml::text(format!("{flags}{expression}"));
    Yaml::map([("safe_regex", Yaml::map([("google_re2", Yaml::map([])), ("regex", regex)]))])
}

fn wildcard(pattern: &Pattern, any_case: bool) -> Yaml {
    let has_middle = pattern.middles().next().is_some();
    match (pattern.prefix(), has_middle, pattern.suffix()) {
        ("", false, "") => regex(".+", false),
        (prefix, false, "") => text("prefix", prefix, any_case),
        ("", false, suffix) => text("suffix", suffix, any_case),
        _ => {
            let parts = pattern.as_str().split('*').map(escaped);
            regex(&format!("(?s){}", parts.collect::<Vec<_>>().join(".*")), any_case)
        }
    }
}

/// The text as a regular expression for itself.
fn escaped(text: &str) -> String {
    let escape = |character: char| match character.is_ascii_punctuation() {
        true => format!("\\{character}"),
        false => character.to_string(),
    };
    text.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_headers_addresses_and_constants() {
        let read = |text: &str| text.parse::<KeyInput>().map(|read| read.input);
        assert_eq!(read("user=header:X-User"), Ok(KeySource::Header("x-user".to_owned())));
        assert_eq!(read("user=header::path"), Ok(KeySource::Header(":path".to_owned())));
        assert_eq!(read("ip=source_ip"), Ok(KeySource::SourceIp));
        for wrong in ["", "user", "user=", "=header:x", "user=header:", "user=cookie:x"] {
            assert!(read(wrong).is_err_and(|error| error.contains("KEY=header:NAME")), "{wrong}");
        }
    }

    #[test]
    fn a_value_in_the_place_of_shared_ones_matches_their_pattern() {
        for text in ["/pay*", "*", "a*b*c", "*.png", "aba*aba"] {
            let pattern = Pattern::new(text).expect("it has a star");
            assert!(
                any_match(&pattern).is_some_and(|value| !value.is_empty() && pattern.matches(&value)),
                "{text}"
            );
        }
    }
}
