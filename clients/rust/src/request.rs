//! Requests: descriptors as values, and as messages.

use crate::{
    client::OnFailure,
    local::Part,
    proto::{
        RateLimitDescriptor, RateLimitRequest,
        rate_limit_descriptor::{Entry, Override, Unit as WireUnit},
    },
};
use std::time::Duration;

/// The window of a limit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[expect(missing_docs, reason = "the names suffice")]
pub enum Unit {
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Year,
}

impl Unit {
    /// The unit's name: `second`, `minute`, …
    pub fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
            Self::Year => "year",
        }
    }

    /// Seconds of the unit, as the server counts them.
    pub fn seconds(self) -> u32 {
        match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3_600,
            Self::Day => 86_400,
            Self::Week => 604_800,
            Self::Month => 2_592_000,
            Self::Year => 31_536_000,
        }
    }

    /// The unit of a limit of the request; the API has no weeks there.
    fn to_wire(self) -> Option<WireUnit> {
        Some(match self {
            Self::Second => WireUnit::Second,
            Self::Minute => WireUnit::Minute,
            Self::Hour => WireUnit::Hour,
            Self::Day => WireUnit::Day,
            Self::Week => return None,
            Self::Month => WireUnit::Month,
            Self::Year => WireUnit::Year,
        })
    }
}

/// The subject of a limit: entries, from the most general to the most particular.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Descriptor {
    entries: Vec<(String, String)>,
    /// Values that are not UTF-8, by the number of their entry, which has their text.
    bytes: Vec<(usize, Vec<u8>)>,
    cost: Option<u64>,
    limit: Option<(u32, Unit)>,
    gives_back: bool,
}

impl Descriptor {
    /// Creates a descriptor of its entries.
    pub fn new<K: Into<String>, V: Into<String>>(entries: impl IntoIterator<Item = (K, V)>) -> Self {
        let entries = entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        Self { entries, ..Self::default() }
    }

    /// The entries: keys and values.
    pub fn entries(&self) -> &[(String, String)] {
        &self.entries
    }

    /// Adds an entry after the others.
    #[must_use]
    pub fn and(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.entries.push((key.into(), value.into()));
        self
    }

    /// Adds an entry whose value may be any bytes. For bytes that are not UTF-8, [`Descriptor::entries`] has the text that the server
    /// counts by: `\xff` for a byte, and two backslashes for a backslash.
    #[must_use]
    pub fn and_bytes(mut self, key: impl Into<String>, value: impl Into<Vec<u8>>) -> Self {
        match String::from_utf8(value.into()) {
            Ok(value) => self.and(key, value),
            Err(error) => {
                let bytes = error.into_bytes();
                let text = escaped(&bytes);
                self.bytes.push((self.entries.len(), bytes));
                self.and(key, text)
            }
        }
    }

    /// The value of an entry as it is sent.
    fn value(&self, number: usize) -> &[u8] {
        let bytes = self.bytes.iter().find(|(of, _)| *of == number);
        bytes.map_or_else(|| self.entries[number].1.as_bytes(), |(_, bytes)| bytes)
    }

    /// Sets a number of hits for this descriptor, instead of the request's.
    #[must_use]
    pub fn cost(self, hits: u64) -> Self {
        Self { cost: Some(hits), ..self }
    }

    /// Sets a limit of the request, instead of the rule's. The API has no weeks here.
    #[must_use]
    pub fn limit(self, requests: u32, unit: Unit) -> Self {
        Self { limit: Some((requests, unit)), ..self }
    }

    /// Gives back the hits of this descriptor instead of taking them.
    #[must_use]
    pub fn giving_back(self) -> Self {
        Self { gives_back: true, ..self }
    }
}

/// The argument of a call. Entries, a [`Descriptor`] and several of them convert into it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    descriptors: Vec<Descriptor>,
    cost: u64,
    pub(crate) domain: Option<String>,
    pub(crate) on_failure: Option<OnFailure>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) uses_local: bool,
}

impl Request {
    /// Creates a request of several descriptors: all or nothing.
    pub fn new(descriptors: impl IntoIterator<Item = Descriptor>) -> Self {
        Self {
            descriptors: descriptors.into_iter().collect(),
            cost: 1,
            domain: None,
            on_failure: None,
            timeout: None,
            uses_local: true,
        }
    }

    /// Sets the number of hits; 1 if not set.
    #[must_use]
    pub fn cost(self, hits: u64) -> Self {
        Self { cost: hits, ..self }
    }

    /// Sets the domain, instead of the client's.
    #[must_use]
    pub fn domain(self, domain: impl Into<String>) -> Self {
        Self { domain: Some(domain.into()), ..self }
    }

    /// Sets the policy, instead of the client's.
    #[must_use]
    pub fn on_failure(self, policy: OnFailure) -> Self {
        Self { on_failure: Some(policy), ..self }
    }

    /// Sets the timeout, instead of the client's.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout: Some(timeout), ..self }
    }

    /// Sends the call to the server in any case.
    #[must_use]
    pub fn without_local_denials(self) -> Self {
        Self { uses_local: false, ..self }
    }

    pub(crate) fn giving_back(mut self) -> Self {
        for descriptor in &mut self.descriptors {
            descriptor.gives_back = true;
        }
        self
    }

    /// Returns why the request cannot be sent, if it cannot.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        if self.descriptors.is_empty() {
            return Some("no descriptor; name one, such as [(\"api_key\", id)]");
        }
        if self.descriptors.iter().any(|descriptor| descriptor.entries.is_empty()) {
            return Some("a descriptor without entries; name at least one");
        }
        if self.descriptors.iter().flat_map(|descriptor| &descriptor.entries).any(|(key, _)| key.is_empty()) {
            return Some("an entry without key; name the key of the rules");
        }
        let units = self.descriptors.iter().filter_map(|descriptor| descriptor.limit);
        if units.into_iter().any(|(_, unit)| unit.to_wire().is_none()) {
            return Some("the unit of a limit is week; use another one");
        }
        None
    }

    pub(crate) fn descriptors(&self) -> &[Descriptor] {
        &self.descriptors
    }

    /// The hits of each descriptor.
    pub(crate) fn costs(&self) -> impl Iterator<Item = u64> {
        self.descriptors.iter().map(|descriptor| descriptor.cost.unwrap_or(self.cost))
    }

    pub(crate) fn gives_back(&self) -> bool {
        self.descriptors.iter().any(|descriptor| descriptor.gives_back)
    }

    /// The entries and hits of each descriptor, for limits of this process.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Part<'_>> {
        self.descriptors.iter().zip(self.costs()).map(|(descriptor, cost)| Part {
            entries: &descriptor.entries,
            cost,
            gives_back: descriptor.gives_back,
        })
    }

    /// Bytes that differ between requests that differ in more than costs.
    pub(crate) fn identity(&self, domain: &str) -> Vec<u8> {
        let mut identity = Vec::with_capacity(64);
        append(&mut identity, domain.as_bytes());
        for descriptor in &self.descriptors {
            identity.extend((descriptor.entries.len() as u64).to_le_bytes());
            for (number, (key, _)) in descriptor.entries.iter().enumerate() {
                append(&mut identity, key.as_bytes());
                append(&mut identity, descriptor.value(number));
            }
            match descriptor.limit {
                None => identity.push(0),
                Some((requests, unit)) => {
                    identity.push(1);
                    identity.extend(requests.to_le_bytes());
                    identity.extend(unit.seconds().to_le_bytes());
                }
            }
        }
        identity
    }

    /// Bytes for the domain and the keys of each descriptor, or only of descriptors that give back.
    pub(crate) fn shapes(&self, is_giving_back: bool, domain: &str) -> impl Iterator<Item = Vec<u8>> {
        let chosen = self.descriptors.iter().filter(move |one| one.gives_back || !is_giving_back);
        chosen.map(move |descriptor| {
            let mut shape = Vec::new();
            append(&mut shape, domain.as_bytes());
            descriptor.entries.iter().for_each(|(key, _)| append(&mut shape, key.as_bytes()));
            shape
        })
    }

    /// A message with the same descriptors that takes nothing.
    pub(crate) fn peek_message(&self, domain: String) -> RateLimitRequest {
        let mut message = self.message(domain);
        for descriptor in &mut message.descriptors {
            (descriptor.hits_addend, descriptor.is_negative_hits) = (Some(0), false);
        }
        message
    }

    pub(crate) fn message(&self, domain: String) -> RateLimitRequest {
        let descriptors = self.descriptors.iter().zip(self.costs()).map(|(descriptor, cost)| {
            let entries = descriptor.entries.iter().enumerate();
            let entries = entries.map(|(number, (key, _))| Entry {
                key: key.clone(),
                value: descriptor.value(number).to_vec(),
            });
            let limit = descriptor.limit.map(|(requests_per_unit, unit)| Override {
                requests_per_unit,
                unit: unit.to_wire().unwrap_or(WireUnit::Unknown).into(),
            });
            RateLimitDescriptor {
                entries: entries.collect(),
                limit,
                // An explicit 0 is a peek; an absent cost is 1.
                hits_addend: (cost != 1).then_some(cost),
                is_negative_hits: descriptor.gives_back,
            }
        });
        RateLimitRequest { domain, descriptors: descriptors.collect(), hits_addend: 0 }
    }
}

/// Appends a text with its length, so that different lists of texts make different bytes.
fn append(bytes: &mut Vec<u8>, text: &[u8]) {
    bytes.extend((text.len() as u64).to_le_bytes());
    bytes.extend(text);
}

/// The text of bytes that are not UTF-8, as the server writes it.
fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\\\"));
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

impl From<Descriptor> for Request {
    fn from(descriptor: Descriptor) -> Self {
        Self::new([descriptor])
    }
}

impl From<Vec<Descriptor>> for Request {
    fn from(descriptors: Vec<Descriptor>) -> Self {
        Self::new(descriptors)
    }
}

impl<K: Into<String>, V: Into<String>, const N: usize> From<[(K, V); N]> for Request {
    fn from(entries: [(K, V); N]) -> Self {
        Descriptor::new(entries).into()
    }
}
