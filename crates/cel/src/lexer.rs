//! Tokens of an expression.

use crate::ParseError;

/// A token and its place.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Token {
    pub(crate) offset: usize,
    pub(crate) kind: Kind,
}

#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Kind {
    Name(String),
    Text(String),
    Int(u64),
    Uint(u64),
    Double(f64),
    /// An operator or a bracket.
    Symbol(&'static str),
    End,
}

/// Longer symbols first.
const SYMBOLS: [&str; 25] = [
    "&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "+", "-", "*", "/", "%", "?", ":", "(", ")", "[", "]",
    "{", "}", ",", ".", "=",
];

/// All tokens, and a token for the end.
pub(crate) fn tokens(source: &str) -> Result<Vec<Token>, ParseError> {
    let mut lexer = Lexer { source, offset: 0 };
    let mut tokens = Vec::new();
    loop {
        lexer.skip_blank();
        let offset = lexer.offset;
        let kind = lexer.next()?;
        let is_end = kind == Kind::End;
        tokens.push(Token { offset, kind });
        if is_end {
            return Ok(tokens);
        }
    }
}

struct Lexer<'s> {
    source: &'s str,
    offset: usize,
}

impl Lexer<'_> {
    fn rest(&self) -> &str {
        &self.source[self.offset..]
    }

    fn error<T>(&self, message: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError { offset: self.offset, message: message.into() })
    }

    /// Spaces, and comments from `//` to the end of the line.
    fn skip_blank(&mut self) {
        loop {
            let rest = self.rest();
            let trimmed = rest.trim_start_matches([' ', '\t', '\r', '\n', '\u{c}']);
            let comment =
                if trimmed.starts_with("//") { trimmed.find('\n').unwrap_or(trimmed.len()) } else { 0 };
            let skipped = rest.len() - trimmed.len() + comment;
            if skipped == 0 {
                return;
            }
            self.offset += skipped;
        }
    }

    fn next(&mut self) -> Result<Kind, ParseError> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(Kind::End) };
        let second = rest.chars().nth(1);
        if matches!(first, '"' | '\'') {
            return self.text(false);
        }
        if matches!((first, second), ('r' | 'R', Some('"' | '\''))) {
            self.offset += 1;
            return self.text(true);
        }
        if matches!((first, second), ('b' | 'B', Some('"' | '\''))) {
            return self.error("bytes are not supported; write a text, without `b`");
        }
        if first.is_ascii_digit() || first == '.' && second.is_some_and(|second| second.is_ascii_digit()) {
            return self.number();
        }
        if first.is_ascii_alphabetic() || first == '_' {
            let length =
                rest.find(|one: char| !one.is_ascii_alphanumeric() && one != '_').unwrap_or(rest.len());
            let name = rest[..length].to_owned();
            self.offset += length;
            return Ok(Kind::Name(name));
        }
        match SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol)) {
            Some("=") => self.error("`=` is not an operator; write `==`"),
            Some(symbol) => {
                self.offset += symbol.len();
                Ok(Kind::Symbol(symbol))
            }
            None => self.error(format!("{first:?} is not part of an expression; put texts in quotes")),
        }
    }

    fn number(&mut self) -> Result<Kind, ParseError> {
        let rest = self.rest();
        if let Some(digits) = rest.strip_prefix("0x").or_else(|| rest.strip_prefix("0X")) {
            let length = digits.find(|one: char| !one.is_ascii_hexdigit()).unwrap_or(digits.len());
            let number = u64::from_str_radix(&digits[..length], 16);
            let is_unsigned = digits[length..].starts_with(['u', 'U']);
            return self.whole(number.ok(), 2 + length, is_unsigned);
        }
        let digits = |text: &str| text.find(|one: char| !one.is_ascii_digit()).unwrap_or(text.len());
        let mut length = digits(rest);
        let mut is_whole = true;
        if rest[length..].starts_with('.') && digits(&rest[length + 1..]) > 0 {
            is_whole = false;
            length += 1 + digits(&rest[length + 1..]);
        }
        if let Some(exponent) = rest[length..].strip_prefix(['e', 'E']) {
            let sign = usize::from(exponent.starts_with(['+', '-']));
            let of_exponent = digits(&exponent[sign..]);
            if of_exponent > 0 {
                is_whole = false;
                length += 1 + sign + of_exponent;
            }
        }
        let text = &rest[..length];
        if is_whole {
            let is_unsigned = rest[length..].starts_with(['u', 'U']);
            return self.whole(text.parse().ok(), length, is_unsigned);
        }
        match text.parse() {
            Ok(number) => {
                self.offset += length;
                Ok(Kind::Double(number))
            }
            Err(_) => self.error(format!("{text} is not a number")),
        }
    }

    fn whole(&mut self, number: Option<u64>, length: usize, is_unsigned: bool) -> Result<Kind, ParseError> {
        let Some(number) = number else { return self.error("the number is too long") };
        self.offset += length + usize::from(is_unsigned);
        Ok(if is_unsigned { Kind::Uint(number) } else { Kind::Int(number) })
    }

    /// A text in quotes: single or double, once or three times.
    fn text(&mut self, is_raw: bool) -> Result<Kind, ParseError> {
        let rest = self.rest();
        let quote = &rest[..1];
        let quote = if rest.starts_with(&quote.repeat(3)) { quote.repeat(3) } else { quote.to_owned() };
        let start = self.offset;
        self.offset += quote.len();
        let mut text = String::new();
        loop {
            let rest = self.rest();
            if rest.starts_with(&quote) {
                self.offset += quote.len();
                return Ok(Kind::Text(text));
            }
            match rest.chars().next() {
                None | Some('\n' | '\r') if quote.len() == 1 || rest.is_empty() => {
                    self.offset = start;
                    return self.error(format!("the text has no end; close it with {quote}"));
                }
                Some('\\') if !is_raw => text.push(self.escape()?),
                Some(one) => {
                    text.push(one);
                    self.offset += one.len_utf8();
                }
                None => unreachable!("an empty rest is an error above"),
            }
        }
    }

    fn escape(&mut self) -> Result<char, ParseError> {
        let rest = self.rest();
        let kind = rest.chars().nth(1);
        let digits = |skipped: usize, length: usize, radix: u32| {
            let code = u32::from_str_radix(rest.get(skipped..skipped + length)?, radix).ok()?;
            Some((char::from_u32(code)?, skipped + length))
        };
        let escaped = match kind {
            Some('a') => Some(('\u{7}', 2)),
            Some('b') => Some(('\u{8}', 2)),
            Some('f') => Some(('\u{c}', 2)),
            Some('n') => Some(('\n', 2)),
            Some('r') => Some(('\r', 2)),
            Some('t') => Some(('\t', 2)),
            Some('v') => Some(('\u{b}', 2)),
            Some(same @ ('\\' | '\'' | '"' | '`' | '?')) => Some((same, 2)),
            Some('x' | 'X') => digits(2, 2, 16),
            Some('u') => digits(2, 4, 16),
            Some('U') => digits(2, 8, 16),
            Some('0'..='3') => digits(1, 3, 8),
            _ => None,
        };
        match escaped {
            Some((one, length)) => {
                self.offset += length;
                Ok(one)
            }
            None => self.error("is not an escape sequence; write `\\\\` for a backslash"),
        }
    }
}
