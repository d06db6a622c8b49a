//! Keys of sketches: the domain, the rule and the entries of a descriptor, in bounded memory.
//!
//! A long text is shortened and followed by a hash of the whole, so that different keys stay different.

use foldhash::quality::FixedState;
use std::{
    hash::{BuildHasher as _, Hash, Hasher},
    sync::Arc,
};
use tidegate_core::limit::Entry;

/// The most bytes of a key's texts.
pub(super) const KEY_BYTES_MAX: usize = 256;
/// The most bytes of one text.
const TEXT_BYTES_MAX: usize = 64;
/// The most bytes of the text that stands for further entries.
const MORE_BYTES_MAX: usize = 40;
const SHORTENED: u8 = 0x80;

/// A key.
#[derive(Debug)]
pub struct SketchKey {
    bytes: Box<[u8]>,
    rule: Option<Arc<str>>,
}

/// A key with borrowed texts.
pub(super) struct BorrowedKey<'k> {
    pub(super) bytes: &'k [u8],
    pub(super) rule: &'k str,
}

/// An entry of a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyEntry {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// Whether its key or its value is shortened.
    pub is_shortened: bool,
}

impl SketchKey {
    pub(super) fn new(bytes: &[u8], rule: Option<&Arc<str>>) -> Self {
        Self { bytes: bytes.into(), rule: rule.cloned() }
    }

    /// The path of the rule; empty for a limit of the request.
    pub fn rule(&self) -> &str {
        self.rule.as_deref().unwrap_or_default()
    }

    /// The domain and the entries.
    pub fn texts(&self) -> (String, Vec<KeyEntry>) {
        let mut texts = std::iter::from_fn({
            let mut rest = &*self.bytes;
            move || decode(&mut rest)
        });
        let (domain, _) = texts.next().unwrap_or_default();
        let mut entries = Vec::new();
        while let Some((key, is_short_key)) = texts.next() {
            let (value, is_short_value) = texts.next().unwrap_or((String::new(), true));
            entries.push(KeyEntry { key, value, is_shortened: is_short_key || is_short_value });
        }
        (domain, entries)
    }
}

impl PartialEq for SketchKey {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes && self.rule() == other.rule()
    }
}

impl Eq for SketchKey {}

impl Hash for SketchKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        BorrowedKey { bytes: &self.bytes, rule: self.rule() }.hash(state);
    }
}

impl Hash for BorrowedKey<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.bytes);
        state.write(self.rule.as_bytes());
    }
}

impl hashbrown::Equivalent<Arc<SketchKey>> for BorrowedKey<'_> {
    fn equivalent(&self, key: &Arc<SketchKey>) -> bool {
        *self.bytes == *key.bytes && self.rule == key.rule()
    }
}

/// Appends the texts of a key, at most [`KEY_BYTES_MAX`] bytes.
pub(super) fn encode(domain: &str, entries: &[Entry<'_>], out: &mut Vec<u8>) {
    text(domain, out);
    for (index, entry) in entries.iter().enumerate() {
        let more = if index + 1 < entries.len() { MORE_BYTES_MAX } else { 0 };
        if out.len() + bytes(entry.key) + bytes(entry.value) + more > KEY_BYTES_MAX {
            let mut hasher = FixedState::with_seed(0).build_hasher();
            for entry in &entries[index..] {
                entry.hash(&mut hasher);
            }
            push(&format_args!("{} more", entries.len() - index).to_string(), Some(hasher.finish()), out);
            return push("", Some(0), out);
        }
        text(entry.key, out);
        text(entry.value, out);
    }
}

/// Bytes that [`text`] appends.
fn bytes(text: &str) -> usize {
    1 + if text.len() <= TEXT_BYTES_MAX { text.len() } else { TEXT_BYTES_MAX + size_of::<u64>() }
}

fn text(text: &str, out: &mut Vec<u8>) {
    if text.len() <= TEXT_BYTES_MAX {
        return push(text, None, out);
    }
    let hash = FixedState::with_seed(0).hash_one(text);
    push(&text[..text.floor_char_boundary(TEXT_BYTES_MAX)], Some(hash), out);
}

fn push(text: &str, hash: Option<u64>, out: &mut Vec<u8>) {
    let flag = if hash.is_some() { SHORTENED } else { 0 };
    out.push(text.len() as u8 | flag);
    out.extend_from_slice(text.as_bytes());
    out.extend(hash.into_iter().flat_map(u64::to_ne_bytes));
}

/// The next text, and whether it is shortened.
fn decode(rest: &mut &[u8]) -> Option<(String, bool)> {
    let length = *rest.split_off_first()?;
    let text = rest.split_off(..usize::from(length & !SHORTENED))?;
    let is_shortened = length & SHORTENED != 0;
    if is_shortened {
        rest.split_off(..size_of::<u64>())?;
    }
    Some((String::from_utf8_lossy(text).into_owned(), is_shortened))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(domain: &str, entries: &[(&str, &str)]) -> SketchKey {
        let entries: Vec<_> = entries.iter().map(|&(key, value)| Entry { key, value }).collect();
        let mut bytes = Vec::new();
        encode(domain, &entries, &mut bytes);
        assert!(bytes.len() <= KEY_BYTES_MAX, "{}", bytes.len());
        SketchKey::new(&bytes, Some(&"rule".into()))
    }

    #[test]
    fn texts_are_kept_and_long_ones_shortened() {
        let long = "é".repeat(100);
        let (domain, entries) = key("shop", &[("user", "ann"), ("path", &long)]).texts();
        let entry = |key: &str, value: &str, is_shortened| KeyEntry {
            key: key.into(),
            value: value.into(),
            is_shortened,
        };
        assert_eq!(domain, "shop");
        assert_eq!(entries, [entry("user", "ann", false), entry("path", &"é".repeat(32), true)]);
    }

    #[test]
    fn different_keys_stay_different_however_long_they_are() {
        let text = |last: char| "x".repeat(8_000) + &last.to_string();
        let (one, other) = (text('1'), text('2'));
        assert_ne!(key("d", &[("k", &one)]), key("d", &[("k", &other)]));
        let many = |last| {
            let mut entries = vec![("key", "value"); 31];
            entries.push(("key", last));
            key("d", &entries)
        };
        assert_ne!(many("1"), many("2"));
        assert_eq!(many("1"), many("1"));
        let longest = vec![(&*one, &*one); 32];
        assert_eq!(key(&one, &longest).texts().1.last().map(|entry| &*entry.value), Some(""));
    }
}
