//! Algorithms as snapshots and exports have them: format 1.
//!
//! The names and types of records are separate from the types that count, so that renaming a field there cannot change the format. Every
//! value is checked on the way back: an algorithm read from a file is as valid as one from a rule file.

use crate::limit::Window;
use serde::{Serialize, de::DeserializeOwned};
use std::fmt;

/// The record of an algorithm, which it states in its file. Windows and lengths are in nanoseconds.
pub(super) trait Recorded: Sized {
    /// The parameters under the names of the format.
    type Record: Clone + PartialEq + Eq + fmt::Debug + Serialize + DeserializeOwned;

    /// The parameters as they are written.
    fn record(&self) -> Self::Record;

    /// The algorithm, if every parameter is within the bounds of rule files.
    fn of_record(record: Self::Record) -> Result<Self, String>;
}

/// The window of so many nanoseconds.
pub(super) fn window(nanos: u64) -> Result<Window, String> {
    Window::from_nanos(nanos).map_err(|error| error.to_string())
}
