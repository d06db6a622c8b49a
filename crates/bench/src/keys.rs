//! Distributions of the keys of requests: in order, uniform, or Zipf.

/// Pseudo-random numbers (SplitMix64), reproducible by seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn from_seed(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Uniform in `0..bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // The high half of the product. Its bias is less than bound / 2^64, which is negligible.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Uniform in `0..1`.
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Distribution over the keys `0..count`.
#[derive(Clone, Debug)]
pub enum Keys {
    /// Equal probabilities.
    Uniform {
        /// Number of keys.
        count: u64,
    },
    /// Key k in proportion to 1 / (k + 1)^exponent.
    Zipf(Zipf),
    /// 0, 1, 2, ..., then again from 0.
    InOrder {
        /// Number of keys.
        count: u64,
        /// The next key.
        next: u64,
    },
}

impl Keys {
    /// Draws from `count` > 0 keys; `zipf` is the exponent, positive.
    pub fn new(count: u64, zipf: Option<f64>) -> Self {
        match zipf {
            Some(exponent) => Self::Zipf(Zipf::new(count, exponent)),
            None => Self::Uniform { count },
        }
    }

    /// Cycles through `count` > 0 keys.
    pub fn in_order(count: u64) -> Self {
        Self::InOrder { count, next: 0 }
    }

    pub(crate) fn draw(&mut self, random: &mut Random) -> u64 {
        match self {
            Self::Uniform { count } => random.below(*count),
            Self::Zipf(zipf) => zipf.draw(random),
            Self::InOrder { count, next } => {
                let key = *next;
                *next = (key + 1) % *count;
                key
            }
        }
    }
}

/// Draws from a Zipf distribution in constant time and memory, by rejection-inversion (Hörmann and Derflinger, 1996). Draws a point below a
/// smooth curve over the ranks, and rejects it in the rare case that it is above the step of its rank.
#[derive(Clone, Debug)]
pub struct Zipf {
    count: f64,
    exponent: f64,
    /// Start of the area below the curve.
    area_start: f64,
    /// End of that area.
    area_end: f64,
    /// Distance from a rank within which every point is below the rank's step.
    accept_within: f64,
}

impl Zipf {
    fn new(count: u64, exponent: f64) -> Self {
        let mut zipf =
            Self { count: count as f64, exponent, area_start: 0.0, area_end: 0.0, accept_within: 0.0 };
        zipf.area_start = zipf.area(1.5) - 1.0;
        zipf.area_end = zipf.area(zipf.count + 0.5);
        zipf.accept_within = 2.0 - zipf.area_inverse(zipf.area(2.5) - zipf.step(2.0));
        zipf
    }

    fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.area_end + random.unit() * (self.area_start - self.area_end);
            let point = self.area_inverse(area);
            let rank = point.round().clamp(1.0, self.count);
            if rank - point <= self.accept_within || area >= self.area(rank + 0.5) - self.step(rank) {
                return rank as u64 - 1;
            }
        }
    }

    /// Height of the curve; at a rank, its weight.
    fn step(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// Integral of the curve from 1 to x, in a form that needs no special case for the exponent 1.
    fn area(&self, x: f64) -> f64 {
        let log = x.ln();
        let bend = (1.0 - self.exponent) * log;
        log * if bend.abs() > 1e-8 { bend.exp_m1() / bend } else { 1.0 + bend / 2.0 }
    }

    fn area_inverse(&self, area: f64) -> f64 {
        // Rounding may give a value below -1, for which the logarithm is undefined.
        let bend = (area * (1.0 - self.exponent)).max(-1.0);
        (area * if bend.abs() > 1e-8 { bend.ln_1p() / bend } else { 1.0 - bend / 2.0 }).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DRAWS: u64 = 400_000;

    fn counts(mut keys: Keys, count: usize) -> Vec<u64> {
        let mut random = Random::from_seed(1);
        let mut counts = vec![0; count];
        for _ in 0..DRAWS {
            counts[usize::try_from(keys.draw(&mut random)).expect("a small key")] += 1;
        }
        counts
    }

    /// Within five standard deviations of the expectation.
    fn assert_near(drawn: u64, probability: f64, what: &str) {
        let expected = DRAWS as f64 * probability;
        let deviation = (expected * (1.0 - probability)).sqrt();
        assert!((drawn as f64 - expected).abs() < 5.0 * deviation, "{what}: {drawn}, expected {expected:.0}");
    }

    #[test]
    fn uniform_keys_are_drawn_equally_often() {
        for (key, drawn) in counts(Keys::new(10, None), 10).into_iter().enumerate() {
            assert_near(drawn, 0.1, &format!("key {key}"));
        }
    }

    #[test]
    fn zipf_keys_are_drawn_in_proportion_to_their_weight() {
        for exponent in [0.5, 0.99, 1.0, 1.2, 3.0] {
            let weight = |rank: usize| (rank as f64).powf(-exponent);
            let total: f64 = (1..=1000).map(weight).sum();
            let counts = counts(Keys::new(1000, Some(exponent)), 1000);
            for rank in [1, 2, 3, 4, 5, 10, 20, 50, 100, 500, 1000] {
                assert_near(counts[rank - 1], weight(rank) / total, &format!("s {exponent}, rank {rank}"));
            }
        }
    }

    #[test]
    fn keys_in_order_cycle() {
        let (mut random, mut keys) = (Random::from_seed(1), Keys::in_order(3));
        assert_eq!([(); 7].map(|()| keys.draw(&mut random)), [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn one_key_is_always_that_key_and_huge_counts_stay_in_range() {
        let mut random = Random::from_seed(2);
        for mut keys in [Keys::new(1, None), Keys::new(1, Some(1.0)), Keys::new(1, Some(2.5))] {
            assert!((0..1000).all(|_| keys.draw(&mut random) == 0), "{keys:?}");
        }
        for mut keys in [Keys::new(1 << 40, None), Keys::new(1 << 40, Some(1.0))] {
            let largest = (0..10_000).map(|_| keys.draw(&mut random)).max();
            assert!(largest < Some(1 << 40) && largest > Some(1 << 30), "{keys:?}: {largest:?}");
        }
    }
}
