//! Wildcards: each `*` matches zero or more characters.

use std::fmt;

/// A text with wildcards. Equal patterns match the same texts: runs of `*` count as one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Pattern {
    /// The pattern as text, with runs of `*` made one.
    text: Box<str>,
    /// Texts between the first and the last `*`, in order; none is empty.
    middles: Box<[Box<str>]>,
    /// Bytes before the first `*`.
    prefix_len: usize,
    /// Bytes after the last `*`.
    suffix_len: usize,
}

impl Pattern {
    /// The pattern of a rule's key or value, if it has a `*`.
    pub fn new(value: &str) -> Option<Self> {
        let (prefix, rest) = value.split_once('*')?;
        let (middle, suffix) = rest.rsplit_once('*').unwrap_or(("", rest));
        Some(Self::of_parts(prefix, middle.split('*'), suffix))
    }

    /// The pattern of a value in which `\*` stands for a literal `*`, `\/` for a slash, and `\\` for a backslash. If it has no wildcard,
    /// the error is the text that it stands for.
    pub fn unescaped(value: &str) -> Result<Self, String> {
        let (mut parts, mut part, mut characters) = (Vec::new(), String::new(), value.chars().peekable());
        while let Some(character) = characters.next() {
            let escaped = characters.next_if(|next| character == '\\' && matches!(next, '*' | '/' | '\\'));
            match (escaped, character) {
                (None, '*') => parts.push(std::mem::take(&mut part)),
                _ => part.push(escaped.unwrap_or(character)),
            }
        }
        match &*parts {
            [] => Err(part),
            [prefix, middles @ ..] => Ok(Self::of_parts(prefix, middles.iter().map(String::as_str), &part)),
        }
    }

    fn of_parts<'p>(prefix: &str, middles: impl Iterator<Item = &'p str>, suffix: &str) -> Self {
        let middles: Box<[Box<str>]> = middles.filter(|part| !part.is_empty()).map(Box::from).collect();
        let mut text = format!("{prefix}*");
        for part in &middles {
            text += part;
            text.push('*');
        }
        text += suffix;
        Self { text: text.into(), middles, prefix_len: prefix.len(), suffix_len: suffix.len() }
    }

    /// The pattern as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Number of its characters except `*`, and number of `*`.
    pub(super) fn length(&self) -> (usize, usize) {
        let stars = self.text.matches('*').count();
        (self.text.chars().count() - stars, stars)
    }

    /// Whether it matches every text.
    pub(super) fn matches_all(&self) -> bool {
        &*self.text == "*"
    }

    /// The text before the first `*`.
    pub fn prefix(&self) -> &str {
        &self.text[..self.prefix_len]
    }

    /// The texts between the first and the last `*`, in order; none is empty.
    pub fn middles(&self) -> impl Iterator<Item = &str> {
        self.middles.iter().map(|middle| &**middle)
    }

    /// The text after the last `*`.
    pub fn suffix(&self) -> &str {
        &self.text[self.text.len() - self.suffix_len..]
    }

    /// Whether the pattern matches the whole value.
    ///
    /// Each middle part is matched at its first occurrence: if any placement matches, this one does. So the value is
    /// scanned once, however many `*` there are.
    pub fn matches(&self, value: &str) -> bool {
        let stripped = value.strip_prefix(self.prefix()).and_then(|rest| rest.strip_suffix(self.suffix()));
        let Some(mut rest) = stripped else { return false };
        for part in &self.middles {
            match rest.split_once(&**part) {
                Some((_, after)) => rest = after,
                None => return false,
            }
        }
        true
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Naive: tries every split.
    fn oracle(pattern: &[char], value: &[char]) -> bool {
        match pattern {
            [] => value.is_empty(),
            ['*', rest @ ..] => (0..=value.len()).any(|from| oracle(rest, &value[from..])),
            [first, rest @ ..] => value.first() == Some(first) && oracle(rest, &value[1..]),
        }
    }

    #[test]
    fn a_backslash_makes_a_wildcard_literal() {
        for (text, literal) in [
            ("plain", "plain"),
            (r"a\*b", "a*b"),
            (r"0.0.0.0\/0", "0.0.0.0/0"),
            (r"\\", r"\"),
            (r"a\b", r"a\b"),
            (r"\", r"\"),
        ] {
            assert_eq!(Pattern::unescaped(text), Err(literal.to_owned()), "{text}");
        }
        let matches = |text: &str, value: &str| Pattern::unescaped(text).unwrap().matches(value);
        assert!(matches(r"\**", "*x") && !matches(r"\**", "x"));
        assert!(matches(r"*\*", "x*") && !matches(r"*\*", "x"));
        assert!(matches(r"a*\**b", "a--*--b") && !matches(r"a*\**b", "a----b"));
        assert!(matches(r"\\*", r"\x") && !matches(r"\\*", "x"));
        assert_eq!(Pattern::unescaped("a**b"), Pattern::new("a**b").ok_or_else(String::new));
    }

    #[test]
    fn a_value_without_a_star_is_no_pattern() {
        assert_eq!(Pattern::new("plain"), None);
    }

    #[test]
    fn prefix_and_suffix_do_not_overlap() {
        let pattern = Pattern::new("aba*aba").unwrap();
        assert!(!pattern.matches("aba") && !pattern.matches("ababa") && pattern.matches("abaaba"));
    }

    #[test]
    fn runs_of_stars_are_one() {
        assert_eq!(Pattern::new("a**b***"), Pattern::new("a*b*"));
        assert_eq!(Pattern::new("a**b***").unwrap().as_str(), "a*b*");
    }

    /// Backtracking would take exponential time.
    #[test]
    fn many_stars_against_a_near_miss_take_linear_time() {
        let pattern = Pattern::new(&format!("{}b", "*a".repeat(100))).unwrap();
        assert!(!pattern.matches(&"a".repeat(8 * 1024)));
        assert!(pattern.matches(&format!("{}b", "a".repeat(8 * 1024))));
    }

    proptest! {
        #[test]
        fn matching_agrees_with_trying_every_split(pattern in "[ab*é]{0,7}", value in "[abé]{0,9}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            if let Some(compiled) = Pattern::new(&pattern) {
                prop_assert_eq!(compiled.matches(&value), oracle(&chars(&pattern), &chars(&value)));
            }
        }
    }
}
