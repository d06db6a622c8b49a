//! Matching agrees with an oracle that scans the declared rules from top to bottom.

use super::rules;
use crate::{
    limit::Entry,
    rules::{Matched, Outcome},
};
use proptest::prelude::*;

/// A descriptor of a random tree: key, values, those below.
#[derive(Clone, Debug)]
struct Declared {
    key: String,
    values: Values,
    below: Vec<Declared>,
}

/// The keys of a descriptor that select its values.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Values {
    /// `value`; empty for none.
    Text(String),
    AnyCase(String),
    List(Vec<String>),
    Networks(Vec<(u8, u8)>),
    Regex(String),
}

impl Values {
    fn to_yaml(&self) -> String {
        match self {
            Self::Text(text) => format!("value: '{text}'"),
            Self::AnyCase(text) => format!("value: '{text}', value_ignore_case: true"),
            Self::List(texts) => format!("values: [{}]", texts.join(", ")),
            Self::Networks(networks) => {
                let networks: Vec<String> =
                    networks.iter().map(|(byte, length)| format!("{byte}.0.0.0/{length}")).collect();
                format!("value_network: [{}]", networks.join(", "))
            }
            Self::Regex(text) => format!("value_regex: '{text}'"),
        }
    }

    /// Values that no two descriptors of a key and level have in common.
    fn single(&self) -> Vec<String> {
        match self {
            Self::Text(text) => vec![text.clone()],
            Self::AnyCase(text) => vec![format!("any {}", text.to_lowercase())],
            Self::List(texts) => texts.clone(),
            Self::Networks(networks) => networks.iter().map(|network| format!("{network:?}")).collect(),
            Self::Regex(text) => vec![format!("regex {text}")],
        }
    }

    /// The rank and the place within it by which the values win over others that match too; none if they do not match.
    fn rank(&self, value: &str) -> Option<(u8, usize)> {
        let lower = value.to_lowercase();
        match self {
            Self::Text(text) if text.is_empty() => Some((6, 0)),
            Self::Text(text) if text.contains('*') => None,
            Self::Text(text) => (*text == value).then_some((0, 0)),
            Self::List(texts) => texts.iter().any(|text| text == value).then_some((1, 0)),
            Self::AnyCase(text) if text.contains('*') => None,
            Self::AnyCase(text) => (text.to_lowercase() == lower).then_some((2, 0)),
            Self::Networks(networks) => {
                let first: u8 = value.strip_suffix(".0.0.1")?.parse().ok()?;
                let length = |(byte, length): &(u8, u8)| {
                    (first >> (8 - length) == byte >> (8 - length)).then_some(*length)
                };
                let longest = networks.iter().filter_map(length).max()?;
                Some((3, usize::from(8 - longest)))
            }
            Self::Regex(text) => matches_regex(text, value).then_some((5, 0)),
        }
    }
}

/// Expressions are `^`, letters, `$`, each of which may be missing.
fn matches_regex(text: &str, value: &str) -> bool {
    let letters = text.trim_start_matches('^').trim_end_matches('$');
    match (text.starts_with('^'), text.ends_with('$')) {
        (true, true) => value == letters,
        (true, false) => value.starts_with(letters),
        (false, true) => value.ends_with(letters),
        (false, false) => value.contains(letters),
    }
}

/// Values of few letters, so that requests match them.
fn values() -> impl Strategy<Value = Values> {
    let networks = prop::collection::hash_set((0..4u8, 1..=4u8), 1..3).prop_map(|networks| {
        networks
            .into_iter()
            .map(|(bits, length)| ((bits << 4) & !(u8::MAX >> length), length))
            .collect::<Vec<_>>()
    });
    prop_oneof![
        6 => "|[ab]{1,2}|[ab*]{0,2}[*]".prop_map(Values::Text),
        1 => "[aB]{1,2}|[aB*]{0,2}[*]".prop_map(Values::AnyCase),
        1 => prop::collection::hash_set("[ab]{1,2}", 1..3).prop_map(|texts| Values::List(texts.into_iter().collect())),
        1 => networks.prop_map(Values::Networks),
        1 => "(\\^|)[ab]{0,2}(\\$|)".prop_map(Values::Regex),
    ]
}

/// Descriptors of one level, all different.
fn level() -> impl Strategy<Value = Vec<Declared>> {
    let key = "k|l|k[*]|[*]|kl";
    let leaf = (key, values()).prop_map(|(key, values)| Declared { key, values, below: Vec::new() });
    let tree = leaf.prop_recursive(3, 40, 12, move |inner| {
        (key, values(), prop::collection::vec(inner, 0..12)).prop_map(|(key, values, below)| Declared {
            key,
            values,
            below: distinct(below),
        })
    });
    prop::collection::vec(tree, 0..12).prop_map(distinct)
}

fn one_star(value: &str) -> String {
    value.replace("***", "*").replace("**", "*")
}

fn distinct(mut declared: Vec<Declared>) -> Vec<Declared> {
    let mut seen = std::collections::HashSet::new();
    declared.retain(|one| {
        // Sets need a key without wildcards.
        let is_set = !matches!(one.values, Values::Text(_));
        let single: Vec<_> =
            one.values.single().iter().map(|value| (one_star(&one.key), one_star(value))).collect();
        let is_new = single.iter().collect::<std::collections::HashSet<_>>().len() == single.len()
            && single.iter().all(|value| !seen.contains(value));
        let is_kept = is_new && !(is_set && one.key.contains('*'));
        if is_kept {
            seen.extend(single);
        }
        is_kept
    });
    declared
}

fn to_yaml(declared: &[Declared]) -> String {
    let one = |(index, one): (usize, &Declared)| {
        let (key, values, below) = (&one.key, one.values.to_yaml(), to_yaml(&one.below));
        format!("{{key: '{key}', {values}, metadata: {{at: {index}}}, descriptors: {below}}}")
    };
    format!("[{}]", declared.iter().enumerate().map(one).collect::<Vec<_>>().join(", "))
}

/// Tries every split.
fn matches(pattern: &str, value: &str) -> bool {
    match pattern.split_at_checked(1) {
        None => value.is_empty(),
        Some(("*", rest)) => (0..=value.len()).any(|from| matches(rest, &value[from..])),
        Some((first, rest)) => value.strip_prefix(first).is_some_and(|value| matches(rest, value)),
    }
}

/// Characters beside the `*`, the most first, and the number of `*`.
fn wildcard_rank(texts: &[&str]) -> (u8, usize) {
    let all = texts.concat();
    let stars = one_star(texts[0]).matches('*').count() + one_star(texts[1]).matches('*').count();
    (4, ((100 - all.replace('*', "").len()) * 100 + stars) * 2)
}

/// Whether the descriptor is for the entry, and the rank by which it wins over others.
fn rank(one: &Declared, entry: &Entry<'_>) -> Option<(u8, usize)> {
    let by_value = |text: &str, value: &str| text.contains('*') && matches(text, value);
    if one.key.contains('*') {
        let Values::Text(text) = &one.values else { return None };
        let is_for = text.is_empty() || text == entry.value || by_value(text, entry.value);
        // As the value `*`, and after it.
        let shown = if text.is_empty() { "*" } else { text };
        let (rank, place) = wildcard_rank(&[&one.key, shown]);
        return (is_for && matches(&one.key, entry.key))
            .then_some((rank, place + usize::from(text.is_empty())));
    }
    if one.key != entry.key {
        return None;
    }
    match &one.values {
        Values::Text(text) if by_value(text, entry.value) => Some(wildcard_rank(&[&one.key, text])),
        Values::AnyCase(text) if by_value(&text.to_lowercase(), &entry.value.to_lowercase()) => {
            Some(wildcard_rank(&[&one.key, text]))
        }
        values => values.rank(entry.value),
    }
}

/// Which descriptors the entries reach, as indices from level to level.
fn oracle(mut level: &[Declared], entries: &[Entry<'_>]) -> Option<Vec<usize>> {
    let mut way = Vec::new();
    for entry in entries {
        let ranked = level.iter().enumerate().filter_map(|(index, one)| Some((rank(one, entry)?, index)));
        let (_, index) = ranked.min()?;
        way.push(index);
        level = &level[index].below;
    }
    Some(way)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2 * ProptestConfig::default().cases))]
    #[test]
    fn matching_agrees_with_scanning_the_rules_from_top_to_bottom(
        declared in level(),
        requests in prop::collection::vec(
            prop::collection::vec(("[kl]{1,2}", "[abAB]{0,3}|[1-6]?[0-9][.]0[.]0[.]1"), 1..4), 20,
        ),
    ) {
        let rules = rules(&format!("domain: d\ndescriptors: {}", to_yaml(&declared)));
        let domain = rules.domain("d").unwrap();
        for request in requests {
            let entries: Vec<_> = request.iter().map(|(key, value)| Entry { key, value }).collect();
            let expected = oracle(&declared, &entries);
            let explanation = domain.explain(&entries);
            let steps = explanation.steps.iter().map(|step| step.rule.info.metadata.as_ref().unwrap()["at"].as_u64());
            let explained: Vec<usize> = steps.map(|at| at.unwrap() as usize).collect();
            match (&explanation.outcome, &expected) {
                (Outcome::Reached(rule), Some(way)) => {
                    prop_assert_eq!(&explained, way, "{:?}", request);
                    prop_assert_eq!(domain.find(&entries).map(|found| found.rule), Some(*rule));
                }
                (outcome, expected) => {
                    prop_assert!(expected.is_none() && !matches!(outcome, Outcome::Reached(_)), "{:?}", request);
                    prop_assert!(domain.find(&entries).is_none());
                }
            }
            for step in &explanation.steps {
                if let Matched::Wildcard { pattern, .. } = step.matched {
                    prop_assert!(pattern.matches(&step.value));
                }
            }
        }
    }
}
