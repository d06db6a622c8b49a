//! Values of requests for operators, redacted as the rules declare (`log: plain | hash | omit`).

use crate::telemetry::value_hash;
use tidegate_core::rules::{DomainRules, Redaction};

/// How values are redacted.
pub struct Values {
    /// The secret of the hashes.
    salt: Vec<u8>,
}

/// An entry for operators.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShownEntry {
    /// The key.
    pub key: String,
    /// The value, or `hash:` and its hash; none if it is omitted.
    pub value: Option<String>,
    /// Whether the value is not the sent value.
    pub is_redacted: bool,
}

impl Values {
    /// Redacts with this secret.
    pub fn new(salt: Vec<u8>) -> Self {
        Self { salt }
    }

    /// The entry of a request to this domain, redacted.
    pub fn show(&self, domain: Option<&DomainRules>, key: &str, value: &str) -> ShownEntry {
        let redaction = domain.and_then(|domain| domain.redaction(key)).unwrap_or_default();
        let value = self.redacted(redaction, value);
        ShownEntry { key: key.to_owned(), value, is_redacted: redaction != Redaction::Plain }
    }

    /// The value, redacted; none if it is omitted.
    pub fn redacted(&self, redaction: Redaction, value: &str) -> Option<String> {
        match redaction {
            Redaction::Plain => Some(value.to_owned()),
            Redaction::Hash => Some(format!("hash:{}", value_hash(&self.salt, value))),
            Redaction::Omit => None,
        }
    }
}
