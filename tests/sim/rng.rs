//! Reproducible random choices: from a seed, or from the bytes of a fuzzer.

use std::collections::VecDeque;

pub enum Rng {
    /// SplitMix64.
    Seed(u64),
    /// Bytes not yet used. Once none are left, every choice is the first.
    Bytes(VecDeque<u8>),
}

impl Rng {
    pub fn of_seed(seed: u64) -> Self {
        Self::Seed(seed)
    }

    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self::Bytes(bytes.iter().copied().collect())
    }

    /// The next number. Takes as many bytes as a number below the bound needs.
    fn next(&mut self, bound: u64) -> u64 {
        match self {
            Self::Seed(state) => {
                *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut mixed = *state;
                mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                mixed ^ (mixed >> 31)
            }
            Self::Bytes(bytes) => {
                let needed = (bound - 1).checked_ilog2().map_or(0, |bits| bits as usize / 8 + 1);
                bytes.drain(..needed.min(bytes.len())).fold(0, |number, byte| number << 8 | u64::from(byte))
            }
        }
    }

    /// A number below the bound, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next(bound) % bound
    }

    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    /// True with probability `1 / times`.
    pub fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }
}
