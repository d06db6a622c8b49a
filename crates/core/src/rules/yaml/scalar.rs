//! The value of a plain text: null, a boolean, a whole number, or itself.

use super::{Kind, Node, Scalar};
use serde_json::Value;

/// A text as YAML, in quotes unless it is certainly read as that text.
pub fn yaml_text(text: &str) -> String {
    let is_plain = text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(|one| one.is_ascii_alphanumeric() || matches!(one, '_' | '.' | '-'));
    let is_word = ["true", "false", "yes", "no", "on", "off", "null", "y", "n"]
        .iter()
        .any(|word| text.eq_ignore_ascii_case(word));
    if is_plain && !is_word { text.to_owned() } else { Value::from(text).to_string() }
}

impl Scalar {
    pub(super) fn is_null(&self) -> bool {
        self.plain && matches!(&*self.text, "" | "~" | "null" | "Null" | "NULL")
    }

    /// YAML 1.1 has several words for true and false; the reference server reads them all.
    pub(super) fn boolean(&self) -> Option<bool> {
        let is_one_of = |words: &[&str]| words.iter().any(|word| self.text.eq_ignore_ascii_case(word));
        match () {
            () if !self.plain => None,
            () if is_one_of(&["true", "yes", "on", "y"]) => Some(true),
            () if is_one_of(&["false", "no", "off", "n"]) => Some(false),
            () => None,
        }
    }

    /// A whole number in decimal, or as `0x…`, `0o…`, `0b…`; `_` may part its digits.
    ///
    /// A decimal number with a leading zero is not accepted: YAML 1.1 reads it as octal, people do not.
    pub(super) fn whole(&self) -> Option<i128> {
        if !self.plain {
            return None;
        }
        let (negative, unsigned) = match self.text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, self.text.strip_prefix('+').unwrap_or(&self.text)),
        };
        let (radix, digits) = match unsigned.as_bytes() {
            [b'0', b'x', ..] => (16, &unsigned[2..]),
            [b'0', b'o', ..] => (8, &unsigned[2..]),
            [b'0', b'b', ..] => (2, &unsigned[2..]),
            [b'0', _, ..] => return None,
            _ => (10, unsigned),
        };
        if !digits.starts_with(|first: char| first.is_digit(radix)) {
            return None;
        }
        let number = i128::from_str_radix(&digits.replace('_', ""), radix).ok()?;
        Some(if negative { -number } else { number })
    }
}

impl Node {
    /// As JSON, for values that are kept as they are. YAML values that JSON does not have become text.
    pub(in crate::rules) fn json(&self) -> Value {
        match &self.kind {
            Kind::List(items) => items.iter().map(|item| item.json()).collect(),
            Kind::Map(pairs) => pairs.iter().map(|pair| (pair.key.to_string(), pair.value.json())).collect(),
            Kind::Scalar(scalar) => scalar.json(),
        }
    }
}

impl Scalar {
    fn json(&self) -> Value {
        if !self.plain {
            return Value::from(&*self.text);
        }
        if self.is_null() {
            return Value::Null;
        }
        let is_word = |word: &str| self.text.eq_ignore_ascii_case(word);
        if is_word("true") || is_word("false") {
            return Value::from(is_word("true"));
        }
        if let Some(number) = self.whole().and_then(|number| i64::try_from(number).ok()) {
            return Value::from(number);
        }
        // A number that is not whole has a point or an exponent; `inf` and `007` are texts.
        let is_fraction = self.text.contains(['.', 'e', 'E']);
        match self.text.parse::<f64>() {
            Ok(number) if is_fraction && number.is_finite() => Value::from(number),
            _ => Value::from(&*self.text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(text: &str) -> Scalar {
        Scalar { text: text.into(), plain: true }
    }

    #[test]
    fn whole_numbers_are_read_in_every_notation_but_the_ambiguous_one() {
        let whole = |text| plain(text).whole();
        assert_eq!(
            ["10", "+10", "1_000", "0x10", "0o10", "0b10", "-3", "0"].map(whole),
            [Some(10), Some(10), Some(1000), Some(16), Some(8), Some(2), Some(-3), Some(0)]
        );
        for text in ["", "010", "1.0", "1e3", "ten", "_1", "--1", "+-1", "0x", "0x_1", &"9".repeat(100)] {
            assert_eq!(whole(text), None, "{text}");
        }
        assert_eq!(Scalar { text: "10".into(), plain: false }.whole(), None);
    }

    #[test]
    fn metadata_keeps_its_types() {
        let json = |text| plain(text).json().to_string();
        assert_eq!(
            ["5", "-1.5", "true", "~", "yes", "007"].map(json),
            ["5", "-1.5", "true", "null", "\"yes\"", "\"007\""]
        );
    }
}
