//! The entries that lead to a rule.

/// An entry that leads to a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RuleEntry<'r> {
    /// The key; none if the rule has a wildcard in its place.
    pub key: Option<&'r str>,
    /// The values that match.
    pub value: RuleValue<'r>,
}

/// The values of an entry that match a rule, and which of them share a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleValue<'r> {
    /// This value.
    Exact(&'r str),
    /// All values that match this pattern; they share one counter.
    Shared(&'r str),
    /// All values of the set with this label; likewise.
    SharedSet(&'r str),
    /// Several; each has a counter of its own.
    Any,
}
