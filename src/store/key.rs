//! The key of a counter: a 128-bit keyed fingerprint of what it counts.
//!
//! Every part is hashed with its length before it, so that no two descriptors share bytes, and under a random secret, so
//! that a stranger can neither aim at a collision nor at one shard.

use siphasher::sip128::{Hasher128, SipHasher13};
use std::{fmt, hash::Hasher};

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

/// A secret is not printed.
impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed(…)")
    }
}

/// A counter's key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Key {
    high: u64,
    low: u64,
}

impl Key {
    /// From the two halves, as a snapshot keeps them.
    pub const fn from_halves(high: u64, low: u64) -> Self {
        Self { high, low }
    }

    /// The two halves.
    pub const fn halves(self) -> (u64, u64) {
        (self.high, self.low)
    }

    /// The first bits, at most 32: the shard.
    #[inline]
    pub(super) const fn leading_bits(self, bits: u32) -> usize {
        (self.high >> (64 - bits)) as usize
    }

    /// Bits for the place within a shard; independent of the shard's.
    #[inline]
    pub(super) const fn place_bits(self) -> u64 {
        self.low
    }

    /// A byte that tells most of the keys of one page apart.
    #[inline]
    pub(super) const fn tag(self) -> u8 {
        self.high as u8
    }
}

/// Bytes that are hashed in one go; longer descriptors are hashed piece by piece, to the same key.
const BUFFER_BYTES: usize = 128;

/// A key in the making.
pub struct Fingerprint {
    hasher: SipHasher13,
    buffer: [u8; BUFFER_BYTES],
    filled: usize,
}

impl Fingerprint {
    /// Nothing hashed yet.
    #[inline]
    pub fn new(seed: &Seed) -> Self {
        Self { hasher: SipHasher13::new_with_key(&seed.0), buffer: [0; BUFFER_BYTES], filled: 0 }
    }

    /// Adds one part, its length first.
    #[inline]
    pub fn text(&mut self, text: &str) {
        self.number(text.len() as u32);
        self.bytes(text.as_bytes());
    }

    /// Adds a number.
    #[inline]
    pub fn number(&mut self, number: u32) {
        self.bytes(&number.to_le_bytes());
    }

    #[inline]
    fn bytes(&mut self, bytes: &[u8]) {
        if let Some(room) = self.buffer[self.filled..].get_mut(..bytes.len()) {
            room.copy_from_slice(bytes);
            self.filled += bytes.len();
        } else {
            self.flush();
            self.hasher.write(bytes);
        }
    }

    #[inline]
    fn flush(&mut self) {
        self.hasher.write(&self.buffer[..self.filled]);
        self.filled = 0;
    }

    /// The key of all parts.
    #[inline]
    pub fn finish(mut self) -> Key {
        self.flush();
        let hash = self.hasher.finish128();
        Key { high: hash.h1, low: hash.h2 }
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
    fn parts_that_join_alike_have_different_keys() {
        assert_ne!(key(1, &["a", "b_c"]), key(1, &["a_b", "c"]));
        assert_ne!(key(1, &["ab", ""]), key(1, &["a", "b"]));
        assert_ne!(key(1, &["a"]), key(2, &["a"]));
    }

    proptest! {
        #[test]
        fn a_key_does_not_depend_on_how_parts_fall_into_the_buffer(
            parts in prop::collection::vec(".{0,300}", 1..6),
        ) {
            let mut whole = Vec::new();
            for part in &parts {
                whole.extend_from_slice(&(part.len() as u32).to_le_bytes());
                whole.extend_from_slice(part.as_bytes());
            }
            let mut hasher = SipHasher13::new_with_key(&[3; 16]);
            hasher.write(&whole);
            let hash = hasher.finish128();
            let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
            prop_assert_eq!(key(3, &parts), Key { high: hash.h1, low: hash.h2 });
        }
    }
}
