//! The vocabulary: requests, windows, decisions. Pure values, no behaviour beyond their own invariants.
//!
//! Every value is checked when it is made, and never again.

mod client_text;
mod decision;
mod denial;
mod descriptor_text;
mod on_deny;
mod request;
mod time;
mod unit;

pub use client_text::{CUT_BYTES, client_bytes, client_text, has_escape};
pub use decision::{
    AppliedLimit, BanPhase, Code, CurrentLimit, Decision, DenialCause, GrantedSlot, HeldSlot, HeldSlots,
    MetricLabel, RareNumbers, ReservedHits, Reset, RuleInfo, ServiceLimit, Status,
};
pub use denial::Denial;
pub use descriptor_text::{DescriptorText, DescriptorTextError};
pub use on_deny::{Header, OnDeny, Reply};
pub use request::{
    Descriptor, Entry, Hits, Request, RequestError, RequestForm, RequestLimit, RequestLimits, SentHits,
};
pub use time::{Timestamp, Window, WindowError};
pub use unit::Unit;

/// Names the limit of a rule, or of an override, for as long as the process runs, across reloads; snapshots map it to
/// the rule's identity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LimitId(pub u32);

/// A limit's series in metrics: limits of one name share it, and it is the same after a reload.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SeriesId {
    /// Dense number; at most the configured maximum of series.
    pub number: u32,
    /// Number of names that had the number before this name.
    pub use_number: u32,
}

impl SeriesId {
    /// The series that limits beyond the maximum share.
    pub const OTHER: Self = Self { number: 0, use_number: 0 };
}
