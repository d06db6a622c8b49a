//! A block as it is declared.

use super::value_pattern::ValuePattern;
use crate::rules::{Network, letter_case::folded};
use serde::{Deserialize, Serialize};

/// Denies every request with an entry that it matches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Block {
    /// Its name; for a block in a file its place, `FILE:LINE`.
    pub id: String,
    /// The domain; none: every domain that has rules.
    pub domain: Option<String>,
    /// The key of the entry.
    pub key: String,
    /// The values.
    pub values: BlockedValues,
    /// Whether it is a line of a file, and can be changed only there.
    #[serde(skip)]
    pub is_in_file: bool,
}

/// The values that a block matches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockedValues {
    /// This value, in which `*` matches any text, and `\*` stands for a literal `*`. With `\/` instead of the slash, a value such as
    /// `0.0.0.0\/0` is a text and no network.
    Value(String),
    /// The addresses of a network, such as `192.0.2.0/24`, and the networks within it.
    Cidr(String),
}

impl BlockedValues {
    /// The values that a text stands for: an address or a network stands for its addresses, any other text for itself. An error if it
    /// resembles a network and is none: taken as a text, it would never match the addresses that are meant.
    pub fn of_text(text: &str) -> Result<Self, String> {
        match text.parse::<Network>() {
            Ok(_) => Ok(Self::Cidr(text.to_owned())),
            Err(error) if resembles_network(text) => {
                let escaped = text.replacen('/', r"\/", 1);
                Err(format!("{text:?} {error}; to block this text itself, write {escaped}"))
            }
            Err(_) => Ok(Self::Value(text.to_owned())),
        }
    }

    /// As it is written.
    pub fn text(&self) -> &str {
        match self {
            Self::Value(text) | Self::Cidr(text) => text,
        }
    }

    /// The network, if the values are its addresses. A value written as a network is a network too: no address equals that text.
    pub fn network(&self) -> Option<Network> {
        match self {
            Self::Value(text) if !text.contains('/') => None,
            Self::Value(text) | Self::Cidr(text) => text.parse().ok(),
        }
    }

    /// The text that values may equal besides being in a network.
    pub(super) fn literal(&self) -> Option<&str> {
        match self {
            Self::Cidr(text) if !text.contains('/') => None,
            Self::Value(text) | Self::Cidr(text) => Some(text),
        }
    }

    /// With letters in lower case.
    pub(super) fn folded(&self) -> Self {
        match self {
            Self::Value(text) => Self::Value(folded(text).into_owned()),
            Self::Cidr(text) => Self::Cidr(folded(text).into_owned()),
        }
    }

    pub(super) fn match_value(&self, value: &str) -> bool {
        self.literal().is_some_and(|text| ValuePattern::new(text).matches(value))
            || self.network().is_some_and(|network| network.matches(value))
    }
}

/// Whether a text consists of characters of addresses, `/` and a number.
fn resembles_network(value: &str) -> bool {
    value.split_once('/').is_some_and(|(address, length)| {
        address.contains(['.', ':'])
            && address
                .chars()
                .all(|character| character.is_ascii_hexdigit() || matches!(character, '.' | ':'))
            && length.chars().all(|character| character.is_ascii_digit())
    })
}
