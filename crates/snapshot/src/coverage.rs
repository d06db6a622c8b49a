//! The keys that are already read while a snapshot is read from its newest page to its oldest.
//!
//! A page has every counter of its keys. In reverse order, the keys of a newer page are settled, and an older page adds only the others.

use hashbrown::HashMap;
use tidegate_core::store::{Key, PageKeys};

/// The settled keys of one shard.
#[derive(Default)]
pub(super) struct Coverage {
    /// `true`: all of these keys. `false`: some of them, see the halves.
    settled: HashMap<PageKeys, bool, foldhash::fast::FixedState>,
}

/// The part of a page that is new.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Novelty {
    /// Everything: no newer page has any of its keys.
    All,
    /// The keys that are not yet settled, to be checked one by one.
    Some,
    /// Nothing.
    None,
}

impl Coverage {
    /// The new part of a page with these keys.
    pub(super) fn novelty(&self, keys: PageKeys) -> Novelty {
        let wholes = std::iter::successors(Some(keys), |keys| keys.whole());
        if wholes.into_iter().any(|keys| self.settled.get(&keys) == Some(&true)) {
            return Novelty::None;
        }
        if self.settled.contains_key(&keys) { Novelty::Some } else { Novelty::All }
    }

    /// Whether the key is settled.
    pub(super) fn contains(&self, key: Key) -> bool {
        let mut keys = PageKeys::ALL;
        loop {
            match self.settled.get(&keys) {
                Some(true) => return true,
                Some(false) => {
                    let half = keys.half(false);
                    keys = if half.contain(key) { half } else { keys.half(true) };
                }
                None => return false,
            }
        }
    }

    /// Settles the keys.
    pub(super) fn settle(&mut self, keys: PageKeys) {
        self.settled.insert(keys, true);
        for whole in std::iter::successors(keys.whole(), |keys| keys.whole()) {
            if self.settled.contains_key(&whole) {
                break;
            }
            self.settled.insert(whole, false);
        }
    }

    /// Whether every key of the shard is settled.
    pub(super) fn is_complete(&self) -> bool {
        let mut open = vec![PageKeys::ALL];
        while let Some(keys) = open.pop() {
            match self.settled.get(&keys) {
                Some(true) => {}
                Some(false) => open.extend([keys.half(false), keys.half(true)]),
                None => return false,
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn coverage_knows_each_key_that_was_settled_and_no_other(
            pages in prop::collection::vec((0..=4u32, 0..16u32), 0..20),
        ) {
            let mut coverage = Coverage::default();
            let mut settled = [false; 16];
            for (depth, bits) in pages {
                let keys = PageKeys { depth, bits: bits & ((1 << depth) - 1) };
                let of_page = |place: &u64| keys.contain(Key::from_halves(0, *place));
                let new = (0..16).filter(of_page).filter(|&place| !settled[place as usize]).count();
                match coverage.novelty(keys) {
                    Novelty::All => prop_assert_eq!(new, 16 >> depth),
                    Novelty::None => prop_assert_eq!(new, 0),
                    Novelty::Some => {}
                }
                coverage.settle(keys);
                (0..16).filter(of_page).for_each(|place| settled[place as usize] = true);
                for place in 0..16 {
                    prop_assert_eq!(coverage.contains(Key::from_halves(9, place)), settled[place as usize]);
                }
                prop_assert_eq!(coverage.is_complete(), settled.iter().all(|settled| *settled));
            }
        }
    }
}
