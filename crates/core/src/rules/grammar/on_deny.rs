//! `on_deny`: the response to requests that a rule denies.

use super::walk::{Home, Walk, home};
use crate::{
    limit::{Header, OnDeny, Reply},
    rules::yaml::{Field, Fields, quoted},
};
use http::{HeaderName, HeaderValue};

/// Bytes of a body, or of a header's value: they travel with every denial.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// Headers of one reply.
const HEADERS_MAX: usize = 16;

/// Headers for framing and routing of a message. A proxy sets them itself; a second one breaks the message.
const OF_THE_PROXY: [&str; 9] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

impl Walk<'_, '_> {
    /// Reads `on_deny` of a descriptor that has limits, or has none to deny by.
    pub(super) fn on_deny(&mut self, fields: &mut Fields<'_>, is_limited: bool) -> Option<Box<OnDeny>> {
        let field = fields.take("on_deny")?;
        if !is_limited {
            let message = "without a limit nothing is denied; write `rate_limit` or `rate_limits` too";
            field.reject(&mut self.report, message);
        }
        let mut fields = field.fields(&mut self.report)?;
        let (body, headers) = (fields.take("body"), fields.take("headers"));
        let mark = fields.take("mark");
        let own_words = [&body, &headers].into_iter().flatten().next();
        match (&mark, own_words) {
            (None, None) => field.reject(&mut self.report, "is empty; write `body`, `headers` or `mark`"),
            (Some(_), Some(words)) => {
                let message =
                    "has no effect beside `mark`, since a marked request is not denied; keep one of the two";
                words.reject(&mut self.report, message);
            }
            _ => {}
        }
        let body = body.and_then(|body| self.body(&body));
        let headers = headers.map(|headers| self.headers(&headers)).unwrap_or_default();
        let mark = mark.map(|mark| self.mark(&mark));
        fields.finish(&mut self.report, |name| match home(name)? {
            Home::File => Some("it belongs to the file, beside the outermost `descriptors`"),
            Home::Descriptor => Some("it belongs to the descriptor, beside `on_deny`"),
            Home::RateLimit => Some("it belongs under `rate_limit`"),
            Home::Schedule => Some("it belongs to the items of `schedule`, under `rate_limit`"),
            Home::Ban => Some("it belongs under `ban` of a `rate_limit`"),
            Home::OnDeny => None,
        });
        let on_deny = match mark {
            Some(mark) => OnDeny::Mark(mark?),
            None => OnDeny::Reply(Reply { body: body.unwrap_or_default(), headers: headers.into() }),
        };
        Some(Box::new(on_deny))
    }

    fn body(&mut self, field: &Field<'_>) -> Option<Box<str>> {
        let body = field.text(&mut self.report)?;
        if body.is_empty() {
            field.reject(&mut self.report, "is empty; write what the client is to read, or remove it");
        }
        self.bound(field, body);
        Some(body.into())
    }

    fn headers(&mut self, field: &Field<'_>) -> Vec<Header> {
        let Some(fields) = field.fields(&mut self.report) else {
            return Vec::new();
        };
        let pairs: Vec<_> = fields.into_named().collect();
        match pairs.len() {
            0 => field.reject(&mut self.report, "is empty; write `name: value`, or remove it"),
            1..=HEADERS_MAX => {}
            many => {
                let message = format!("{many} headers are too many; a denial carries at most {HEADERS_MAX}");
                field.reject(&mut self.report, message);
            }
        }
        let mut headers: Vec<Header> = Vec::with_capacity(pairs.len());
        for pair in pairs {
            let path = pair.value.path();
            let name =
                header_name(pair.name).map_err(|message| self.report.at(pair.name_place, path, message));
            let (Ok(name), Some(value)) = (name, self.header_value(&pair.value)) else { continue };
            if headers.iter().any(|header| header.name == name) {
                let message = "the header is already given in letters of another case; keep one of the two";
                self.report.at(pair.name_place, path, message);
            }
            headers.push(Header { name, value });
        }
        headers
    }

    /// The header that marks; none if there is none that could be used, which is reported.
    fn mark(&mut self, field: &Field<'_>) -> Option<Header> {
        let mut fields = field.fields(&mut self.report)?;
        let (name, value) = (fields.take("header"), fields.take("value"));
        for (part, what) in [(&name, "header"), (&value, "value")] {
            if part.is_none() {
                let message = "is missing; a mark is a header with a value, such as {header: x-rate-limited, value: yes}";
                self.report.at(fields.place(), fields.path_of(what), message);
            }
        }
        let name = name.and_then(|field| {
            let name = header_name(field.text(&mut self.report)?);
            name.map_err(|message| field.reject(&mut self.report, message)).ok()
        });
        let value = value.and_then(|field| self.header_value(&field));
        fields.finish(&mut self.report, |_| None);
        Some(Header { name: name?, value: value? })
    }

    fn header_value(&mut self, field: &Field<'_>) -> Option<HeaderValue> {
        let text = field.text(&mut self.report)?;
        self.bound(field, text);
        let message = match HeaderValue::from_str(text) {
            _ if text.is_empty() => "is empty; write a value, or remove the header".to_owned(),
            Ok(_) if text.trim() != text => {
                format!("{} begins or ends with a space; remove it", quoted(text))
            }
            Ok(value) if text.is_ascii() => return Some(value),
            _ => format!("{} is not a header's value; write one line of ASCII characters", quoted(text)),
        };
        field.reject(&mut self.report, message);
        None
    }

    fn bound(&mut self, field: &Field<'_>, text: &str) {
        if text.len() > TEXT_BYTES_MAX {
            let message =
                format!("is {} bytes long; at most {TEXT_BYTES_MAX} are sent with a denial", text.len());
            field.reject(&mut self.report, message);
        }
    }
}

/// The name, or what is wrong with it.
fn header_name(text: &str) -> Result<HeaderName, String> {
    let name = HeaderName::from_bytes(text.as_bytes()).map_err(|_| {
        format!(
            "{} is not a header's name; write letters, digits and `-`, such as x-rate-limited",
            quoted(text)
        )
    })?;
    if OF_THE_PROXY.contains(&name.as_str()) {
        return Err(format!("{} is a header that a proxy sets itself; choose another", quoted(text)));
    }
    Ok(name)
}
