//! `StringMatcher`, on bytes.

use crate::node::{Node, Problems};
use regex_automata::{meta::Regex, util::syntax};

/// A match of a text.
#[derive(Debug)]
pub(crate) enum TextMatch {
    Exact(Vec<u8>),
    Prefix(Vec<u8>),
    Suffix(Vec<u8>),
    Contains(Vec<u8>),
    /// Another match, ignoring the case of ASCII letters; the pattern is in lower case.
    Folded(Box<TextMatch>),
    /// The whole text matches.
    Regex(Regex),
}

impl TextMatch {
    /// Reads a matcher; none if it is refused.
    pub(crate) fn read(node: &Node, problems: &Problems) -> Option<Self> {
        let ignore_case = node.bool("ignore_case");
        let mut kinds = node.names().filter(|name| *name != "ignore_case");
        let (Some(kind), None) = (kinds.next(), kinds.next()) else {
            problems.add(&node.path, "is not exactly one match");
            return None;
        };
        let matcher = match kind {
            "custom" => {
                problems.add(&node.path_of(kind), "needs Envoy's own code");
                return None;
            }
            "safe_regex" => {
                if ignore_case {
                    problems.add(&node.path_of("ignore_case"), "has no effect on safe_regex; write (?i)");
                }
                return Self::regex(node.node(kind)?, problems);
            }
            _ => Self::plain(kind, node.text(kind), ignore_case),
        };
        Some(if ignore_case { Self::Folded(Box::new(matcher)) } else { matcher })
    }

    /// A match by the name of its field.
    pub(super) fn plain(kind: &str, text: &str, ignore_case: bool) -> Self {
        let text = if ignore_case { text.to_ascii_lowercase() } else { text.to_owned() }.into_bytes();
        match kind {
            "exact" => Self::Exact(text),
            "prefix" => Self::Prefix(text),
            "suffix" => Self::Suffix(text),
            _ => Self::Contains(text),
        }
    }

    /// Reads a `RegexMatcher`.
    pub(crate) fn regex(node: &Node, problems: &Problems) -> Option<Self> {
        let path = node.path_of("regex");
        let pattern = node.required("regex", problems);
        if let Some(what) = divergence(&pattern) {
            problems.add(
                &path,
                format!("{pattern:?} has {what}, which Envoy's RE2 reads differently; rewrite it"),
            );
            return None;
        }
        // Bytes instead of characters: Envoy 1.40 makes RE2 read Latin-1.
        let bytes = syntax::Config::new().unicode(false).utf8(false);
        match Regex::builder().syntax(bytes).build(&format!("\\A(?:{pattern})\\z")) {
            Ok(regex) => Some(Self::Regex(regex)),
            Err(error) => {
                problems.add(&path, format!("{pattern:?} is not supported: {error}"));
                None
            }
        }
    }

    pub(crate) fn matches(&self, text: &[u8]) -> bool {
        match self {
            Self::Exact(own) => text == own,
            Self::Prefix(own) => text.starts_with(own),
            Self::Suffix(own) => text.ends_with(own),
            Self::Contains(own) => own.is_empty() || text.windows(own.len()).any(|part| part == own),
            Self::Folded(matcher) => matcher.matches(&text.to_ascii_lowercase()),
            Self::Regex(regex) => regex.is_match(text),
        }
    }
}

/// The first part of a pattern that RE2 and the `regex` crate read differently.
fn divergence(pattern: &str) -> Option<&'static str> {
    let (mut in_class, mut bytes) = (false, pattern.bytes().peekable());
    let mut former = 0;
    while let Some(byte) = bytes.next() {
        let next = bytes.peek().copied();
        match (in_class, byte, next) {
            (_, b'\\', Some(escaped)) => {
                bytes.next();
                match escaped {
                    b'Q' => return Some("\\Q"),
                    b'C' => return Some("\\C"),
                    // The vertical tab is white space to only one of them.
                    b's' | b'S' => return Some("\\s"),
                    b'<' | b'>' => return Some("\\< or \\>"),
                    _ => {}
                }
                former = 0;
                continue;
            }
            (false, b'[', _) => {
                in_class = true;
                // A bracket that comes first is an ordinary character.
                if next == Some(b'^') {
                    bytes.next();
                }
                if bytes.peek() == Some(&b']') {
                    bytes.next();
                }
            }
            (true, b'[', Some(b':')) => {
                // `[:alpha:]`, to its end.
                while let Some(byte) = bytes.next() {
                    if byte == b':' && bytes.peek() == Some(&b']') {
                        bytes.next();
                        break;
                    }
                }
            }
            (true, b'[', _) => return Some("a bracket within brackets"),
            (true, b']', _) => in_class = false,
            (true, b'&' | b'-' | b'~', _) if former == byte => return Some("an operation on sets"),
            (false, b'{', Some(b',')) => return Some("{,"),
            (false, b'(', Some(b'?')) => {
                let rest: Vec<u8> =
                    bytes.clone().skip(1).take_while(|byte| byte.is_ascii_alphabetic()).collect();
                if rest.iter().any(|flag| matches!(flag, b'x' | b'u' | b'R')) && rest.first() != Some(&b'P') {
                    return Some("a flag that RE2 does not have");
                }
            }
            _ => {}
        }
        former = byte;
    }
    None
}

impl PartialEq for TextMatch {
    fn eq(&self, other: &Self) -> bool {
        format!("{self:?}") == format!("{other:?}")
    }
}
