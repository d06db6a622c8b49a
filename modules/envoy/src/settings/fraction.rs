//! Fractions of requests, which runtime may change.

use std::cell::Cell;
use tidegate_envoy_abi::Host;
use tidegate_envoy_config::{Node, Problems};

/// A fraction of requests.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fraction {
    numerator: u32,
    denominator: u32,
    /// The key by which runtime replaces the fraction with percents; empty for none.
    runtime_key: String,
}

impl Fraction {
    /// A fraction of `numerator` percent, unless runtime has another under the key.
    pub(crate) fn percents(numerator: u32, key: &str) -> Self {
        Self { numerator, denominator: 100, runtime_key: key.to_owned() }
    }

    /// Reads a `RuntimeFractionalPercent`.
    pub(crate) fn read(node: &Node, problems: &Problems) -> Self {
        let default = node.node("default_value");
        if default.is_none() {
            problems.add(&node.path_of("default_value"), "is empty; set it");
        }
        let numerator = default.and_then(|node| node.unsigned("numerator")).unwrap_or(0);
        Self {
            numerator: u32::try_from(numerator).unwrap_or(u32::MAX),
            denominator: match default.map_or(0, |node| node.number_of("denominator")) {
                0 => 100,
                1 => 10_000,
                _ => 1_000_000,
            },
            runtime_key: node.text("runtime_key").to_owned(),
        }
    }

    /// Whether this request is in the fraction.
    pub(crate) fn has(&self, host: &dyn Host, random: &Fractions) -> bool {
        let key = Some(&*self.runtime_key).filter(|key| !key.is_empty());
        let (numerator, denominator) = match key.and_then(|key| host.runtime(key)) {
            Some(percentage) => (u32::try_from(percentage).unwrap_or(u32::MAX), 100),
            None => (self.numerator, self.denominator),
        };
        // No random number for what is certain.
        numerator >= denominator || (numerator > 0 && random.below(denominator) < numerator)
    }
}

/// Random numbers of one thread, for fractions; not secret.
#[derive(Debug)]
pub(crate) struct Fractions(Cell<u64>);

impl Fractions {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Cell::new(seed))
    }

    /// A number from 0, below the bound. Biased by less than one in 2^32, which no fraction shows.
    fn below(&self, bound: u32) -> u32 {
        // SplitMix64.
        let state = self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.0.set(state);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(mixed ^ (mixed >> 31)) * u128::from(bound)) >> 64) as u32
    }
}
