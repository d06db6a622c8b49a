//! How requests are made from the fields of an access log.

use super::address::{address, network};
use smol_str::SmolStr;
use std::borrow::Cow;

/// How requests are made from the fields of a log.
#[derive(Clone, PartialEq, Debug)]
pub struct Mapping {
    /// The domain of all requests.
    pub domain: SmolStr,
    /// The names of all fields that are read, each once.
    pub(super) fields: Vec<SmolStr>,
    /// The field with the time.
    pub(super) time: usize,
    /// The field with the number of hits. Without it, each request is one hit.
    pub(super) hits: Option<usize>,
    /// The field and its value in requests that were denied. Without it, all count as admitted.
    pub(super) denied: Option<(usize, SmolStr)>,
    /// Entries of each descriptor.
    pub(super) descriptors: Vec<Vec<MappedEntry>>,
}

/// The texts of a line by field of the mapping; none of a field that is absent, empty or `-`.
pub(super) type Texts<'l> = Vec<Option<Cow<'l, str>>>;

#[derive(Clone, PartialEq, Debug)]
pub(super) struct MappedEntry {
    pub(super) key: SmolStr,
    pub(super) value: MappedValue,
}

#[derive(Clone, PartialEq, Debug)]
pub(super) enum MappedValue {
    Field(usize, Reading),
    Constant(SmolStr),
}

/// How the value of an entry is made from the text of a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reading {
    /// The text.
    Text,
    /// The address in the text, without its port.
    Address,
    /// The network of that address, with the lengths of its prefix for IPv4 and IPv6.
    Network(u8, u8),
}

/// A descriptor of a mapping cannot be read.
#[derive(Debug, thiserror::Error)]
#[error(
    "{0:?} is not a list of KEY=FIELD, KEY=address(FIELD), KEY=address(FIELD)/24/64, KEY=text(FIELD) or KEY=\"VALUE\", \
     separated by commas"
)]
pub struct MappingError(String);

impl Mapping {
    /// A mapping without descriptors, hits and denials. `time` is the field with the time.
    pub fn new(domain: SmolStr, time: &str) -> Self {
        let fields = vec![time.into()];
        Self { domain, fields, time: 0, hits: None, denied: None, descriptors: Vec::new() }
    }

    /// Reads the number of hits from a field.
    pub fn set_hits(&mut self, field: &str) {
        self.hits = Some(self.field(field));
    }

    /// Counts requests as denied if this field has this value.
    pub fn set_denied(&mut self, field: &str, value: &str) {
        self.denied = Some((self.field(field), value.into()));
    }

    /// Adds a descriptor: `user=x_user_id,generic_key="login"`.
    pub fn add_descriptor(&mut self, text: &str) -> Result<(), MappingError> {
        let entries = text.split(',').map(|entry| self.entry(entry)).collect::<Option<_>>();
        self.descriptors.push(entries.ok_or_else(|| MappingError(text.to_owned()))?);
        Ok(())
    }

    fn entry(&mut self, entry: &str) -> Option<MappedEntry> {
        let (key, value) =
            entry.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty())?;
        let constant = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        let value = match constant {
            Some(constant) => MappedValue::Constant(constant.into()),
            None => {
                let (name, reading) = Reading::of_field(key, value)?;
                MappedValue::Field(self.field(name), reading)
            }
        };
        Some(MappedEntry { key: key.into(), value })
    }

    fn field(&mut self, name: &str) -> usize {
        self.fields.iter().position(|field| field == name).unwrap_or_else(|| {
            self.fields.push(name.into());
            self.fields.len() - 1
        })
    }

    /// The purpose of a field, for messages.
    pub(super) fn use_of(&self, field: usize) -> String {
        if field == self.time {
            return "the time".to_owned();
        }
        if self.hits == Some(field) {
            return "the number of hits".to_owned();
        }
        let entries = self.descriptors.iter().flatten();
        let is_of_field =
            |entry: &&MappedEntry| matches!(entry.value, MappedValue::Field(of, _) if of == field);
        match entries.into_iter().find(is_of_field) {
            Some(entry) => format!("the entry `{}` of a descriptor", entry.key),
            None => "the requests that were denied".to_owned(),
        }
    }
}

impl Reading {
    /// The name and the reading of a field that is the value of a key. The key or the field shows that the field has an address: these are
    /// the keys of Envoy's actions, and the names of the client's address in Envoy and nginx.
    fn of_field<'v>(key: &str, value: &'v str) -> Option<(&'v str, Self)> {
        if let Some(name) = value.strip_prefix("text(").and_then(|name| name.strip_suffix(')')) {
            return Some((name, Self::Text));
        }
        if let Some((name, bits)) = value.strip_prefix("address(").and_then(|rest| rest.rsplit_once(')')) {
            let reading =
                if bits.is_empty() { Self::Address } else { Self::network(bits.strip_prefix('/')?)? };
            return Some((name, reading));
        }
        let has_address = |text: &str| text.to_ascii_lowercase().replace('-', "_").contains("remote_addr");
        let reading = match key {
            // Envoy's default prefix lengths.
            "masked_remote_address" => Self::Network(32, 128),
            _ if has_address(key) || has_address(value) => Self::Address,
            _ => Self::Text,
        };
        Some((value, reading))
    }

    /// The lengths of prefixes: `24/64`, or `24` for IPv4 only.
    fn network(bits: &str) -> Option<Self> {
        let (v4_bits, v6_bits) = bits.split_once('/').unwrap_or((bits, "128"));
        let (v4_bits, v6_bits) = (v4_bits.parse().ok()?, v6_bits.parse().ok()?);
        (v4_bits <= 32 && v6_bits <= 128).then_some(Self::Network(v4_bits, v6_bits))
    }

    /// The value; none if the text has no address.
    pub(super) fn value(self, text: &str) -> Option<SmolStr> {
        match self {
            Self::Text => Some(text.into()),
            Self::Address => address(text).map(SmolStr::from),
            Self::Network(v4_bits, v6_bits) => network(text, v4_bits, v6_bits).map(SmolStr::from),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_the_field_or_the_mapping_states_that_a_field_has_an_address() {
        for (entry, name, reading) in [
            ("user=x_user", "x_user", Reading::Text),
            ("remote_address=client", "client", Reading::Address),
            ("masked_remote_address=client", "client", Reading::Network(32, 128)),
            ("ip=downstream_remote_address", "downstream_remote_address", Reading::Address),
            ("ip=%DOWNSTREAM_REMOTE_ADDRESS%", "%DOWNSTREAM_REMOTE_ADDRESS%", Reading::Address),
            ("ip=$remote_addr", "$remote_addr", Reading::Address),
            ("ip=address(REQ(x-real-ip))", "REQ(x-real-ip)", Reading::Address),
            ("ip=address(peer[0])/24", "peer[0]", Reading::Network(24, 128)),
            ("ip=address(peer)/24/56", "peer", Reading::Network(24, 56)),
            ("remote_address=text(peer)", "peer", Reading::Text),
        ] {
            let mut mapping = Mapping::new("d".into(), "time");
            mapping.add_descriptor(entry).expect("a descriptor");
            let read = &mapping.descriptors[0][0].value;
            assert_eq!((read, &*mapping.fields[1]), (&MappedValue::Field(1, reading), name), "{entry}");
        }
    }

    #[test]
    fn a_descriptor_has_keys_and_fields() {
        let mut mapping = Mapping::new("d".into(), "t");
        for text in ["", "user", "=field", "user=", "a=b,,c=d", "ip=address(a)/33", "ip=address(a)24"] {
            let error = mapping.add_descriptor(text).unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?} is not a list of KEY=FIELD")), "{error}");
        }
    }
}
