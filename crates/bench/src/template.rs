//! Request messages from `--descriptor`, one for each key.
//!
//! Writes `RateLimitRequest` with the gRPC prefix. The parts that are equal for all keys are encoded once.

use crate::message::{
    DESCRIPTORS, DOMAIN, ENTRIES, HITS_ADDEND, KEY, VALUE, bytes, encoded_len, number, string, write_prefix,
};
use std::{fmt::Write as _, str::FromStr};
use tidegate_http2::grpc::PREFIX_BYTES;

/// A descriptor of the command line, `key=value,key=value`, with placeholders for the key of the request in values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor(Vec<Entry>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    /// The field `key` of the message.
    key: Vec<u8>,
    value: Vec<Piece>,
}

/// A part of an entry's value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    /// `{key}`: the number of the key.
    Key,
    /// `{key%N}`: the remainder of the number divided by N, so that all keys share N values.
    KeyModulo(u64),
    /// `{ip}`: the number as an address in 10.0.0.0/8.
    Address,
}

impl FromStr for Descriptor {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').map(Entry::from_str).collect::<Result<_, _>>().map(Self)
    }
}

impl FromStr for Entry {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').unwrap_or((text, ""));
        if key.is_empty() {
            return Err(format!("{text:?} has no key; write key=value,key=value"));
        }
        Ok(Self { key: string(KEY, key), value: pieces(value)? })
    }
}

fn pieces(mut text: &str) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    while let Some((before, after)) = text.split_once('{') {
        let (name, rest) = after.split_once('}').ok_or_else(|| format!("{{{after} has no closing brace"))?;
        if !before.is_empty() {
            pieces.push(Piece::Text(before.to_owned()));
        }
        pieces.push(match (name, name.strip_prefix("key%").map(u64::from_str)) {
            ("key", _) => Piece::Key,
            ("ip", _) => Piece::Address,
            (_, Some(Ok(modulus))) if modulus > 0 => Piece::KeyModulo(modulus),
            _ => {
                return Err(format!("{{{name}}} is unknown; write {{key}}, {{key%N}} or {{ip}}"));
            }
        });
        text = rest;
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text.to_owned()));
    }
    Ok(pieces)
}

/// Encodes the message for a key.
pub struct Template {
    /// The field `domain`.
    head: Vec<u8>,
    descriptors: Vec<Descriptor>,
    /// The field `hits_addend`, or nothing.
    tail: Vec<u8>,
    message: Vec<u8>,
    /// Buffers of the descriptor and the value being encoded.
    descriptor: Vec<u8>,
    value: String,
}

impl Template {
    /// A template for a domain and descriptors. Without `hits` the field is absent, which means 1.
    pub fn new(domain: &str, descriptors: &[Descriptor], hits: Option<u32>) -> Self {
        let mut tail = Vec::new();
        if let Some(hits) = hits {
            number(HITS_ADDEND, u64::from(hits), &mut tail);
        }
        Self {
            head: string(DOMAIN, domain),
            descriptors: descriptors.to_vec(),
            tail,
            message: Vec::new(),
            descriptor: Vec::new(),
            value: String::new(),
        }
    }

    /// Upper bound of the length of a message, for any key.
    pub(crate) fn longest_message(&self) -> usize {
        let entry = |entry: &Entry| {
            encoded_len(ENTRIES, entry.key.len() + encoded_len(VALUE, longest_value(&entry.value)))
        };
        let descriptor = |of: &Descriptor| encoded_len(DESCRIPTORS, of.0.iter().map(entry).sum());
        let descriptors: usize = self.descriptors.iter().map(descriptor).sum();
        PREFIX_BYTES + self.head.len() + descriptors + self.tail.len()
    }

    /// The encoded `RateLimitRequest` for `key`.
    pub fn body(&mut self, key: u64) -> &[u8] {
        &self.message(key)[PREFIX_BYTES..]
    }

    /// The message for `key`, with its gRPC prefix.
    pub(crate) fn message(&mut self, key: u64) -> &[u8] {
        self.message.clear();
        self.message.extend_from_slice(&[0; PREFIX_BYTES]);
        self.message.extend_from_slice(&self.head);
        for Descriptor(entries) in &self.descriptors {
            self.descriptor.clear();
            for entry in entries {
                self.value.clear();
                write_value(&entry.value, key, &mut self.value);
                let length = entry.key.len() + encoded_len(VALUE, self.value.len());
                number(ENTRIES, length as u64, &mut self.descriptor);
                self.descriptor.extend_from_slice(&entry.key);
                bytes(VALUE, self.value.as_bytes(), &mut self.descriptor);
            }
            bytes(DESCRIPTORS, &self.descriptor, &mut self.message);
        }
        self.message.extend_from_slice(&self.tail);
        write_prefix(&mut self.message);
        &self.message
    }
}

/// Length of the longest value that these pieces make for any key.
fn longest_value(pieces: &[Piece]) -> usize {
    let longest = |piece: &Piece| match piece {
        Piece::Text(text) => text.len(),
        Piece::Key | Piece::KeyModulo(_) => u64::MAX.to_string().len(),
        Piece::Address => "10.255.255.255".len(),
    };
    pieces.iter().map(longest).sum()
}

fn write_value(pieces: &[Piece], key: u64, value: &mut String) {
    for piece in pieces {
        let written = match piece {
            Piece::Text(text) => value.write_str(text),
            Piece::Key => write!(value, "{key}"),
            Piece::KeyModulo(modulus) => write!(value, "{}", key % modulus),
            Piece::Address => {
                let [_, b, c, d] = (key as u32).to_be_bytes();
                write!(value, "10.{b}.{c}.{d}")
            }
        };
        written.expect("writing to a string cannot fail");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::tests::decode;

    /// The request for a key as prost decodes it: each descriptor as `key=value,...`.
    fn request(descriptors: &[&str], hits: Option<u32>, key: u64) -> (String, Vec<String>, u32) {
        let descriptors: Vec<Descriptor> =
            descriptors.iter().map(|text| text.parse().expect("a good descriptor")).collect();
        let mut template = Template::new("edge", &descriptors, hits);
        let longest = template.longest_message();
        assert!(template.message(u64::MAX).len() <= longest);
        let message = template.message(key);
        assert!(message.len() <= longest);
        let request = decode(message);
        let entries = request.descriptors.iter().map(|descriptor| {
            let entries: Vec<String> =
                descriptor.entries.iter().map(|entry| format!("{}={}", entry.key, entry.value)).collect();
            entries.join(",")
        });
        (request.domain, entries.collect(), request.hits_addend)
    }

    #[test]
    fn placeholders_are_replaced_by_the_key() {
        let (domain, descriptors, hits) = request(
            &["plan=free,user=u-{key}-x", "route={key%10},remote_address={ip}", "flag"],
            None,
            66_051,
        );
        assert_eq!(domain, "edge");
        assert_eq!(descriptors, ["plan=free,user=u-66051-x", "route=1,remote_address=10.1.2.3", "flag="]);
        assert_eq!(hits, 0, "absent");
    }

    #[test]
    fn long_values_and_hits_are_encoded() {
        let long = "v".repeat(500);
        let (_, descriptors, hits) = request(&[&format!("k={long}")], Some(300), 0);
        assert_eq!(descriptors, [format!("k={long}")]);
        assert_eq!(hits, 300);
    }

    #[test]
    fn bad_descriptors_are_refused_with_a_remedy() {
        for (text, expected) in [
            ("", "no key"),
            ("a=1,", "no key"),
            ("=b", "no key"),
            ("a={user}", "{user} is unknown; write {key}, {key%N} or {ip}"),
            ("a={key%0}", "{key%0} is unknown"),
            ("a={key", "no closing brace"),
        ] {
            let error = text.parse::<Descriptor>().expect_err(text);
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
