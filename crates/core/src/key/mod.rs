//! The key of a counter: a 128-bit fingerprint (SipHash-1-3) of its texts, under a secret.
//!
//! Every part is hashed with its length before it, so that no two lists of texts hash the same bytes. The secret is random, so
//! that a client can aim neither at a collision nor at one shard.
//!
//! Source of the hash: Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012.

mod siphash;

use siphash::SipHash;
use std::fmt;

/// The secret of the fingerprints: random, made once, kept with the snapshot.
#[derive(Clone, PartialEq, Eq)]
pub struct Seed([u8; 16]);

impl Seed {
    /// A new secret from the operating system.
    pub fn random() -> Result<Self, getrandom::Error> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes)?;
        Ok(Self(bytes))
    }

    /// A known secret, from a snapshot or for a test.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The secret, to be kept.
    pub const fn to_bytes(&self) -> [u8; 16] {
        self.0
    }
}

/// Does not print the secret.
impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(…)")
    }
}

/// A counter's key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Key {
    high: u64,
    low: u64,
}

impl Key {
    /// From two halves, as in a snapshot.
    pub const fn from_halves(high: u64, low: u64) -> Self {
        Self { high, low }
    }

    /// The two halves.
    pub const fn halves(self) -> (u64, u64) {
        (self.high, self.low)
    }

    /// The first bits, at most 32: the shard.
    #[inline]
    pub(crate) const fn leading_bits(self, bits: u32) -> usize {
        (self.high >> (64 - bits)) as usize
    }

    /// Bits for the place within a shard; independent of the shard's.
    #[inline]
    pub(crate) const fn page_bits(self) -> u64 {
        self.low
    }

    /// A byte that differs between most keys of one page.
    #[inline]
    pub(crate) const fn tag(self) -> u8 {
        self.high as u8
    }
}

/// An incomplete key: a hash to which parts are added. Copies are independent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Fingerprint(SipHash);

/// Does not print the state, which depends on the secret.
impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Fingerprint(…)")
    }
}

impl Fingerprint {
    /// Nothing hashed yet.
    #[inline]
    pub fn new(seed: &Seed) -> Self {
        Self(SipHash::new(&seed.0))
    }

    /// Adds a text: its length, then its bytes in whole words, the last filled up with zeros. No other text, and no two
    /// texts, add the same words.
    #[inline]
    pub fn text(&mut self, text: &str) {
        self.0.word(text.len() as u64);
        let (words, rest) = text.as_bytes().as_chunks::<8>();
        for word in words {
            self.0.word(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            // The last eight bytes of a text are read in one go, and what has been hashed of them is shifted out.
            self.0.word(match text.as_bytes().last_chunk::<8>() {
                Some(last) => u64::from_le_bytes(*last) >> (8 * (8 - rest.len())),
                None => short_word(rest),
            });
        }
    }

    /// Adds the concatenation of texts, then its length: where one text ends and the next begins makes no difference.
    pub fn joined<'t>(&mut self, texts: impl Iterator<Item = &'t str>) {
        let (mut word, mut length) = (0, 0_u64);
        for byte in texts.flat_map(str::bytes) {
            word |= u64::from(byte) << (8 * (length % 8));
            length += 1;
            if length.is_multiple_of(8) {
                self.0.word(word);
                word = 0;
            }
        }
        self.0.word(word);
        self.0.word(length);
    }

    /// Adds a number.
    #[inline]
    pub fn number(&mut self, number: u64) {
        self.0.word(number);
    }

    /// The key of all parts.
    #[inline]
    pub fn finish(self) -> Key {
        let (high, low) = self.0.finish();
        Key { high, low }
    }
}

/// One to seven bytes, filled up with zeros. The two reads may overlap: where they do, both have the same bytes.
#[inline]
fn short_word(bytes: &[u8]) -> u64 {
    let last = 8 * (bytes.len() - 1);
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(first), Some(rest)) => {
            u64::from(u32::from_le_bytes(*first)) | u64::from(u32::from_le_bytes(*rest)) << (last - 24)
        }
        _ => {
            let middle = bytes.len() / 2;
            u64::from(bytes[0])
                | u64::from(bytes[middle]) << (8 * middle)
                | u64::from(bytes[bytes.len() - 1]) << last
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(seed: u8, parts: &[&str]) -> Key {
        let mut fingerprint = Fingerprint::new(&Seed::from_bytes([seed; 16]));
        parts.iter().for_each(|part| fingerprint.text(part));
        fingerprint.finish()
    }

    /// The reference joins with `_`, so that (`a`, `b_c`) is (`a_b`, `c`) there.
    #[test]
    fn parts_whose_concatenations_are_equal_have_different_keys() {
        assert_ne!(key(1, &["a", "b_c"]), key(1, &["a_b", "c"]));
        assert_ne!(key(1, &["ab", ""]), key(1, &["a", "b"]));
        assert_ne!(key(1, &["a"]), key(2, &["a"]));
    }

    proptest! {
        #[test]
        fn lists_of_parts_that_differ_have_different_keys(
            one in prop::collection::vec(".{0,20}", 0..5), other in prop::collection::vec("[a\0]{0,20}", 0..5),
        ) {
            let (one, other): (Vec<&str>, Vec<&str>) =
                (one.iter().map(String::as_str).collect(), other.iter().map(String::as_str).collect());
            prop_assert_eq!(one == other, key(3, &one) == key(3, &other));
        }
    }

    #[test]
    fn a_part_is_hashed_as_its_length_and_its_bytes_filled_up_with_zeros() {
        let text = "abcdefghijklmnopqrstuvwxyz";
        for len in 0..=text.len() {
            let mut fingerprint = Fingerprint::new(&Seed::from_bytes([3; 16]));
            fingerprint.number(len as u64);
            for bytes in text.as_bytes()[..len].chunks(8) {
                let mut word = [0; 8];
                word[..bytes.len()].copy_from_slice(bytes);
                fingerprint.number(u64::from_le_bytes(word));
            }
            assert_eq!(key(3, &[&text[..len]]), fingerprint.finish());
        }
    }

    #[test]
    fn zeros_at_the_end_of_a_part_are_part_of_it() {
        assert_ne!(key(1, &["a"]), key(1, &["a\0"]));
        assert_ne!(key(1, &["abcdefgh"]), key(1, &["abcdefgh\0"]));
        assert_ne!(key(1, &[""]), key(1, &[]));
    }

    #[test]
    fn joined_texts_have_one_key_however_they_are_divided() {
        let joined = |texts: &[&str]| {
            let mut fingerprint = Fingerprint::new(&Seed::from_bytes([3; 16]));
            fingerprint.joined(texts.iter().copied());
            fingerprint.finish()
        };
        let text = "abcdefghijklmnopq";
        for at in 0..=text.len() {
            assert_eq!(joined(&[text]), joined(&[&text[..at], "", &text[at..]]));
            assert_ne!(joined(&[text]), joined(&[&text[..at], "\0", &text[at..]]));
        }
        assert_ne!(joined(&["abcdefgh"]), joined(&["abcdefgh\0"]));
        assert_ne!(joined(&[]), joined(&["\0"]));
    }

    /// Keys are in snapshots: they must stay what they are.
    #[test]
    fn a_key_never_changes_between_versions() {
        assert_eq!(
            key(7, &["edge", "remote_address", "10.0.0.1"]).halves(),
            (18_292_780_383_467_483_482, 2_712_912_739_102_194_997)
        );
    }
}
