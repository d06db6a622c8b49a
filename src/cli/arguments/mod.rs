//! Arguments that several commands have.

pub(super) mod client_tls;
pub(super) mod rule_files;
pub(super) mod store_flags;

use std::{num::NonZeroUsize, time::Duration};

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
