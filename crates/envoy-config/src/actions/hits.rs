//! `hits_addend.format`: the formats that can be evaluated without Envoy.

use crate::stream::{Headers, MetadataSource, Stream};

/// The most hits that a format may give.
pub(crate) const HITS_MAX: u64 = 1_000_000_000;

/// A format of one substitution.
#[derive(Debug, PartialEq)]
pub(crate) enum Format {
    /// `%DYNAMIC_METADATA(namespace:key)%`.
    Metadata { namespace: String, key: String },
    /// `%REQ(name?other)%` and `%RESP(name?other)%`, the first characters only if there is a length.
    Header { of: Headers, name: String, other: Option<String>, length: Option<usize> },
}

impl Format {
    /// Reads a format; the error continues a sentence about it.
    pub(crate) fn parse(text: &str, on_stream_done: bool) -> Result<Self, String> {
        let inner = text.strip_prefix('%').and_then(|text| text.strip_suffix('%')).unwrap_or_default();
        let (command, arguments) = match inner.split_once('(') {
            Some((command, rest)) => {
                let (argument, length) = rest.split_once(')').ok_or("has no closing parenthesis")?;
                (command, Some((argument, length)))
            }
            None => (inner, None),
        };
        let length = |text: &str| match text.strip_prefix(':') {
            None if text.is_empty() => Ok(None),
            Some(digits) => {
                digits.parse().map(Some).map_err(|_| format!("has a length {digits:?} that is no number"))
            }
            None => Err("has more after its parenthesis; Envoy accepts exactly one substitution".to_owned()),
        };
        let header = |of, argument: &str, after: &str| {
            let (name, other) = match argument.split_once('?') {
                Some((_, other)) if other.contains('?') => {
                    return Err("has more than one other header after ?; Envoy accepts one".to_owned());
                }
                Some((name, other)) => (name, Some(other.to_ascii_lowercase())),
                None => (argument, None),
            };
            if let Some(name) =
                [Some(name), other.as_deref()].into_iter().flatten().find(|name| !is_name(name))
            {
                return Err(format!("has {name:?}, which no header can have as its name"));
            }
            Ok(Self::Header { of, name: name.to_ascii_lowercase(), other, length: length(after)? })
        };
        match (command, arguments) {
            ("DYNAMIC_METADATA", Some((argument, ""))) => match argument.split_once(':') {
                Some((namespace, key)) if !key.is_empty() && !key.contains(':') => {
                    Ok(Self::Metadata { namespace: namespace.to_owned(), key: key.to_owned() })
                }
                _ => Err("is not one key of a namespace; only Envoy reads nested metadata".to_owned()),
            },
            ("REQ", Some((argument, after))) => header(Headers::Request, argument, after),
            ("RESP", Some((argument, after))) if on_stream_done => header(Headers::Response, argument, after),
            ("RESP", _) => Err("is known at the end only; set apply_on_stream_done".to_owned()),
            _ => Err("can only be evaluated by Envoy; use %DYNAMIC_METADATA(namespace:key)%, %REQ(name)% or %RESP(name)%"
                .to_owned()),
        }
    }

    /// Whether a request alone determines it.
    pub(crate) fn is_of_request(&self) -> bool {
        matches!(self, Self::Header { of: Headers::Request, .. })
    }

    /// The text as people write it.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Metadata { namespace, key } => format!("%DYNAMIC_METADATA({namespace}:{key})%"),
            Self::Header { of, name, other, length } => {
                let command = if *of == Headers::Request { "REQ" } else { "RESP" };
                let other = other.as_deref().map_or_else(String::new, |other| format!("?{other}"));
                let length = length.map_or_else(String::new, |length| format!(":{length}"));
                format!("%{command}({name}{other}){length}%")
            }
        }
    }

    /// Evaluates the format; none without a number from 0 to [`HITS_MAX`]: then there is no descriptor.
    pub(crate) fn hits(&self, stream: &dyn Stream) -> Option<u64> {
        let number = match self {
            Self::Metadata { namespace, key } => {
                let source = MetadataSource::Dynamic;
                match stream.metadata_number(source, namespace, key) {
                    Some(number) => Some(number),
                    None => number(stream.metadata_text(source, namespace, key)?),
                }
            }
            Self::Header { of, name, other, length } => {
                // The first value, as Envoy reads it, however many the client sends.
                let value = stream.header(*of, name, 0).0;
                let value = value.or_else(|| stream.header(*of, other.as_deref()?, 0).0)?;
                number(&value[..length.unwrap_or(usize::MAX).min(value.len())])
            }
        }?;
        // Floored, as Envoy does.
        (0.0..=HITS_MAX as f64).contains(&number).then_some(number as u64)
    }
}

/// Whether Envoy accepts the name of a header in a format: a token of RFC 9110, or a pseudo-header. It accepts an empty name.
fn is_name(name: &str) -> bool {
    let is_of_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    name != ":" && name.strip_prefix(':').unwrap_or(name).bytes().all(is_of_token)
}

/// A number as Envoy reads it: white space around it and a sign are accepted.
fn number(text: &[u8]) -> Option<f64> {
    str::from_utf8(text).ok()?.trim_ascii().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in Envoy, which refuses such a configuration. As the name of a header, the rest would never be found: no descriptor, no limit.
    #[test]
    fn a_format_of_several_substitutions_is_refused() {
        for (text, error) in [
            ("%REQ(x-a)%%REQ(x-b)%", "has more after its parenthesis"),
            ("%REQ(x-a)%%RESP(x-b):3%", "has more after its parenthesis"),
            ("%REQ(x-a):3%%REQ(x-b)%", "has a length"),
            ("%REQ(x-a%%REQ(x-b)%", "no header can have as its name"),
            ("%REQ(x-a))%", "has more after its parenthesis"),
            ("%REQ(a?b?c)%", "has more than one other header"),
            ("%REQ(a?b c)%", "no header can have as its name"),
            ("%REQ(x-a", "can only be evaluated by Envoy"),
            ("%DYNAMIC_METADATA(a:b)%%REQ(x)%", "can only be evaluated by Envoy"),
        ] {
            let found = Format::parse(text, true).expect_err(text);
            assert!(found.contains(error), "{text}: {found}");
        }
        for text in ["%REQ(x-a)%", "%REQ(:path?x-b):3%", "%RESP(x_a.b)%", "%DYNAMIC_METADATA(a:b)%"] {
            assert_eq!(Format::parse(text, true).unwrap().text(), text);
        }
    }
}
