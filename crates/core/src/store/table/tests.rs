use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

/// Keys with few distinct tags and place bits, so that pages split often and tags agree by chance.
fn key(number: u64) -> Key {
    Key::from_halves(number % 5, number.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17))
}

proptest! {
    #[test]
    fn a_table_equals_a_map(steps in prop::collection::vec((0..3000u64, 0..4u8), 1..4000)) {
        let mut table = Table::default();
        let mut map = HashMap::new();
        for (number, action) in steps {
            let key = key(number);
            match (table.find(key), action) {
                (Some(place), 0) => {
                    *table.get_mut(place) += 1;
                    *map.get_mut(&key).unwrap() += 1;
                }
                (None, 0..=2) => {
                    prop_assert_eq!(table.insert(key, number, |_| true), Ok(0));
                    map.insert(key, number);
                }
                (_, 3) if number < 30 => {
                    let expected = map.len();
                    map.retain(|_, value| *value % 7 != 0);
                    let mut dropped = 0;
                    loop {
                        let swept = table.sweep(3, |value| *value % 7 != 0);
                        dropped += swept.dropped;
                        if swept.finished { break; }
                    }
                    prop_assert_eq!(dropped, expected - map.len());
                }
                _ => {}
            }
        }
        prop_assert_eq!(table.iter().count(), map.len());
        for (key, value) in map {
            let place = table.find(key);
            prop_assert!(place.is_some());
            prop_assert_eq!(table.get(place.unwrap()).value, value);
        }
    }
}

#[test]
fn a_page_takes_two_cache_lines() {
    assert_eq!(size_of::<Page<Counter>>(), 128);
}

#[test]
fn rejected_places_of_a_full_page_are_dropped_before_it_is_split() {
    let mut table = Table::default();
    for number in 0..PAGE_PLACES as u64 {
        assert_eq!(table.insert(key(number), number, |_| true), Ok(0));
    }
    assert_eq!(table.insert(key(1000), 1000, |value| value % 2 == 0), Ok(PAGE_PLACES / 2));
    assert_eq!(table.pages.len(), 1);
}

#[test]
fn keys_that_agree_in_their_last_bits_are_refused_before_they_take_much_memory() {
    for agreeing_bits in [16, 32, 64] {
        let mut table = Table::default();
        let key = |number: u64| Key::from_halves(number, number.checked_shl(agreeing_bits).unwrap_or(0));
        let refused = (0..).find(|&number| table.insert(key(number), number, |_| true).is_err());
        assert_eq!(refused, Some(PAGE_PLACES as u64));
        assert!(table.directory.len() <= 1_024, "{} places", table.directory.len());
        assert!((0..PAGE_PLACES as u64).all(|number| table.find(key(number)).is_some()));
    }
}
