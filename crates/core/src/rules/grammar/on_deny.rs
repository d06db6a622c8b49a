//! `on_deny`: the response to requests that a rule denies.

use super::walk::{Home, home};
use crate::{
    limit::{Header, OnDeny, Reply},
    rules::yaml::{Field, Fields, quoted},
};
use http::{HeaderName, HeaderValue};

/// Bytes of a body, or of a header's value: they travel with every denial.
const TEXT_BYTES_MAX: usize = 16 * 1024;

/// Headers of one reply.
const HEADERS_MAX: usize = 16;

/// Headers for framing and routing of a message. A proxy sets them itself; a duplicate breaks the message.
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

/// Reads `on_deny` of a descriptor. Without a limit, which could deny, it is an error.
pub(super) fn on_deny(fields: &mut Fields<'_>, is_limited: bool) -> Option<Box<OnDeny>> {
    let field = fields.take("on_deny")?;
    if !is_limited {
        field.reject("without a limit nothing is denied; write `rate_limit` or `rate_limits` too");
    }
    let mut fields = field.fields()?;
    let [body, headers, mark] = ["body", "headers", "mark"].map(|name| fields.take(name));
    let own_words = [&body, &headers].into_iter().flatten().next();
    match (&mark, own_words) {
        (None, None) => field.reject("is empty; write `body`, `headers` or `mark`"),
        (Some(_), Some(words)) => words
            .reject("has no effect beside `mark`, since a marked request is not denied; keep one of the two"),
        _ => {}
    }
    let body = body.and_then(|body| read_body(&body));
    let headers = headers.map(|headers| read_headers(&headers)).unwrap_or_default();
    let mark = mark.map(|mark| read_mark(&mark));
    fields.finish(|name| match home(name)? {
        Home::OnDeny => None,
        Home::Descriptor => Some("it belongs to the descriptor, beside `on_deny`"),
        home => home.remedy(),
    });
    let on_deny = match mark {
        Some(mark) => OnDeny::Mark(mark?),
        None => OnDeny::Reply(Reply { body: body.unwrap_or_default(), headers: headers.into() }),
    };
    Some(Box::new(on_deny))
}

fn read_body(field: &Field<'_>) -> Option<Box<str>> {
    let body = field.text()?;
    if body.is_empty() {
        field.reject("is empty; write what the client is to read, or remove it");
    }
    bound(field, body);
    Some(body.into())
}

fn read_headers(field: &Field<'_>) -> Vec<Header> {
    let Some(fields) = field.fields() else { return Vec::new() };
    let pairs: Vec<_> = fields.into_named().collect();
    match pairs.len() {
        0 => field.reject("is empty; write `name: value`, or remove it"),
        1..=HEADERS_MAX => {}
        many => field.reject(format!("{many} headers are too many; a denial carries at most {HEADERS_MAX}")),
    }
    let mut headers: Vec<Header> = Vec::with_capacity(pairs.len());
    for pair in pairs {
        let name = header_name(pair.name).map_err(|message| pair.reject(message));
        let (Ok(name), Some(value)) = (name, header_value(&pair.value)) else { continue };
        if headers.iter().any(|header| header.name == name) {
            pair.reject("the header is already given in letters of another case; keep one of the two");
        }
        headers.push(Header { name, value });
    }
    headers
}

/// The header that marks; none if it cannot be used, which is reported.
fn read_mark(field: &Field<'_>) -> Option<Header> {
    let mut fields = field.fields()?;
    let [name, value] = ["header", "value"].map(|name| {
        fields.require(name, "a mark is a header with a value, such as {header: x-rate-limited, value: yes}")
    });
    let name = name.and_then(|field| {
        let name = header_name(field.text()?);
        name.map_err(|message| field.reject(message)).ok()
    });
    let value = value.and_then(|field| header_value(&field));
    fields.finish(|_| None);
    Some(Header { name: name?, value: value? })
}

fn header_value(field: &Field<'_>) -> Option<HeaderValue> {
    let text = field.text()?;
    bound(field, text);
    field.refuse(match HeaderValue::from_str(text) {
        _ if text.is_empty() => "is empty; write a value, or remove the header".to_owned(),
        Ok(_) if text.trim() != text => format!("{} begins or ends with a space; remove it", quoted(text)),
        Ok(value) if text.is_ascii() => return Some(value),
        _ => format!("{} is not a header's value; write one line of ASCII characters", quoted(text)),
    })
}

fn bound(field: &Field<'_>, text: &str) {
    let length = text.len();
    if length > TEXT_BYTES_MAX {
        field.reject(format!("is {length} bytes long; at most {TEXT_BYTES_MAX} are sent with a denial"));
    }
}

/// The name, or what is wrong with it.
fn header_name(text: &str) -> Result<HeaderName, String> {
    let shown = quoted(text);
    match HeaderName::from_bytes(text.as_bytes()) {
        Err(_) => Err(format!(
            "{shown} is not a header's name; write letters, digits and `-`, such as x-rate-limited"
        )),
        Ok(name) if OF_THE_PROXY.contains(&name.as_str()) => {
            Err(format!("{shown} is a header that a proxy sets itself; choose another"))
        }
        Ok(name) => Ok(name),
    }
}
