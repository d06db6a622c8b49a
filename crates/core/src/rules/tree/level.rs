//! One level of a domain's rules, and the node that an entry selects in it.

use super::{
    entry::{DeclaredEntry, DeclaredValues},
    matched::Matched,
    node::{KeyWildcard, Level, MixedLevel, Node, SetNode, Siblings, ValueSets, Wildcard, Wildcards},
};
use crate::{
    limit::Entry,
    rules::{KeyPrefix, Rule, RuleLimit, SharedForm, grammar::DeclaredValue, text_map::TextMap},
};

impl Level {
    /// The node that the entry selects.
    #[inline]
    pub(in crate::rules) fn step(&self, entry: &Entry<'_>) -> Option<(Matched<'_>, &Node)> {
        match self {
            Self::One(only, siblings) if *only == *entry.key => siblings.step(entry.value),
            Self::One(..) => None,
            Self::Many(map) => map.get(entry.key)?.step(entry.value),
            Self::Mixed(level) => level.step(entry),
            Self::Joined(level) => level.step(entry),
        }
    }

    /// The node that the entry selects, as by [`Level::step`]. Passes on only the form of a shared value: the whole match would be written
    /// to memory on the path of every decision.
    #[inline(always)]
    pub(super) fn select<'r>(
        &'r self,
        entry: &Entry<'_>,
        share: impl FnOnce(SharedForm, &'r str),
    ) -> Option<&'r Node> {
        // The most common level first.
        if let Self::One(only, siblings) = self {
            return if *only == *entry.key { siblings.select(entry.value, share) } else { None };
        }
        match self {
            Self::One(..) => None,
            Self::Many(map) => map.get(entry.key)?.select(entry.value, share),
            Self::Mixed(_) | Self::Joined(_) => shared_of(self.step_out_of_line(entry)?, share),
        }
    }

    /// As [`Level::step`]. Not inlined, because its many values on the stack would slow down levels without patterns.
    #[inline(never)]
    fn step_out_of_line(&self, entry: &Entry<'_>) -> Option<(Matched<'_>, &Node)> {
        self.step(entry)
    }

    /// The nodes with exactly this key.
    #[inline]
    pub(in crate::rules) fn siblings(&self, key: &str) -> Option<&Siblings> {
        match self {
            Self::One(only, siblings) => (*only == *key).then_some(siblings),
            Self::Many(map) => map.get(key),
            Self::Mixed(level) => level.exact.siblings(key),
            Self::Joined(_) => None,
        }
    }

    /// Every exact key with its nodes, in no order.
    pub(super) fn iter(&self) -> Box<dyn Iterator<Item = (&str, &Siblings)> + '_> {
        match self {
            Self::One(key, siblings) => Box::new(std::iter::once((key.as_str(), siblings))),
            Self::Many(map) => Box::new(map.iter()),
            Self::Mixed(level) => level.exact.iter(),
            Self::Joined(_) => Box::new(std::iter::empty()),
        }
    }

    /// The values of this key, and the texts that stand for sets; none if no node has the key.
    pub(in crate::rules) fn known_values(&self, key: &str) -> Option<Vec<&str>> {
        let mut values = self.siblings(key)?.values();
        values.extend(self.sets_of(key).into_iter().flat_map(ValueSets::labels));
        Some(values)
    }

    pub(super) fn wildcards(&self) -> &[KeyWildcard] {
        if let Self::Mixed(level) = self { &level.wildcards } else { &[] }
    }

    /// The exact keys of this level, sorted, and then the wildcards in their order; for joined texts, the texts.
    pub(in crate::rules) fn keys(&self) -> Vec<&str> {
        if let Self::Joined(level) = self {
            return level.texts();
        }
        let mut keys: Vec<_> = self.iter().map(|(key, _)| key).collect();
        keys.sort_unstable();
        keys.extend(self.wildcards().iter().map(|wildcard| wildcard.key.as_str()));
        keys.dedup();
        keys
    }

    /// Whether it has no node.
    pub(in crate::rules) fn is_empty(&self) -> bool {
        match self {
            Self::One(..) | Self::Mixed(_) => false,
            Self::Many(map) => map.iter().next().is_none(),
            Self::Joined(level) => level.is_empty(),
        }
    }

    /// The node with this key and no value.
    pub(in crate::rules) fn alone(&self, key: &str) -> Option<&Node> {
        match self {
            Self::Joined(level) => level.get(key),
            _ => self.siblings(key)?.alone.as_deref(),
        }
    }

    pub(super) fn add_rules<'r>(&'r self, rules: &mut Vec<&'r Rule>) {
        self.nodes(&mut |node| {
            rules.push(&node.rule);
            node.below.add_rules(rules);
        });
    }

    /// Calls `visit` with every node of the level.
    pub(super) fn nodes<'r>(&'r self, visit: &mut dyn FnMut(&'r Node)) {
        if let Self::Joined(level) = self {
            return level.nodes(visit);
        }
        for (_, siblings) in self.iter() {
            let exact = siblings.exact.iter().map(|(_, node)| node);
            let wildcards = siblings.wildcard_list().map(|wildcard| &wildcard.node);
            exact.chain(wildcards).chain(siblings.alone.as_deref()).for_each(&mut *visit);
        }
        let sets = self.sets().flat_map(|(_, sets)| sets.nodes.iter().map(|set| &set.node));
        self.wildcards().iter().map(|wildcard| &wildcard.node).chain(sets).for_each(visit);
    }

    /// The sets of a key.
    pub(super) fn sets_of(&self, key: &str) -> Option<&ValueSets> {
        if let Self::Mixed(level) = self { level.sets(key) } else { None }
    }

    /// Every key with sets.
    pub(super) fn sets(&self) -> impl Iterator<Item = (&str, &ValueSets)> {
        let sets = if let Self::Mixed(level) = self { level.sets.as_ref() } else { None };
        sets.into_iter().flat_map(TextMap::iter)
    }

    /// Whether a descriptor here or below has this key; for joined texts, whose keys are unknown, whether there is a descriptor.
    pub(super) fn has_key(&self, key: &str) -> bool {
        if matches!(self, Self::Joined(_)) || self.siblings(key).is_some() {
            return true;
        }
        let mut has_key = self.wildcards().iter().any(|wildcard| wildcard.key.matches(key));
        self.nodes(&mut |node| has_key = has_key || node.below.has_key(key));
        has_key
    }

    pub(super) fn set_key_prefixes<'r>(
        &'r mut self,
        way: &mut Vec<DeclaredEntry<'r>>,
        start: &mut impl FnMut(&RuleLimit, &[DeclaredEntry<'_>]) -> Option<KeyPrefix>,
    ) {
        let (one, many) = match self {
            Self::One(key, siblings) => (Some((key.as_str(), siblings)), None),
            Self::Many(map) => (None, Some(map.iter_mut())),
            // The text before a value is ambiguous: joined texts can be divided in several ways.
            Self::Joined(_) => return,
            Self::Mixed(level) => {
                for KeyWildcard { node, .. } in &mut level.wildcards {
                    node.set_key_prefixes(
                        DeclaredEntry { key: None, values: DeclaredValues::Any },
                        way,
                        start,
                    );
                }
                for (key, sets) in level.sets.iter_mut().flat_map(TextMap::iter_mut) {
                    for SetNode { values, node, .. } in &mut sets.nodes {
                        let values = DeclaredValues::Set(values);
                        node.set_key_prefixes(DeclaredEntry { key: Some(key), values }, way, start);
                    }
                }
                return level.exact.set_key_prefixes(way, start);
            }
        };
        for (key, Siblings { exact, wildcards, alone }) in one.into_iter().chain(many.into_iter().flatten()) {
            let exact = exact.iter_mut().map(|(value, node)| (DeclaredValues::Exact(value), node));
            let wildcards = wildcards.iter_mut().flat_map(|wildcards| &mut wildcards.list);
            let wildcards = wildcards.map(|Wildcard { pattern, shared, node, .. }| {
                (DeclaredValues::Wildcard { pattern, shares_counter: *shared }, node)
            });
            let alone = alone.as_deref_mut().map(|node| (DeclaredValues::Any, node));
            for (values, node) in exact.chain(wildcards).chain(alone) {
                node.set_key_prefixes(DeclaredEntry { key: Some(key), values }, way, start);
            }
        }
    }
}

/// The node that matches, and the form of its value.
fn shared_of<'r>(
    (matched, node): (Matched<'r>, &'r Node),
    share: impl FnOnce(SharedForm, &'r str),
) -> Option<&'r Node> {
    if let Some((form, text)) = matched.shared() {
        share(form, text);
    }
    Some(node)
}

impl MixedLevel {
    /// The node that the entry selects. Wildcard values of exact keys, in any case of letters too, and wildcard keys share one order.
    fn step(&self, entry: &Entry<'_>) -> Option<(Matched<'_>, &Node)> {
        let siblings = self.exact.siblings(entry.key);
        if let Some(node) = siblings.and_then(|siblings| siblings.exact.get(entry.value)) {
            return Some((Matched::Exact, node));
        }
        let sets = self.sets(entry.key);
        if let Some(listed) = sets.and_then(|sets| sets.listed(entry.value)) {
            return Some(listed);
        }
        let by_value = siblings.and_then(|siblings| siblings.wildcard(entry.value));
        let any_case = sets.and_then(|sets| sets.wildcard(entry.value));
        let places = [by_value.map(|wildcard| wildcard.order), any_case.map(|set| set.order)];
        let before = places.into_iter().flatten().min().unwrap_or(u32::MAX);
        match (self.by_key(entry, before), by_value, any_case) {
            (Some(wildcard), _, _) => return Some(wildcard.matched()),
            (None, Some(wildcard), _) if wildcard.order == before => return Some(wildcard.matched()),
            (None, _, Some(set)) => return Some(set.matched()),
            (None, _, None) => {}
        }
        let regex = sets.and_then(|sets| sets.regex(entry.value));
        let alone = || siblings?.alone.as_ref().map(|node| (Matched::KeyAlone, &**node));
        regex.or_else(alone)
    }

    #[inline]
    fn sets(&self, key: &str) -> Option<&ValueSets> {
        self.sets.as_ref().and_then(|sets| sets.get(key))
    }

    /// The first node with a wildcard key that matches the entry, of those whose place is before `before`.
    fn by_key(&self, entry: &Entry<'_>, before: u32) -> Option<&KeyWildcard> {
        if self.wildcards.is_empty() {
            return None;
        }
        let mut matching_values = None;
        let mut matches = |index: u32, wildcard: &KeyWildcard| match &wildcard.value {
            DeclaredValue::Wildcard { .. } => matching_values
                .get_or_insert_with(|| self.values.all(entry.value))
                .binary_search(&index)
                .is_ok(),
            value => value.matches(entry.value),
        };
        let by_key =
            self.keys.all(entry.key).into_iter().map(|index| (index, &self.wildcards[index as usize]));
        let mut first = by_key.take_while(|(_, wildcard)| wildcard.order < before);
        first.find(|(index, wildcard)| matches(*index, wildcard)).map(|(_, wildcard)| wildcard)
    }
}

impl KeyWildcard {
    fn matched(&self) -> (Matched<'_>, &Node) {
        let shared = match &self.value {
            DeclaredValue::Wildcard { pattern, shared: true, .. } => Some(pattern),
            _ => None,
        };
        (Matched::KeyWildcard { key: &self.key, shared }, &self.node)
    }
}

impl Wildcard {
    fn matched(&self) -> (Matched<'_>, &Node) {
        (Matched::Wildcard { pattern: &self.pattern, shared: self.shared }, &self.node)
    }
}

impl Node {
    /// Sets the key prefixes of the limits here and below. `entry` selects this node, and `way` the nodes above it.
    fn set_key_prefixes<'r>(
        &'r mut self,
        entry: DeclaredEntry<'r>,
        way: &mut Vec<DeclaredEntry<'r>>,
        start: &mut impl FnMut(&RuleLimit, &[DeclaredEntry<'_>]) -> Option<KeyPrefix>,
    ) {
        way.push(entry);
        for limit in &mut self.rule.limits {
            limit.key_prefix = start(limit, way);
            if let Some(ban) = &mut limit.ban {
                ban.key_prefix = start(ban, way);
            }
        }
        self.below.set_key_prefixes(way, start);
        way.pop();
    }
}

impl Siblings {
    /// As [`Level::select`].
    #[inline(always)]
    fn select<'r>(&'r self, value: &str, share: impl FnOnce(SharedForm, &'r str)) -> Option<&'r Node> {
        if let Some(node) = self.exact.get(value) {
            return Some(node);
        }
        if let Some(wildcard) = self.wildcard(value) {
            return shared_of(wildcard.matched(), share);
        }
        self.alone.as_deref()
    }

    /// The node that the value selects.
    #[inline]
    fn step(&self, value: &str) -> Option<(Matched<'_>, &Node)> {
        if let Some(node) = self.exact.get(value) {
            return Some((Matched::Exact, node));
        }
        if let Some(wildcard) = self.wildcard(value) {
            return Some(wildcard.matched());
        }
        self.alone.as_ref().map(|node| (Matched::KeyAlone, &**node))
    }

    /// The first wildcard that matches the value.
    #[inline]
    fn wildcard(&self, value: &str) -> Option<&Wildcard> {
        let Wildcards { list, set } = &**self.wildcards.as_ref()?;
        set.first(value).map(|index| &list[index as usize])
    }

    /// The wildcards in their order.
    pub(super) fn wildcard_list(&self) -> impl Iterator<Item = &Wildcard> {
        self.wildcards.iter().flat_map(|wildcards| &wildcards.list)
    }

    /// The exact values, sorted, and then the wildcards in their order.
    pub(in crate::rules) fn values(&self) -> Vec<&str> {
        let mut values: Vec<_> = self.exact.iter().map(|(value, _)| value).collect();
        values.sort_unstable();
        let wildcards = self.wildcards.iter().flat_map(|wildcards| &wildcards.list);
        values.extend(wildcards.map(|wildcard| wildcard.pattern.as_str()));
        values
    }
}
