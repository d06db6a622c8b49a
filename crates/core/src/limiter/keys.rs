//! The keys of counters.
//!
//! A key is the fingerprint of the limit's tag within its rule, the domain, and each entry's key and value (or the shared pattern that the
//! value fits). The prefix that depends on the rule alone ends at the first value that differs between requests. It is hashed when the
//! rules are put in force; a decision continues from there, with the same result as from the start.

use super::SharedResets;
use crate::{
    limit::{Entry, LimitId},
    rules::{
        DeclaredEntry, DeclaredValues, DomainRules, KeyPrefix, RuleLimit, RuleSet, SharedForm, SharedValue,
    },
    store::{Fingerprint, Key, Seed},
};
use smallvec::SmallVec;
use std::{borrow::Cow, collections::HashMap, num::NonZeroU32, sync::Arc};

/// The secrets of keys.
#[derive(Clone)]
pub(super) struct Seeds {
    /// The secret of counters in this process.
    pub(super) local: Seed,
    /// The secret of counters in a shared store.
    pub(super) shared: Seed,
}

/// Bits of the number of a group.
const GROUP_BITS: u32 = 10;

/// Number of groups of counters in a cluster. The counters of a group are in one slot.
pub const GROUPS: u16 = 1 << GROUP_BITS;

/// Stands instead of a tag before the time of a reset. Tags have 32 bits.
const RESET: u64 = 1 << 33;

/// Makes the keys.
pub(super) struct Keys {
    seeds: Seeds,
    /// Resets of rules with counters in a shared store: a reset changes the keys of their counters.
    resets: Arc<SharedResets>,
    /// Times of these resets, by limit.
    reset_limits: HashMap<LimitId, u64>,
}

impl Keys {
    /// Hashes the prefixes of all keys, and stores them in the rules.
    pub(super) fn new(rules: &mut RuleSet, seeds: &Seeds, resets: &Arc<SharedResets>) -> Self {
        let mut keys =
            Self { seeds: seeds.clone(), resets: Arc::clone(resets), reset_limits: HashMap::new() };
        if !resets.is_empty() {
            for domain in rules.domains() {
                for rule in domain.rules() {
                    let time = resets.time(domain.name(), &rule.info.path);
                    let limits = rule.limits.iter().filter(|_| time > 0);
                    keys.reset_limits.extend(limits.map(|limit| (limit.id, time)));
                }
            }
        }
        rules.set_key_prefixes(|domain, is_shared, limit, way| keys.start(domain, is_shared, limit, way));
        keys
    }

    fn start(
        &self,
        domain: &str,
        is_shared: bool,
        limit: &RuleLimit,
        way: &[DeclaredEntry<'_>],
    ) -> Option<KeyPrefix> {
        let (mut fingerprint, mut texts) = (self.before_entries(domain, is_shared, limit), 0);
        for entry in way {
            // A wildcard key differs between requests, and so does all after it.
            let Some(key) = entry.key else { break };
            fingerprint.text(key);
            texts += 1;
            match entry.values {
                DeclaredValues::Exact(value) => fingerprint.text(value),
                DeclaredValues::Wildcard { pattern, shares_counter: true } => {
                    add_form(&mut fingerprint, SharedForm::Pattern, pattern.as_str());
                }
                DeclaredValues::Set(set) if set.shares_counter() => {
                    add_form(&mut fingerprint, SharedForm::Set, set.label());
                }
                // Each value has a counter of its own.
                _ => break,
            }
            texts += 1;
        }
        NonZeroU32::new(texts).map(|texts| KeyPrefix { fingerprint, texts })
    }

    fn before_entries(&self, domain: &str, is_shared: bool, limit: &RuleLimit) -> Fingerprint {
        let seed = if is_shared { &self.seeds.shared } else { &self.seeds.local };
        let mut fingerprint = Fingerprint::new(seed);
        if is_shared {
            self.add_reset(domain, limit, &mut fingerprint);
        }
        fingerprint.number(u64::from(limit.tag));
        fingerprint.text(domain);
        fingerprint
    }

    /// Adds the time of the last reset of the rule, if there was one.
    fn add_reset(&self, domain: &str, limit: &RuleLimit, fingerprint: &mut Fingerprint) {
        if self.resets.is_empty() {
            return;
        }
        // A limit in a request has no rule.
        let of_rule = self.reset_limits.get(&limit.id).copied();
        let time = of_rule.unwrap_or_else(|| self.resets.time(domain, ""));
        if time > 0 {
            fingerprint.number(RESET);
            fingerprint.number(time);
        }
    }

    /// The secrets.
    pub(super) fn seeds(&self) -> &Seeds {
        &self.seeds
    }

    /// The resets of shared counters.
    pub(super) fn resets(&self) -> &Arc<SharedResets> {
        &self.resets
    }

    /// The group of the counters of these entries: the same for all limits of a rule, and with `shard_by` for all rules that name an entry
    /// of the same value.
    pub(super) fn group(
        &self,
        domain: &DomainRules,
        entries: &[Entry<'_>],
        shared: &[SharedValue<'_>],
        shard_by: Option<u32>,
    ) -> u16 {
        let mut fingerprint = Fingerprint::new(&self.seeds.shared);
        fingerprint.text(domain.name());
        let mut add_value = |index: usize, entry: &Entry<'_>| match of_entry(shared, index) {
            Some(shared) => add_form(&mut fingerprint, shared.form, &shared.of(entry.value)),
            None => fingerprint.text(entry.value),
        };
        match shard_by.and_then(|index| Some((index as usize, entries.get(index as usize)?))) {
            Some((index, entry)) => add_value(index, entry),
            None => {
                for (index, entry) in entries.iter().enumerate() {
                    add_value(index, entry);
                }
            }
        }
        u16::try_from(fingerprint.finish().leading_bits(GROUP_BITS)).expect("a group has few bits")
    }

    /// The group of a counter of a limit that applies by conditions.
    pub(super) fn group_of(key: Key) -> u16 {
        u16::try_from(key.leading_bits(GROUP_BITS)).expect("a group has few bits")
    }

    /// The key of a limit's counter for the entries that reached the limit. `shared` holds the values that share counters with others.
    #[inline]
    pub(super) fn key(
        &self,
        domain: &DomainRules,
        limit: &RuleLimit,
        entries: &[Entry<'_>],
        shared: &[SharedValue<'_>],
    ) -> Key {
        let (mut fingerprint, texts) = match limit.key_prefix {
            Some(start) => (start.fingerprint, start.texts.get() as usize),
            None if limit.continues
                && let Some(key) = self.of_overridden(domain, limit, entries) =>
            {
                return key;
            }
            None if limit.is_joined => return self.joined(domain, limit, entries, shared),
            // A limit in the request, which has no rule, a limit found by joined texts, or an override's limit with a counter of its own.
            None => (self.before_entries(domain.name(), domain.shares(limit), limit), 0),
        };
        for (index, entry) in entries.iter().enumerate().skip(texts / 2) {
            if 2 * index >= texts {
                fingerprint.text(entry.key);
            }
            match of_entry(shared, index) {
                Some(shared) => add_form(&mut fingerprint, shared.form, &shared.of(entry.value)),
                None => fingerprint.text(entry.value),
            }
        }
        fingerprint.finish()
    }

    /// The key of a counter of a limit that applies by conditions, for these values of its variables.
    #[inline]
    pub(super) fn of_values(&self, domain: &DomainRules, limit: &RuleLimit, values: &[Cow<'_, str>]) -> Key {
        let start = || self.before_entries(domain.name(), domain.shares(limit), limit);
        let mut fingerprint = limit.key_prefix.map_or_else(start, |start| start.fingerprint);
        values.iter().for_each(|value| fingerprint.text(value));
        fingerprint.finish()
    }

    /// The key of the counter that a limit of an override continues: that of the limit behind it. None if it continues none, or has since
    /// been reset in a shared store.
    #[cold]
    fn of_overridden(&self, domain: &DomainRules, limit: &RuleLimit, entries: &[Entry<'_>]) -> Option<Key> {
        let own_reset = |limit: &RuleLimit| self.reset_limits.get(&limit.id).copied().unwrap_or(0);
        let (behind, shared) = domain.overridden(limit, entries)?;
        (own_reset(limit) <= own_reset(behind)).then(|| self.key(domain, behind, entries, &shared))
    }

    /// The key of a counter that the reference server names by joined texts: domain, keys and values, and the window.
    fn joined(
        &self,
        domain: &DomainRules,
        limit: &RuleLimit,
        entries: &[Entry<'_>],
        shared: &[SharedValue<'_>],
    ) -> Key {
        let seed = if domain.shares(limit) { &self.seeds.shared } else { &self.seeds.local };
        let mut fingerprint = Fingerprint::new(seed);
        if domain.shares(limit) {
            self.add_reset(domain.name(), limit, &mut fingerprint);
        }
        fingerprint.number(JOINED);
        fingerprint.number(limit.window.nanos().get());
        let form = |shared: &SharedValue<'_>| {
            let entry = &entries[shared.entry as usize];
            match shared.form {
                SharedForm::Pattern => pattern_of_value(shared.text, entry.key).to_owned(),
                _ => shared.of(entry.value).into_owned(),
            }
        };
        let forms: SmallVec<[String; 1]> = shared.iter().map(form).collect();
        let texts = entries.iter().enumerate().flat_map(|(index, entry)| {
            let at = shared.iter().position(|shared| shared.entry as usize == index);
            [entry.key, "_", at.map_or(entry.value, |at| &forms[at]), "_"]
        });
        fingerprint.joined([domain.name(), "_"].into_iter().chain(texts));
        fingerprint.finish()
    }
}

/// Stands instead of a tag before the parts of a joined key. Tags have 32 bits.
const JOINED: u64 = 1 << 32;

/// A pattern for joined texts, without the key and `_` if it begins with them.
fn pattern_of_value<'p>(pattern: &'p str, key: &str) -> &'p str {
    pattern.strip_prefix(key).and_then(|rest| rest.strip_prefix('_')).unwrap_or(pattern)
}

/// The entry's value, if it shares a counter with others.
#[inline]
fn of_entry<'s, 'r>(shared: &'s [SharedValue<'r>], index: usize) -> Option<&'s SharedValue<'r>> {
    shared.iter().find(|shared| shared.entry as usize == index)
}

/// A pattern is hashed differently from a value: the value `a*` of another rule must differ from the pattern `a*` of this rule. The number
/// hashed before a pattern is u64::MAX or a little less, which no text has as its length.
#[inline]
fn add_form(fingerprint: &mut Fingerprint, form: SharedForm, text: &str) {
    fingerprint.number(match form {
        SharedForm::Pattern => u64::MAX,
        SharedForm::Set => u64::MAX - 1,
        SharedForm::AnyCase => u64::MAX - 2,
        SharedForm::Address => u64::MAX - 3,
    });
    fingerprint.text(text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{LoadOptions, Semantics, Source};

    const RULES: &str = "
domain: d
descriptors:
  - key: a
    rate_limit: { unit: day, requests_per_unit: 1 }
    descriptors:
      - key: b
        value: one
        rate_limits:
          - { name: x, unit: day, requests_per_unit: 1 }
          - { name: y, unit: hour, requests_per_unit: 1 }
  - key: a
    value: exact
    rate_limit: { unit: day, requests_per_unit: 1 }
    descriptors:
      - key: b
        value: fit*
        share_threshold: true
        rate_limit: { unit: day, requests_per_unit: 1 }
        descriptors:
          - { key: c, value: end, rate_limit: { unit: day, requests_per_unit: 1 } }
          - { key: c, value: each*, rate_limit: { unit: day, requests_per_unit: 1 } }
  - key: s
    value_regex: ^x
    share_threshold: true
    descriptors:
      - { key: b, value: one, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: s, value: 'A*', value_ignore_case: true, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: s, value_network: 10.0.0.0/8, rate_limit: { unit: day, requests_per_unit: 1 } }
";

    /// Keys are in snapshots: they must not depend on where the prefix ends.
    #[test]
    fn a_key_continued_from_its_prefix_is_the_key_hashed_from_the_start() {
        let source = Source::file("keys.yaml", RULES);
        let mut rules =
            RuleSet::parse(&[source], &LoadOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        let seed = Seed::from_bytes([5; 16]);
        let keys = Keys::new(&mut rules, &Seeds { local: seed.clone(), shared: seed }, &Arc::default());
        let domain = rules.domain("d").unwrap();
        let mut starts = Vec::new();
        for way in [
            &[("a", "any")][..],
            &[("a", "any"), ("b", "one")],
            &[("a", "exact")],
            &[("a", "exact"), ("b", "fitting")],
            &[("a", "exact"), ("b", "fit"), ("c", "end")],
            &[("a", "exact"), ("b", "fit"), ("c", "each one")],
            &[("s", "xyz"), ("b", "one")],
            &[("s", "Abc")],
            &[("s", "10.1.1.1")],
        ] {
            let entries: Vec<_> = way.iter().map(|&(key, value)| Entry { key, value }).collect();
            let found = domain.find(&entries).expect("a rule");
            for limit in &found.rule.limits {
                let from_the_very_start = RuleLimit { key_prefix: None, ..limit.clone() };
                let key = |limit: &RuleLimit| keys.key(domain, limit, &entries, &found.shared);
                assert_eq!(key(limit), key(&from_the_very_start), "{way:?}");
                starts.push(limit.key_prefix.expect("of a rule").texts.get());
            }
        }
        assert_eq!(starts, [1, 1, 1, 2, 4, 6, 5, 4, 1, 1], "how much each rule tells");
    }

    #[test]
    fn forms_of_one_value_have_one_counter_and_other_values_others() {
        let text = "
domain: d
descriptors:
  - { key: a, value_network: ['::/0', 0.0.0.0/0], rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: c, value: '*', value_ignore_case: true, rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: e, value: '*', rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: l, values: [x, y], rate_limit: { unit: day, requests_per_unit: 1 } }
  - { key: s, values: [x, y], share_threshold: true, rate_limit: { unit: day, requests_per_unit: 1 } }
";
        for semantics in [Semantics::Exact, Semantics::Reference] {
            let options = LoadOptions { semantics, ..LoadOptions::default() };
            let mut rules = RuleSet::parse(&[Source::file("r", text)], &options)
                .unwrap_or_else(|error| panic!("{error}"));
            let seed = Seed::from_bytes([5; 16]);
            let keys = Keys::new(&mut rules, &Seeds { local: seed.clone(), shared: seed }, &Arc::default());
            let domain = rules.domain("d").unwrap();
            let key = |key: &'static str, value: &'static str| {
                let entries = [Entry { key, value }];
                let found = domain.find(&entries).expect("a rule");
                keys.key(domain, &found.rule.limits[0], &entries, &found.shared)
            };
            assert_eq!(key("a", "2001:DB8:0::1"), key("a", "2001:db8::1"));
            assert_eq!(key("a", "::ffff:192.0.2.1"), key("a", "192.0.2.1"));
            assert_ne!(key("a", "192.0.2.2"), key("a", "192.0.2.1"));
            assert_eq!(key("c", "AbÉ"), key("c", "aBé"));
            assert_ne!(key("c", "ab"), key("c", "ac"));
            assert_ne!(key("e", "AB"), key("e", "ab"));
            assert_ne!(key("l", "x"), key("l", "y"));
            assert_eq!(key("s", "x"), key("s", "y"));
        }
    }

    const GROUPED: &str = "
domain: d
descriptors:
  - key: user
    rate_limits:
      - { name: fast, unit: second, requests_per_unit: 1 }
      - { name: slow, unit: day, requests_per_unit: 1 }
    descriptors:
      - { key: route, shard_by: user, rate_limit: { unit: day, requests_per_unit: 1 } }
      - { key: path, rate_limit: { unit: day, requests_per_unit: 1 } }
  - key: account
    shard_by: account
    rate_limit: { unit: day, requests_per_unit: 1 }
  - { key: any, value: a*, share_threshold: true, shard_by: any, rate_limit: { unit: day, requests_per_unit: 1 } }
";

    #[test]
    fn counters_that_name_one_value_by_shard_by_are_in_one_group() {
        let source = Source::file("keys.yaml", GROUPED);
        let mut rules =
            RuleSet::parse(&[source], &LoadOptions::default()).unwrap_or_else(|error| panic!("{error}"));
        let seed = Seed::from_bytes([5; 16]);
        let keys = Keys::new(&mut rules, &Seeds { local: seed.clone(), shared: seed }, &Arc::default());
        let domain = rules.domain("d").unwrap();
        let group = |way: &[(&'static str, &'static str)]| {
            let entries: Vec<_> = way.iter().map(|&(key, value)| Entry { key, value }).collect();
            let found = domain.find(&entries).expect("a rule");
            keys.group(domain, &entries, &found.shared, found.rule.shard_by)
        };
        let of_account = group(&[("account", "one")]);
        assert_eq!(group(&[("user", "one"), ("route", "login")]), of_account);
        assert_eq!(group(&[("user", "one"), ("route", "search")]), of_account);
        assert_ne!(
            group(&[("user", "one"), ("path", "login")]),
            group(&[("user", "one"), ("path", "search")])
        );
        assert_eq!(group(&[("any", "ab")]), group(&[("any", "ac")]), "these share a counter");
    }
}
