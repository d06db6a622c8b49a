//! How the decision log writes the values of each key.

/// How a value is written to the decision log. The stricter is the greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum Redaction {
    /// As it is.
    #[default]
    Plain,
    /// As a keyed hash, so that equal values are recognised as equal.
    Hash,
    /// Not at all.
    Omit,
}

impl Redaction {
    /// The values of `log` in a rule file.
    pub(super) const NAMES: [(&'static str, Self); 3] =
        [("plain", Self::Plain), ("hash", Self::Hash), ("omit", Self::Omit)];
}
