//! The vocabulary: what is asked, what limits it, what is answered. Pure values, no behaviour beyond their own invariants.
//!
//! Everything here is checked when it is made; nothing later checks it again.

mod decision;
mod request;
mod time;
mod unit;

pub use decision::{Code, CurrentLimit, Decision, Reset, Status};
pub use request::{Descriptor, Entry, Hits, Override, Request, RequestError, RequestLimits};
pub use time::{Timestamp, Window, WindowError};
pub use unit::Unit;
