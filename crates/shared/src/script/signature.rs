//! The parameters of a limit as the script reads them.
//!
//! They begin with the signature: the parameters on which the meaning of a state depends, which is stored with each state. A state
//! with another signature is converted by the script.

use smallvec::SmallVec;
use std::time::Duration;
use tidegate_core::{
    algorithm::{Algorithm, Calendar, FixedWindow, LeakyBucket, Period, Rate, Refill, Schedule, TokenBucket},
    limit::{Timestamp, Window},
};

pub(super) const NANOS: u64 = 1_000;

/// The signature of limits of requests in flight, with its length before it.
pub(super) const SLOT_SIGNATURE: &[u8] = b"\x01N";

/// Bytes that most limits take.
pub(super) type Bytes = SmallVec<[u8; 48]>;

/// Difference between the clocks of a server and of the store that a calendar allows.
const CLOCK_DIFFERENCE: Duration = Duration::from_hours(1);

/// The rate of a meter in lowest terms: `hits` in every `micros`.
#[derive(Clone, Copy)]
pub(super) struct MicroRate {
    pub(super) hits: u64,
    pub(super) micros: u64,
    /// Parts of a nanosecond, as [`Rate`] counts them, in a part of a microsecond.
    pub(super) parts: u64,
}

impl MicroRate {
    pub(super) fn new(rate: Rate) -> Self {
        let (hits, nanos) = rate.to_parts();
        let (mut divisor, mut rest) = (nanos, hits * NANOS);
        while rest != 0 {
            (divisor, rest) = (rest, divisor % rest);
        }
        Self { hits: hits * NANOS / divisor, micros: nanos / divisor, parts: divisor }
    }
}

/// The rate of a limit that is a meter.
pub(super) fn meter(algorithm: &Algorithm) -> Option<MicroRate> {
    match algorithm {
        Algorithm::TokenBucket(TokenBucket { refill: Refill::Greedy(rate), .. })
        | Algorithm::LeakyBucket(LeakyBucket { rate, .. }) => Some(MicroRate::new(*rate)),
        _ => None,
    }
}

/// The signature, with its length before it.
pub(super) fn signature(algorithm: &Algorithm) -> Bytes {
    let mut bytes = Bytes::new();
    bytes.push(0);
    match algorithm {
        Algorithm::SlidingWindow(sliding) => write(&mut bytes, b'W', &[micros(sliding.window)]),
        Algorithm::SubWindows(sub) => {
            write(&mut bytes, b'S', &[number(sub.length_nanos().get() / NANOS)]);
            bytes.push(sub.precision());
        }
        Algorithm::SlidingLog(log) => write(&mut bytes, b'G', &[micros(log.window)]),
        Algorithm::FixedWindow(FixedWindow { schedule, .. }) => match schedule {
            Schedule::Clock(window) => write(&mut bytes, b'C', &[micros(*window)]),
            Schedule::FirstHit(window) => write(&mut bytes, b'H', &[micros(*window)]),
            Schedule::Calendar(calendar) => {
                bytes.push(b'K');
                bytes.push(period(calendar.period()));
                bytes.extend_from_slice(calendar.zone().name().as_bytes());
            }
        },
        // Each slot has its own deadline.
        Algorithm::Concurrency(_) => bytes.push(b'N'),
        // Refused where rules are read; no value in a store has this letter.
        Algorithm::Ban(_) => bytes.push(b'B'),
        Algorithm::TokenBucket(TokenBucket { refill, .. }) => match refill {
            Refill::Greedy(rate) => write_rate(&mut bytes, b'T', *rate),
            Refill::Intervals { tokens, interval } => {
                write(&mut bytes, b'I', &[micros(*interval), f64::from(tokens.get())]);
            }
        },
        Algorithm::LeakyBucket(LeakyBucket { rate, .. }) => write_rate(&mut bytes, b'L', *rate),
    }
    // The names of time zones are the longest part, and much shorter.
    bytes[0] = u8::try_from(bytes.len() - 1).expect("a signature is shorter than 256 bytes");
    bytes
}

/// The signature and the other parameters. `now` is that of this machine, which need not be that of the store.
pub(super) fn parameters(algorithm: &Algorithm, now: Timestamp) -> Bytes {
    let mut bytes = signature(algorithm);
    match algorithm {
        Algorithm::SubWindows(sub) => {
            write_numbers(&mut bytes, &[f64::from(sub.limit / u32::from(sub.precision()))]);
        }
        Algorithm::SlidingLog(log) => write_numbers(&mut bytes, &[f64::from(log.limit)]),
        Algorithm::Concurrency(slots) => {
            write_numbers(&mut bytes, &[f64::from(slots.limit), micros(slots.max_hold)]);
        }
        Algorithm::FixedWindow(FixedWindow { schedule: Schedule::Calendar(calendar), .. }) => {
            write_numbers(&mut bytes, &ends(calendar, now));
        }
        _ => {}
    }
    bytes
}

/// The time from which on the ends of a calendar are known, and the three ends after it.
fn ends(calendar: &Calendar, now: Timestamp) -> [f64; 4] {
    let begin = Timestamp::from_nanos(now.as_nanos().saturating_sub(CLOCK_DIFFERENCE.as_nanos() as u64));
    let first = calendar.end(begin);
    let second = calendar.end(first);
    [begin, first, second, calendar.end(second)].map(|at| number(at.as_nanos() / NANOS))
}

fn period(period: Period) -> u8 {
    match period {
        Period::Day => b'd',
        Period::Week => b'w',
        Period::Month => b'm',
        Period::Year => b'y',
    }
}

fn write(bytes: &mut Bytes, kind: u8, numbers: &[f64]) {
    bytes.push(kind);
    write_numbers(bytes, numbers);
}

fn write_rate(bytes: &mut Bytes, kind: u8, rate: Rate) {
    let MicroRate { hits, micros, .. } = MicroRate::new(rate);
    write(bytes, kind, &[number(hits), number(micros)]);
}

fn write_numbers(bytes: &mut Bytes, numbers: &[f64]) {
    numbers.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
}

fn micros(window: Window) -> f64 {
    number(window.nanos().get() / NANOS)
}

/// Exact below 2^53, as all times and lengths in microseconds are.
fn number(number: u64) -> f64 {
    number as f64
}
