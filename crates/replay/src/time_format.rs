//! The form of times in reports.

use serde::Serializer;
use tidegate_core::limit::Timestamp;

/// RFC 3339.
pub(super) fn time<S: Serializer>(time: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => exact_time(time, serializer),
        None => serializer.serialize_none(),
    }
}

pub(super) fn exact_time<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    match jiff::Timestamp::from_nanosecond(i128::from(time.as_nanos())) {
        Ok(time) => serializer.collect_str(&time),
        // Unreachable: all 64 bits are within the range of the type.
        Err(_) => serializer.serialize_none(),
    }
}
