//! Resets of rules and domains whose counters are in a shared store.
//!
//! The store has no list of a rule's counters. The time of a reset is therefore a part of their keys: all servers that share the
//! store count in new keys from then on, and the former counters expire.

use std::collections::BTreeMap;

/// Times of resets, in microseconds of the store's clock.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SharedResets {
    /// By domain and path of the rule; an empty path is for all rules of the domain.
    times: BTreeMap<Box<str>, BTreeMap<Box<str>, u64>>,
}

impl SharedResets {
    /// Adds a reset of a rule, or with an empty path of a domain.
    pub fn add(&mut self, domain: &str, path: &str, time: u64) {
        let of_domain = self.times.entry(domain.into()).or_default();
        let known = of_domain.entry(path.into()).or_default();
        *known = time.max(*known);
    }

    /// Adds all resets of another list.
    pub fn add_all(&mut self, others: &Self) {
        others.each().for_each(|(domain, path, time)| self.add(domain, path, time));
    }

    /// The domain, the path and the time of each.
    pub fn each(&self) -> impl Iterator<Item = (&str, &str, u64)> {
        self.times
            .iter()
            .flat_map(|(domain, paths)| paths.iter().map(move |(path, time)| (&**domain, &**path, *time)))
    }

    /// Resets that another list does not have.
    pub fn missing_in<'s>(&'s self, other: &'s Self) -> impl Iterator<Item = (&'s str, &'s str, u64)> {
        let has = |domain: &str, path: &str, time| {
            other.times.get(domain).and_then(|paths| paths.get(path)).is_some_and(|known| *known >= time)
        };
        self.each().filter(move |(domain, path, time)| !has(domain, path, *time))
    }

    /// Whether there are no resets.
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Time of the last reset of a domain or of any of its rules; zero without one. A reset of either that takes effect is later.
    pub fn last_in(&self, domain: &str) -> u64 {
        self.times.get(domain).and_then(|paths| paths.values().max()).copied().unwrap_or(0)
    }

    /// Time of the last reset of a rule or of its domain; zero without one.
    pub fn time(&self, domain: &str, path: &str) -> u64 {
        let Some(of_domain) = self.times.get(domain) else { return 0 };
        let time = |path| of_domain.get(path).copied().unwrap_or(0);
        time(path).max(time(""))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_reset_of_a_rule_is_its_own_or_that_of_its_domain() {
        let mut resets = SharedResets::default();
        let all = [("d", "user", 5), ("d", "user", 3), ("d", "", 4)];
        all.into_iter().for_each(|(domain, path, at)| resets.add(domain, path, at));
        let times = [("d", "user"), ("d", "path"), ("d", ""), ("e", "user")];
        assert_eq!(times.map(|(domain, path)| resets.time(domain, path)), [5, 4, 4, 0]);
        assert_eq!(["d", "e"].map(|domain| resets.last_in(domain)), [5, 0]);
    }

    #[test]
    fn what_another_list_lacks_or_has_at_an_earlier_time_is_missing_there() {
        let (mut known, mut found) = (SharedResets::default(), SharedResets::default());
        let all = [("d", "user", 5), ("d", "path", 4), ("e", "", 3)];
        all.into_iter().for_each(|(domain, path, at)| known.add(domain, path, at));
        let all = [("d", "user", 6), ("d", "path", 1)];
        all.into_iter().for_each(|(domain, path, at)| found.add(domain, path, at));
        let missing: Vec<_> = known.missing_in(&found).collect();
        assert_eq!(missing, [("d", "path", 4), ("e", "", 3)]);
        found.add_all(&known);
        assert_eq!((known.missing_in(&found).count(), found.time("d", "user")), (0, 6));
    }
}
