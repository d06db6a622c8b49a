//! The vocabulary: requests, windows, decisions. Pure values, no behaviour beyond their own invariants.
//!
//! Every value is checked when it is made, and never again.

mod decision;
mod on_deny;
mod request;
mod time;
mod unit;

pub use decision::{Code, CurrentLimit, Decision, Reset, RuleInfo, Status};
pub use on_deny::{Denial, Header, OnDeny, Reply};
pub use request::{Descriptor, Entry, Hits, Override, Request, RequestError, RequestLimits};
pub use time::{Timestamp, Window, WindowError};
pub use unit::Unit;

/// Names the limit of a rule, or of an override, for as long as the process runs, across reloads; snapshots map it to
/// the rule's identity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LimitId(pub u32);
