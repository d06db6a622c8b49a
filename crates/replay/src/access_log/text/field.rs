//! A field of a format string, and the text that ends it.

use memchr::memmem::Finder;
use std::fmt;

/// A field, and the text between it and the next field.
#[derive(Clone, Debug)]
pub(super) struct TextField {
    /// Names of the field in mappings. The first is the name in the format, without its sigil.
    pub(super) names: Vec<String>,
    pub(super) role: Role,
    /// Number of spaces in each of its values.
    pub(super) spaces: usize,
    /// The format of the time, if the field has one.
    pub(super) time_format: Option<String>,
    /// Whether it is outside of quotes. Its value may then be a list with a comma and a space between elements.
    pub(super) may_be_list: bool,
    /// The text after the field. After the last field, it ends the line.
    pub(super) after: Literal,
}

/// The meaning of a field in a server's format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    Time,
    /// The status of the response.
    Status,
    /// The request line: method, target and protocol.
    Request,
    Other,
}

/// A part of the value of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    All,
    Method,
    Target,
    Protocol,
}

/// A text between fields.
#[derive(Clone)]
pub(super) struct Literal {
    finder: Finder<'static>,
}

impl TextField {
    pub(super) fn new(token: &str, role: Role) -> Self {
        Self {
            names: vec![token.to_owned()],
            role,
            spaces: 0,
            time_format: None,
            may_be_list: true,
            after: Literal::new(""),
        }
    }

    /// Sets the format of the time, unless it is empty.
    pub(super) fn has_time_format(&mut self, format: &str) {
        self.spaces = format.matches(' ').count();
        self.time_format = (!format.is_empty()).then(|| format.to_owned());
    }

    /// The end of the value that starts at `start`: the first occurrence of the text after it.
    pub(super) fn end(&self, line: &[u8], start: usize, escapes: bool) -> Option<usize> {
        let mut from = start;
        if self.after.bytes().starts_with(b" ") {
            for _ in 0..self.spaces {
                from += memchr::memchr(b' ', line.get(from..)?)? + 1;
            }
        }
        self.after.find(line, from..line.len(), self.may_be_list, escapes)
    }

    /// Whether the value could start later, because it contains the text before it.
    pub(super) fn may_start_later(&self, line: &[u8], value: (usize, usize), before: (&Self, bool)) -> bool {
        let (before, escapes) = before;
        let (literal, (mut start, end)) = (&before.after, value);
        // A longer text can only overlap itself: its first byte is not where it was found.
        start = (start - literal.bytes().len()) + 1;
        let mut left = if literal.bytes() == b" " { self.spaces } else { 0 };
        while let Some(at) = literal.find(line, start..end, before.may_be_list, escapes) {
            if left == 0 {
                return true;
            }
            (left, start) = (left - 1, at + 1);
        }
        false
    }

    /// Whether a mapping names this field.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.names.iter().any(|of| is_same_name(of, name))
    }
}

/// Whether two names without sigils are the same. Letters of Apache are case-sensitive, header names are not.
pub(super) fn is_same_name(one: &str, other: &str) -> bool {
    const SHORTEST: usize = 3;
    let plain = |name: &str| match name.split_once('(') {
        Some((command, header)) if command.eq_ignore_ascii_case("REQUEST_HEADER") => format!("REQ({header}"),
        _ => name.to_owned(),
    };
    one == other || (one.len() >= SHORTEST && plain(one).eq_ignore_ascii_case(&plain(other)))
}

impl Part {
    /// The part of a request line with this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        match &*name.to_ascii_lowercase() {
            "method" | ":method" | "request_method" => Some(Self::Method),
            "path" | ":path" | "request_uri" => Some(Self::Target),
            "protocol" | "server_protocol" => Some(Self::Protocol),
            _ => None,
        }
    }

    /// This part of a value. An incomplete request line only exists as a whole.
    pub(super) fn of(self, value: &[u8]) -> Option<&[u8]> {
        let places = || {
            Some((memchr::memchr(b' ', value)?, memchr::memrchr(b' ', value)?))
                .filter(|(first, last)| first < last)
        };
        Some(match self {
            Self::All => value,
            Self::Method => &value[..places()?.0],
            Self::Target => places().map(|(first, last)| &value[first + 1..last])?,
            Self::Protocol => &value[places()?.1 + 1..],
        })
    }
}

impl Literal {
    pub(super) fn new(text: &str) -> Self {
        Self { finder: Finder::new(text).into_owned() }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.finder.needle()
    }

    /// The first position in the range at which it ends a value.
    fn find(
        &self,
        line: &[u8],
        mut range: std::ops::Range<usize>,
        may_be_list: bool,
        escapes: bool,
    ) -> Option<usize> {
        let first = *self.bytes().first()?;
        loop {
            let at = range.start + self.finder.find(line.get(range.clone())?)?;
            let before = &line[..at];
            let is_in_list = may_be_list && first == b' ' && before.ends_with(b",");
            let is_escaped = || before.iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1;
            let is_value = is_in_list || (escapes && first == b'"' && is_escaped());
            if !is_value {
                return Some(at);
            }
            range.start = at + 1;
        }
    }
}

impl fmt::Debug for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(self.bytes()), f)
    }
}
