use super::*;
use crate::{algorithm::SlidingWindow, limit::Window};
use proptest::prelude::*;

fn info(number: u32) -> LimitInfo {
    let identity = LimitIdentity { domain: "d".into(), path: number.to_string().into(), tag: 0 };
    let window = Window::from_secs(1).unwrap();
    LimitInfo { identity, algorithm: Algorithm::SlidingWindow(SlidingWindow { limit: number, window }) }
}

#[test]
fn a_number_is_freed_once_neither_a_rule_set_nor_a_counter_has_it() {
    let table = LimitTable::default();
    let in_rules = table.register_used(info(0));
    let (of_counter, of_nothing) = (table.register(info(1)), table.register(info(2)));
    assert_eq!(table.collect(|mark| mark(of_counter)), Some(1));
    assert_eq!(table.get(of_nothing), None);
    assert_eq!(table.get(in_rules.id).as_deref(), Some(&info(0)));
    assert_eq!(table.get(of_counter).as_deref(), Some(&info(1)));
    assert_eq!(table.register(info(3)), of_nothing, "the number is used again");
    drop(in_rules);
    assert_eq!(table.collect(|_| ()), Some(3));
    assert_eq!(table.to_vec(), []);
}

#[test]
fn a_limit_that_returns_to_the_rules_while_counters_are_searched_keeps_its_number() {
    let table = LimitTable::default();
    let id = table.register(info(0));
    // The rule set is gone again before the numbers are freed, but counters may have got the number from it.
    assert_eq!(table.collect(|_| drop(table.register_used(info(0)))), Some(0));
    assert_eq!(table.get(id).as_deref(), Some(&info(0)));
    assert_eq!(table.collect(|_| ()), Some(1));
}

#[test]
fn a_pinned_table_shows_that_numbers_were_used_again() {
    let table = LimitTable::default();
    let ids = [table.register_used(info(0)).id, table.register(info(1))];
    let freed = table.pin().freed();
    let kept = table.register_used(info(0));
    assert_eq!(table.pin().table.collect(|_| ()), None, "pinned");
    assert_eq!(table.collect(|_| ()), Some(1));
    let reused = table.register(info(2));
    assert_eq!((kept.id, reused), (ids[0], ids[1]));
    assert_ne!(table.pin().freed(), freed);
}

proptest! {
    /// Rule sets are built and dropped, counters are made under the rule set in force and expire, in any order.
    #[test]
    fn no_counter_loses_the_limit_it_was_counted_under(
        steps in prop::collection::vec((0..5u8, 0..12u32), 1..200),
    ) {
        let table = LimitTable::default();
        let mut rule_sets: Vec<Vec<(u32, Registered)>> = Vec::new();
        let mut counters: Vec<(u32, LimitId)> = Vec::new();
        for (action, number) in steps {
            match action {
                0 => {
                    let limits = number..number + 3;
                    rule_sets.push(limits.map(|limit| (limit, table.register_used(info(limit)))).collect());
                }
                1 if !rule_sets.is_empty() => _ = rule_sets.remove(number as usize % rule_sets.len()),
                2 => counters.extend(rule_sets.last().map(|set| (set[0].0, set[0].1.id))),
                3 if !counters.is_empty() => _ = counters.remove(number as usize % counters.len()),
                _ => {
                    table.collect(|mark| {
                        // A reload and a decision in the middle of the search, behind the point it has reached.
                        counters.iter().for_each(|(_, id)| mark(*id));
                        let limit = table.register_used(info(number));
                        counters.push((number, limit.id));
                    });
                }
            }
            for (number, id) in &counters {
                prop_assert_eq!(table.get(*id), Some(Arc::new(info(*number))));
            }
            for (number, registered) in rule_sets.iter().flatten() {
                prop_assert_eq!(table.get(registered.id), Some(Arc::new(info(*number))));
            }
        }
    }
}
