use super::*;
use crate::algorithm::State;
use proptest::prelude::*;
use std::collections::{BTreeMap, HashMap};

/// Keys with few distinct tags and place bits, so that pages split often and tags agree by chance.
fn key(number: u64) -> Key {
    Key::from_halves(number % 5, number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17))
}

/// A counter with this number, of an odd number if it does not expire.
fn counter(number: u64) -> Counter {
    let expires = Timestamp::from_millis(if number.is_multiple_of(2) { 10_000 } else { 4_000_000_000_000 });
    Counter::new(State::Words([number, 0]), LimitId(0), expires)
}

/// A moment at which counters of even numbers have expired.
const LATER: Timestamp = Timestamp::from_millis(20_000);

proptest! {
    #[test]
    fn a_shard_equals_a_map(steps in prop::collection::vec((0..3000u64, 0..4u8), 1..4000)) {
        let mut shard = Shard::default();
        let mut map = HashMap::new();
        for (number, action) in steps {
            let key = key(number);
            match (shard.find(key), action) {
                (Some(place), 0) => {
                    let changed = counter(map[&key] + 1);
                    *shard.get_mut(place) = changed;
                    *map.get_mut(&key).unwrap() += 1;
                }
                (None, 0..=2) => {
                    prop_assert_eq!(shard.insert(key, counter(number), Timestamp::EPOCH), 0);
                    map.insert(key, number);
                }
                (_, 3) if number < 30 => {
                    let expected = map.len();
                    map.retain(|_, value| *value % 2 != 0);
                    let mut dropped = 0;
                    loop {
                        let swept = shard.sweep(3, LATER, |_, _| {});
                        dropped += swept.dropped;
                        if swept.finished { break; }
                    }
                    prop_assert_eq!(dropped, expected - map.len());
                }
                _ => {}
            }
        }
        prop_assert_eq!(shard.iter().count(), map.len());
        for (key, value) in map {
            let place = shard.find(key);
            prop_assert!(place.is_some());
            prop_assert_eq!(shard.get(place.unwrap()), &counter(value));
        }
    }
}

#[test]
fn a_page_takes_two_cache_lines() {
    assert_eq!(size_of::<Page>(), 128);
}

#[test]
fn a_place_takes_forty_bytes() {
    assert_eq!(size_of::<Place>(), 40);
}

#[test]
fn expired_counters_of_a_full_page_are_dropped_before_it_is_split() {
    let mut shard = Shard::default();
    for number in 0..PAGE_PLACES as u64 {
        assert_eq!(shard.insert(key(number), counter(number), Timestamp::EPOCH), 0);
    }
    assert_eq!(shard.insert(key(1000), counter(1000), LATER), PAGE_PLACES / 2);
    assert_eq!(shard.pages.len(), 1);
}

#[test]
fn keys_that_agree_in_their_last_bits_are_refused_before_they_take_much_memory() {
    for agreeing_bits in [16, 32, 64] {
        let mut shard = Shard::default();
        let key = |number: u64| Key::from_halves(number, number.checked_shl(agreeing_bits).unwrap_or(0));
        let insert =
            |shard: &mut Shard, number| shard.insert_foreign(key(number), counter(number), Timestamp::EPOCH);
        let refused = (0..).find(|&number| insert(&mut shard, number).is_err());
        assert_eq!(refused, Some(PAGE_PLACES as u64));
        assert!(shard.directory.len() <= 1_024, "{} places", shard.directory.len());
        assert!((0..PAGE_PLACES as u64).all(|number| shard.find(key(number)).is_some()));
    }
}

#[test]
fn a_counter_is_swept_once_it_counts_nothing_and_not_before() {
    let mut shard = Shard::default();
    let key = Key::from_halves(1, 1);
    let counter = Counter::new(State::Words([1, 1]), LimitId(0), Timestamp::from_millis(10_500));
    shard.insert(key, counter, Timestamp::EPOCH);
    assert_eq!(shard.sweep(8, Timestamp::from_millis(10_999), |_, stays| assert!(stays)).dropped, 0);
    assert_eq!(shard.sweep(8, Timestamp::from_millis(11_000), |_, stays| assert!(!stays)).dropped, 1);
    assert!(shard.find(key).is_none());
}

/// Continues the pass by one step; starts the next one after the last.
fn step(shard: &mut Shard, next: &mut usize, kept: &mut BTreeMap<Key, State>) -> bool {
    let mut copies = PageCopies::new();
    let to = shard.copy_pages(*next, Wanted::Changed, &mut copies);
    for (keys, counters) in copies.iter() {
        kept.retain(|&key, _| !keys.contain(key));
        kept.extend(counters.iter().map(|(key, counter)| (*key, counter.state().into_owned())));
    }
    *next = to.unwrap_or(0);
    to.is_none()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn copies_of_changed_pages_in_the_order_of_copying_make_the_whole(
        steps in prop::collection::vec((0..1500u64, 0..20u8), 1..2000),
    ) {
        let (mut shard, mut kept, mut expected, mut next) =
            (Shard::default(), BTreeMap::new(), BTreeMap::new(), 0);
        for (index, (number, action)) in (0..).zip(steps) {
            if action == 0 {
                step(&mut shard, &mut next, &mut kept);
                continue;
            }
            expected.insert(key(number), State::Words([index, 0]));
            match shard.find(key(number)) {
                Some(place) => *shard.get_mut(place) = counter(index),
                None => drop(shard.insert(key(number), counter(index), Timestamp::EPOCH)),
            }
        }
        // The pass in progress, and another for pages that changed behind it.
        for _ in 0..2 {
            while !step(&mut shard, &mut next, &mut kept) {}
        }
        prop_assert_eq!(kept, expected);
    }
}

#[test]
fn an_unchanged_page_is_not_copied_again() {
    let mut shard = Shard::default();
    for number in 0..200 {
        shard.insert(key(number), counter(number), Timestamp::EPOCH);
    }
    let copied = |shard: &mut Shard, wanted| {
        let (mut copies, mut next, mut pages) = (PageCopies::new(), Some(0), 0);
        while let Some(from) = next {
            next = shard.copy_pages(from, wanted, &mut copies);
            pages += copies.iter().count();
        }
        pages
    };
    let all = copied(&mut shard, Wanted::Changed);
    assert!(all >= 4);
    assert_eq!(copied(&mut shard, Wanted::Changed), 0);
    let place = shard.find(key(7)).unwrap();
    *shard.get_mut(place) = counter(1);
    assert_eq!(copied(&mut shard, Wanted::Changed), 1);
    assert_eq!(copied(&mut shard, Wanted::All), all);
}

#[test]
fn a_half_knows_its_whole() {
    let keys = PageKeys { depth: 3, bits: 0b101 };
    assert_eq!(keys.half(true), PageKeys { depth: 4, bits: 0b1101 });
    assert_eq!(keys.half(true).whole(), Some(keys));
    assert_eq!(keys.half(false).whole(), Some(keys));
    assert_eq!(PageKeys::ALL.whole(), None);
}
