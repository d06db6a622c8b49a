//! A block as it is declared.

use super::value_pattern::ValuePattern;
use crate::rules::Network;
use serde::{Deserialize, Serialize};

/// Denies every request with an entry that it matches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Block {
    /// Its name; of one in a file its place, as `FILE:LINE`.
    pub id: String,
    /// The domain; none: every domain that has rules.
    pub domain: Option<String>,
    /// The key of the entry.
    pub key: String,
    /// The values.
    pub values: BlockedValues,
    /// Whether it is a line of a file, where alone it can be changed.
    #[serde(skip)]
    pub is_in_file: bool,
}

/// The values that a block matches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockedValues {
    /// This one, in which `*` matches any text, and `\*` stands for a literal one.
    Value(String),
    /// The addresses of a network, such as `192.0.2.0/24`.
    Cidr(String),
}

impl BlockedValues {
    pub(super) fn match_value(&self, value: &str) -> bool {
        match self {
            Self::Value(text) => ValuePattern::new(text).matches(value),
            Self::Cidr(network) => match (network.parse::<Network>(), value.parse()) {
                (Ok(network), Ok(address)) => network.contains(address),
                _ => false,
            },
        }
    }
}
