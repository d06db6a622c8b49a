//! Worked cases of windows by the clock, from the first hit, and of a calendar.

use super::*;
use crate::algorithm::{Period, Zone};

const LIMIT: u32 = 5;

fn ten_seconds() -> Window {
    Window::from_secs(10).unwrap()
}

fn on_the_clock() -> FixedWindow {
    FixedWindow::on_the_clock(LIMIT, ten_seconds())
}

fn from_first_hit() -> FixedWindow {
    FixedWindow { limit: LIMIT, schedule: Schedule::FirstHit(ten_seconds()) }
}

fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + millis)
}

/// field.md, worked case: windows of 10 s start at multiples of 10 s, the count resets at the end, and two bursts
/// across the boundary add up to twice the limit.
#[test]
fn windows_start_on_the_clock_and_two_bursts_pass_around_a_boundary() {
    let rule = on_the_clock();
    let full = rule.add(State::EMPTY, 5, at(9_999));
    assert_eq!(rule.remaining(&full, at(9_999)), 0);
    assert_eq!(rule.until_admits(&full, 1, at(9_999)), Reset::After(Duration::from_millis(1)));
    assert_eq!(rule.remaining(&full, at(10_000)), 5);
    let second = rule.add(full.clone(), 5, at(10_000));
    assert_eq!(rule.remaining(&second, at(19_999)), 0);
    assert_eq!(rule.until_full(&second, at(12_500)), Duration::from_millis(7_500));
}

/// field.md, worked case: a window started by the first hit.
#[test]
fn a_window_from_the_first_hit_lasts_its_whole_length_from_there() {
    let rule = from_first_hit();
    let first = rule.add(State::EMPTY, 1, at(7_000));
    let full = rule.add(first, 4, at(16_000));
    assert_eq!(rule.until_admits(&full, 1, at(16_000)), Reset::After(Duration::from_secs(1)));
    let next = rule.add(full, 1, at(17_000));
    assert_eq!(rule.remaining(&next, at(17_000)), 4);
    assert_eq!(rule.until_full(&next, at(17_000)), Duration::from_secs(10));
}

#[test]
fn a_first_hit_that_is_given_back_opens_no_window() {
    let rule = from_first_hit();
    let state = rule.give_back(rule.add(State::EMPTY, 1, at(0)), 1, at(1_000));
    let state = rule.add(state, 1, at(9_000));
    assert_eq!(rule.until_full(&state, at(9_000)), Duration::from_secs(10));
}

#[test]
fn a_calendar_month_ends_with_the_month_of_the_place() {
    let calendar = Calendar::new(Period::Month, Zone::named("America/New_York").unwrap());
    let rule = FixedWindow { limit: LIMIT, schedule: Schedule::Calendar(calendar) };
    // 2024-02-28T23:59:59-05:00 in a leap year; the month ends at 2024-03-01T05:00:00Z.
    let now = Timestamp::from_millis(1_709_182_799_000);
    let full = rule.add(State::EMPTY, 5, now);
    assert_eq!(rule.until_admits(&full, 1, now), Reset::After(Duration::from_secs(86_401)));
    assert_eq!(rule.until_window_ends(&State::EMPTY, now), Duration::from_secs(86_401));
}

#[test]
fn a_clock_set_back_neither_frees_hits_nor_panics() {
    for rule in [on_the_clock(), from_first_hit()] {
        let full = rule.add(State::EMPTY, 5, at(10_000));
        assert_eq!(rule.remaining(&full, at(0)), 0);
        assert_eq!(rule.until_admits(&full, 1, at(0)), Reset::After(Duration::from_secs(20)));
    }
}

#[test]
fn more_than_the_limit_is_never_admitted_and_counts_saturate() {
    let rule = on_the_clock();
    assert_eq!(rule.until_admits(&State::EMPTY, 6, at(0)), Reset::Never);
    let debt = rule.add(State::EMPTY, u64::MAX, at(0));
    assert_eq!(rule.used(&debt, at(0)), u64::from(u32::MAX));
    assert_eq!(rule.remaining(&debt, at(0)), 0);
    assert_eq!(rule.give_back(debt, u64::MAX, at(0)), State::EMPTY);
}

#[test]
fn the_last_window_of_time_does_not_free() {
    let now = Timestamp::from_nanos(u64::MAX);
    for rule in [on_the_clock(), from_first_hit()] {
        assert_eq!(rule.remaining(&rule.add(State::EMPTY, 5, now), now), 0);
    }
}

#[test]
fn hits_are_open_only_until_their_own_window_ends() {
    let window = Window::from_secs(10).unwrap();
    let at = |secs: u64| Timestamp::from_millis(1_700_000_000_000 + 1_000 * secs);
    for (schedule, ends) in [(Schedule::Clock(window), 10), (Schedule::FirstHit(window), 12)] {
        let fixed = FixedWindow { limit: 5, schedule };
        // Opened at 2 s; the hits in question are at 8 s.
        let state = fixed.add(fixed.add(State::EMPTY, 1, at(2)), 1, at(8));
        assert!(fixed.is_open_since(&state, at(8), at(ends - 1)));
        assert!(!fixed.is_open_since(&state, at(8), at(ends)));
        let next = fixed.add(state, 1, at(ends));
        assert!(!fixed.is_open_since(&next, at(8), at(ends)));
        assert!(fixed.is_open_since(&next, at(ends), at(ends + 1)));
    }
}

#[test]
fn hits_a_nanosecond_before_a_window_that_opened_with_its_first_hit_are_not_of_it() {
    let fixed = from_first_hit();
    let opened = at(2_000).as_nanos();
    let state = fixed.add(State::EMPTY, 1, Timestamp::from_nanos(opened));
    let is_open_since =
        |taken| fixed.is_open_since(&state, Timestamp::from_nanos(taken), Timestamp::from_nanos(opened));
    assert!(is_open_since(opened));
    assert!(!is_open_since(opened - 1));
}
