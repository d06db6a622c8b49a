//! Format strings of servers: `"%REQ(:METHOD)%" %RESPONSE_CODE%` of Envoy, `"$request" $status` of nginx, `"%r" %>s` of Apache.

use super::field::{Role, TextField};

/// A server, by the way in which its format strings name fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notation {
    /// `%RESPONSE_CODE%`, `%REQ(X-USER)%`.
    Envoy,
    /// `$status`, `${http_x_user}`.
    Nginx,
    /// `%>s`, `%{X-User}i`.
    Apache,
}

/// A format string cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message is its own documentation")]
pub enum FormatError {
    #[error(
        "the format has no field; write fields as the server does: %RESPONSE_CODE% (Envoy), $status (nginx) or %>s (Apache)"
    )]
    NoField,
    #[error("the field at column {0} is not closed")]
    Open(usize),
    #[error("{0} and {1} have no text between them, so that their values cannot be told apart in a line")]
    Adjacent(String, String),
}

/// A part of a format string.
pub(super) enum Piece {
    Literal(String),
    Field(Box<TextField>),
}

impl Notation {
    /// The notation of a format string. None if it has no field.
    pub fn of(format: &str) -> Option<Self> {
        let is_command = |rest: &str| {
            let end =
                rest.find(|char: char| !char.is_ascii_uppercase() && char != '_' && !char.is_ascii_digit());
            end.is_some_and(|end| end >= 2 && rest[end..].starts_with(['(', '%', ':']))
        };
        let mut after_percents = format.match_indices('%').map(|(at, _)| &format[at + 1..]);
        if after_percents.clone().any(is_command) {
            return Some(Self::Envoy);
        }
        let is_variable =
            |rest: &str| rest.starts_with(|char: char| char.is_ascii_lowercase() || char == '{');
        if format.split('$').skip(1).any(is_variable) {
            return Some(Self::Nginx);
        }
        after_percents.next().map(|_| Self::Apache)
    }

    /// Reads the field at the start of a text, after its sigil. Returns it with the rest of the text. None if the field is not closed.
    pub(super) fn field(self, rest: &str) -> Option<(TextField, &str)> {
        match self {
            Self::Envoy => envoy_field(rest),
            Self::Nginx => nginx_field(rest),
            Self::Apache => apache_field(rest),
        }
    }

    pub(super) fn sigil(self) -> char {
        if self == Self::Nginx { '$' } else { '%' }
    }

    /// Whether quotes and control characters in values are escaped by backslashes. Envoy does not escape them.
    pub(super) fn escapes(self) -> bool {
        self != Self::Envoy
    }
}

/// `REQ(A?B):10%`.
fn envoy_field(rest: &str) -> Option<(TextField, &str)> {
    let name_end = rest.find(['(', ':', '%'])?;
    let (command, after) = rest.split_at(name_end);
    let (argument, after) = match after.strip_prefix('(') {
        // The argument may contain parentheses, and percents if it is the format of a time.
        Some(inner) => {
            let end = inner.match_indices(')').map(|(at, _)| at).find(|at| {
                let digits = inner[at + 1..]
                    .strip_prefix(':')
                    .map(|rest| rest.trim_start_matches(|char: char| char.is_ascii_digit()));
                digits.unwrap_or(&inner[at + 1..]).starts_with('%')
            })?;
            (Some(&inner[..end]), &inner[end + 1..])
        }
        None => (None, after),
    };
    let (_length, after) = after.split_once('%')?;
    let token = match argument {
        Some(argument) => format!("{command}({argument})"),
        None => command.to_owned(),
    };
    let mut field = TextField::new(&token, Role::Other);
    match (command, argument) {
        ("START_TIME", format) => {
            field.role = Role::Time;
            field.names.push(command.to_owned());
            field.has_time_format(format.unwrap_or_default());
        }
        ("RESPONSE_CODE", _) => field.role = Role::Status,
        ("REQ" | "REQUEST_HEADER", Some(headers)) => {
            for header in headers.split('?') {
                field.names.extend([format!("{command}({header})"), header.to_owned()]);
            }
        }
        _ => {}
    }
    Some((field, after))
}

/// `status` or `{status}`.
fn nginx_field(rest: &str) -> Option<(TextField, &str)> {
    let (name, after) = match rest.strip_prefix('{') {
        Some(inner) => inner.split_once('}')?,
        None => {
            let end = rest.find(|char: char| !char.is_ascii_alphanumeric() && char != '_');
            rest.split_at(end.unwrap_or(rest.len()))
        }
    };
    let role = match name {
        "time_local" | "time_iso8601" | "msec" => Role::Time,
        "status" => Role::Status,
        "request" => Role::Request,
        _ => Role::Other,
    };
    let mut field = TextField::new(name, role);
    field.spaces = usize::from(name == "time_local");
    if let Some(header) = name.strip_prefix("http_") {
        field.names.push(header.to_owned());
    }
    Some((field, after))
}

/// `h`, `>s`, `{X-User}i` or `!200,304{Referer}i`.
fn apache_field(rest: &str) -> Option<(TextField, &str)> {
    let modified = rest.trim_start_matches(|char: char| char.is_ascii_digit() || "<>!,".contains(char));
    let (parameter, after) = match modified.strip_prefix('{') {
        Some(inner) => inner.split_once('}').map(|(parameter, after)| (Some(parameter), after))?,
        None => (None, modified),
    };
    let letters = if after.starts_with('^') { 3 } else { 1 };
    let (letter, after) = after.split_at_checked(letters)?;
    let role = match (letter, parameter) {
        ("t", Some("msec_frac" | "usec_frac")) => Role::Other,
        ("t", _) => Role::Time,
        ("s", _) => Role::Status,
        ("r", _) => Role::Request,
        _ => Role::Other,
    };
    let token = parameter.map_or_else(|| letter.to_owned(), |parameter| format!("{{{parameter}}}{letter}"));
    let mut field = TextField::new(&token, role);
    match parameter {
        Some(format) if role == Role::Time => field.has_time_format(format),
        Some(header) if letter == "i" => field.names.push(header.to_owned()),
        _ => {}
    }
    // `[01/Mar/2026:12:00:00 +0000]`, with its brackets.
    field.spaces += usize::from(letter == "t" && parameter.is_none());
    Some((field, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_notation_is_that_of_the_fields() {
        for (format, notation) in [
            ("%START_TIME% %REQ(:PATH)%", Some(Notation::Envoy)),
            ("100%% [%RESPONSE_CODE:3%]", Some(Notation::Envoy)),
            ("$remote_addr ${status}", Some(Notation::Nginx)),
            ("%h %l %u %t \"%r\" %>s %b", Some(Notation::Apache)),
            ("%{X-User}i %D", Some(Notation::Apache)),
            ("nothing $ 5", None),
        ] {
            assert_eq!(Notation::of(format), notation, "{format}");
        }
    }

    #[test]
    fn a_field_has_the_names_by_which_a_mapping_may_name_it() {
        for (notation, text, names, rest) in [
            (Notation::Envoy, "REQ(A?:B):10% x", &["REQ(A?:B)", "REQ(A)", "A", "REQ(:B)", ":B"][..], " x"),
            (Notation::Envoy, "START_TIME(%Y (%Z) %s)%]", &["START_TIME(%Y (%Z) %s)", "START_TIME"], "]"),
            (Notation::Envoy, "DYNAMIC_METADATA(a:b)%", &["DYNAMIC_METADATA(a:b)"], ""),
            (Notation::Nginx, "http_x_user\"", &["http_x_user", "x_user"], "\""),
            (Notation::Nginx, "{status}0", &["status"], "0"),
            (Notation::Apache, ">s ", &["s"], " "),
            (Notation::Apache, "!200,304{X-User}i,", &["{X-User}i", "X-User"], ","),
            (Notation::Apache, "{c}a", &["{c}a"], ""),
            (Notation::Apache, "{Foo}^ti", &["{Foo}^ti"], ""),
        ] {
            let (field, after) = notation.field(text).expect("a field");
            assert_eq!(
                (field.names.as_slice(), after),
                (&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()[..], rest)
            );
        }
        for (notation, text) in
            [(Notation::Envoy, "REQ(A%"), (Notation::Nginx, "{a"), (Notation::Apache, "{a")]
        {
            assert!(notation.field(text).is_none(), "{text}");
        }
    }
}
