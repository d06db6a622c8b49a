//! SipHash-1-3 with a 128-bit result, over whole words.
//!
//! Every decision computes a key, mostly of texts of a word or two. With whole words as input no bytes have to be buffered,
//! and only the rounds are left. The result is that of any other SipHash-1-3 over the bytes of the words.

/// An incomplete hash. Copies are independent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct SipHash {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
    /// Words hashed so far. Only the last eight bits of their bytes' number count, so it may wrap.
    words: u64,
}

impl SipHash {
    /// Nothing hashed yet.
    #[inline]
    pub(super) fn new(secret: &[u8; 16]) -> Self {
        let secret = u128::from_le_bytes(*secret);
        let (k0, k1) = (secret as u64, (secret >> 64) as u64);
        // The constants that SipHash begins with, and its mark for a result of 128 bits.
        Self {
            v0: k0 ^ 0x736f_6d65_7073_6575,
            v1: k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
            v2: k0 ^ 0x6c79_6765_6e65_7261,
            v3: k1 ^ 0x7465_6462_7974_6573,
            words: 0,
        }
    }

    /// Adds eight bytes, the first in the lowest bits.
    #[inline]
    pub(super) fn word(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.v0 ^= word;
        self.words = self.words.wrapping_add(1);
    }

    /// Both halves of the result.
    #[inline]
    pub(super) fn finish(mut self) -> (u64, u64) {
        // The last word has the number of bytes in its highest byte, and below it the bytes that are left over, here none.
        self.word(self.words << 59);
        self.v2 ^= 0xee;
        let first = self.scramble();
        self.v1 ^= 0xdd;
        (first, self.scramble())
    }

    #[inline]
    fn scramble(&mut self) -> u64 {
        for _ in 0..3 {
            self.round();
        }
        self.v0 ^ self.v1 ^ self.v2 ^ self.v3
    }

    #[inline]
    fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.rotate_left(32);
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v2 = self.v2.rotate_left(32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use siphasher::sip128::{Hasher128, SipHasher13};
    use std::hash::Hasher;

    proptest! {
        #[test]
        fn the_result_is_that_of_siphash_over_the_bytes(
            secret: [u8; 16], words in prop::collection::vec(any::<u64>(), 0..70),
        ) {
            let (mut ours, mut theirs) = (SipHash::new(&secret), SipHasher13::new_with_key(&secret));
            for word in words {
                ours.word(word);
                theirs.write(&word.to_le_bytes());
            }
            let theirs = theirs.finish128();
            prop_assert_eq!(ours.finish(), (theirs.h1, theirs.h2));
        }
    }
}
