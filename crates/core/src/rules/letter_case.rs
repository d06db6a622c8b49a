//! Comparison of texts whose letters may be in either case.

use super::text_map::TextMap;
use smol_str::SmolStr;
use std::borrow::Cow;

/// The text with every letter in lower case: texts that differ in the case of letters alone have the same.
///
/// Each character by itself: whether a letter is at the end of a word makes no difference.
pub(super) fn folded(text: &str) -> Cow<'_, str> {
    match text.chars().all(|character| character.to_lowercase().eq([character])) {
        true => Cow::Borrowed(text),
        false => Cow::Owned(text.chars().flat_map(char::to_lowercase).collect()),
    }
}

/// The keys of a domain of which a rule ignores the case of letters.
#[derive(Clone, Debug, Default)]
pub(super) struct AnyCaseKeys(TextMap<()>);

impl AnyCaseKeys {
    pub(super) fn new(keys: impl Iterator<Item = SmolStr>) -> Self {
        Self(keys.map(|key| (key, ())).collect())
    }

    #[inline]
    pub(super) fn contains(&self, key: &str) -> bool {
        self.0.get(key).is_some()
    }

    /// The form of a value by which it is compared.
    #[inline]
    pub(super) fn form<'v>(&self, key: &str, value: &'v str) -> Cow<'v, str> {
        if self.contains(key) { folded(value) } else { Cow::Borrowed(value) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_equal_in_either_case_and_in_every_script() {
        for (one, other) in [("Gold", "gOLD"), ("ÉÇ", "éç"), ("ΟΔΟΣ", "οδοσ"), ("", "")] {
            assert_eq!(folded(one), folded(other));
        }
        assert_ne!(folded("gold"), folded("g0ld"));
        assert!(matches!(folded("/lower/case-1"), Cow::Borrowed(_)));
    }
}
