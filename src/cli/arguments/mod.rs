//! Arguments that several commands have.

pub(super) mod client_tls;
pub(super) mod rule_files;
pub(super) mod store_flags;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use std::{num::NonZeroUsize, time::Duration};

/// A name that an argument accepts, its description if it needs one, and its value.
pub(super) type Choice<T> = (&'static str, &'static str, T);

/// Parses the names of choices.
pub(super) fn choice<T: Copy + Send + Sync + 'static, const N: usize>(
    choices: [Choice<T>; N],
) -> impl TypedValueParser<Value = T> {
    let name = |(name, help, _)| match help {
        "" => PossibleValue::new(name),
        help => PossibleValue::new(name).help(help),
    };
    PossibleValuesParser::new(choices.map(name)).map(move |name| {
        let chosen = choices.iter().find(|(known, ..)| *known == name);
        chosen.expect("the parser has accepted no other name").2
    })
}

/// Parses an interval or timeout of at least 10 ms; a shorter one would keep the server busy with its timer alone.
pub(super) fn interval(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(interval) if interval >= Duration::from_millis(10) => Ok(interval),
        Ok(_) => Err("write at least 10ms".into()),
        Err(error) => Err(error.to_string()),
    }
}

/// The default of a bound that is not 0: nothing would be served with it.
pub(super) const fn at_least_one(number: usize) -> NonZeroUsize {
    match NonZeroUsize::new(number) {
        Some(number) => number,
        None => NonZeroUsize::MIN,
    }
}
