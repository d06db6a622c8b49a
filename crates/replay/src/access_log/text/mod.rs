//! Lines of text that a server writes by a format string.
//!
//! Invariant: a line is read only if it fits the format in exactly one way. Envoy does not escape quotes, so that a client's header can
//! imitate the end of its field and the start of the next. Such a line could contain any address, and is refused.

mod escapes;
mod field;
mod notation;

pub use notation::{FormatError, Notation};

use super::{
    element::{element, places},
    mapping::{Mapping, Texts},
    missing::UnknownField,
};
use crate::LineError;
use field::{Literal, Part, Role, TextField};
use notation::Piece;
use smallvec::SmallVec;
use std::sync::Arc;

/// Envoy's format if `text_format` is not set.
pub const ENVOY_DEFAULT: &str = "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" %RESPONSE_CODE% \
    %RESPONSE_FLAGS% %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \
    \"%REQ(USER-AGENT)%\" \"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\"";

/// Istio's format if `accessLogFormat` is not set.
pub const ISTIO_DEFAULT: &str = "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" %RESPONSE_CODE% \
    %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% \"%UPSTREAM_TRANSPORT_FAILURE_REASON%\" \
    %BYTES_RECEIVED% %BYTES_SENT% %DURATION% %RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \"%REQ(USER-AGENT)%\" \
    \"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\" %UPSTREAM_CLUSTER_RAW% %UPSTREAM_LOCAL_ADDRESS% \
    %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% %REQUESTED_SERVER_NAME% %ROUTE_NAME%";

/// The format `combined` of nginx.
pub const NGINX_COMBINED: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status $body_bytes_sent \"$http_referer\" \
                                  \"$http_user_agent\"";

/// The format `combined` of Apache.
pub const APACHE_COMBINED: &str = "%h %l %u %t \"%r\" %>s %b \"%{Referer}i\" \"%{User-Agent}i\"";

/// A format of lines.
#[derive(Clone, Debug)]
pub struct TextFormat {
    /// The text before the first field.
    start: String,
    /// At least one.
    fields: Vec<TextField>,
    escapes: bool,
}

impl TextFormat {
    /// Reads a format string.
    pub fn parse(format: &str, notation: Notation) -> Result<Self, FormatError> {
        let (mut start, mut fields) = (String::new(), Vec::<TextField>::new());
        let mut after = String::new();
        for piece in pieces(format, notation)? {
            match piece {
                Piece::Literal(text) if fields.is_empty() => start.push_str(&text),
                Piece::Literal(text) => after.push_str(&text),
                Piece::Field(mut field) => {
                    if let Some(last) = fields.last_mut() {
                        if after.is_empty() {
                            return Err(FormatError::Adjacent(
                                last.names.swap_remove(0),
                                field.names.swap_remove(0),
                            ));
                        }
                        last.after = Literal::new(&std::mem::take(&mut after));
                    }
                    let before = fields.iter().map(|field| field.after.bytes()).chain([start.as_bytes()]);
                    let quotes = before.flatten().filter(|byte| **byte == b'"').count();
                    field.may_be_list = quotes.is_multiple_of(2);
                    fields.push(*field);
                }
            }
        }
        fields.last_mut().ok_or(FormatError::NoField)?.after = Literal::new(&after);
        Ok(Self { start, fields, escapes: notation.escapes() })
    }

    /// The field with the time of the request, if there is one.
    pub fn time_field(&self) -> Option<&str> {
        self.of_role(Role::Time)
    }

    /// The field with the status of the response, if there is one.
    pub fn status_field(&self) -> Option<&str> {
        self.of_role(Role::Status)
    }

    fn of_role(&self, role: Role) -> Option<&str> {
        self.fields.iter().find(|field| field.role == role).map(|field| &*field.names[0])
    }

    /// The positions of the values in a line.
    fn values(&self, line: &[u8]) -> Result<Values, LineError> {
        let mut values = Values::new();
        if !line.starts_with(self.start.as_bytes()) {
            return Err(LineError::Format(format!("it does not start with {:?}", self.start)));
        }
        let mut start = self.start.len();
        for (index, field) in self.fields.iter().enumerate() {
            let (after, is_last) = (field.after.bytes(), index + 1 == self.fields.len());
            let end = match is_last {
                true => {
                    line.len().checked_sub(after.len()).filter(|end| *end >= start && line.ends_with(after))
                }
                false => field.end(line, start, self.escapes),
            };
            let end = end.ok_or_else(|| {
                let at_end = if is_last { " at the end of the line" } else { "" };
                let (name, column, after) = (&field.names[0], start + 1, &field.after);
                LineError::Format(format!(
                    "the field `{name}` at column {column} has no {after:?} after it{at_end}"
                ))
            })?;
            values.push((start, end));
            start = end + after.len();
        }
        // Each text between fields was found at its first position. If that is also its last, the line fits in only one way.
        for (index, of) in self.fields.windows(2).enumerate() {
            let value = values[index + 1];
            if of[1].may_start_later(line, value, (&of[0], self.escapes)) {
                return Err(LineError::Ambiguous { column: value.0 + 1, field: of[1].names[0].clone() });
            }
        }
        Ok(values)
    }

    fn place(&self, name: &str) -> Option<(usize, Part)> {
        let bare = match name.strip_prefix('%') {
            Some(rest) => rest.strip_suffix('%').unwrap_or(rest).trim_start_matches(['<', '>']),
            None => name.strip_prefix('$').unwrap_or(name),
        };
        let bare = bare.strip_prefix('{').and_then(|inner| inner.strip_suffix('}')).unwrap_or(bare);
        let by_name = self.fields.iter().position(|field| field.is_named(bare));
        let of_request = || {
            let request = self.fields.iter().position(|field| field.role == Role::Request)?;
            Some((request, Part::named(bare)?))
        };
        by_name.map(|field| (field, Part::All)).or_else(of_request)
    }
}

/// The texts and fields of a format string.
fn pieces(format: &str, notation: Notation) -> Result<Vec<Piece>, FormatError> {
    // Formats are copied from configurations, with escapes and the line feed.
    let format = format.trim_end_matches('\n');
    let mut rest = format.strip_suffix("\\n").unwrap_or(format);
    let (mut pieces, sigil) = (Vec::new(), notation.sigil());
    while !rest.is_empty() {
        let end = rest.find([sigil, '\\']).unwrap_or(rest.len());
        let (text, special) = rest.split_at(end);
        let literal = |text: &str| Piece::Literal(text.to_owned());
        pieces.push(literal(text));
        rest = match special.strip_prefix(sigil) {
            Some(after) if after.starts_with('%') => {
                pieces.push(literal("%"));
                &after[1..]
            }
            Some(after) => {
                let column = format.len() - special.len() + 1;
                let (field, after) = notation.field(after).ok_or(FormatError::Open(column))?;
                let has_brackets = notation == Notation::Apache && field.names[0] == "t";
                let bracket = |text: &str| if has_brackets { literal(text) } else { literal("") };
                pieces.extend([bracket("["), Piece::Field(Box::new(field)), bracket("]")]);
                after
            }
            None => match special.get(..2) {
                Some("\\\"") => {
                    pieces.push(literal("\""));
                    &special[2..]
                }
                Some("\\t") => {
                    pieces.push(literal("\t"));
                    &special[2..]
                }
                _ => {
                    pieces.extend(special.get(..1).map(literal));
                    special.get(1..).unwrap_or_default()
                }
            },
        };
    }
    Ok(pieces)
}

type Values = SmallVec<[(usize, usize); 32]>;

/// A format, and the positions of a mapping's fields in it.
#[derive(Clone, Debug)]
pub(super) struct BoundFormat {
    format: Arc<TextFormat>,
    places: Vec<((usize, Part), Option<i64>)>,
    /// The format of the time, if the log's format has one.
    pub(super) time_format: Option<String>,
}

impl BoundFormat {
    pub(super) fn new(format: Arc<TextFormat>, mapping: &Mapping) -> Result<Self, UnknownField> {
        let known = || format.fields.iter().flat_map(|field| &field.names).map(|name| &**name);
        let places = places(mapping, "field", known, |name| format.place(name))?;
        let ((time, _), _) = places[mapping.time];
        let time_format = format.fields[time].time_format.clone();
        Ok(Self { format, places, time_format })
    }

    pub(super) fn texts<'l>(&self, line: &'l [u8]) -> Result<Texts<'l>, LineError> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let values = self.format.values(line)?;
        let text = |((at, part), index): &((usize, Part), Option<i64>)| {
            let (start, end) = values[*at];
            element(escapes::text(part.of(&line[start..end])?, self.format.escapes), *index)
        };
        Ok(self.places.iter().map(text).collect())
    }
}
