//! The status of a descriptor, as `x-ratelimit-*` and metadata show it.

use tidegate_core::limit::{Code, Reset, Status, Unit};

/// The status of a descriptor, as headers show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ShownStatus<Name> {
    pub(crate) is_over: bool,
    /// None if nothing limits the descriptor.
    pub(crate) limit: Option<ShownLimit<Name>>,
    pub(crate) remaining: u32,
    /// Seconds as the server rounds them; 0 without a reset, as Envoy reads an absent duration.
    pub(crate) reset_seconds: u64,
}

/// A limit, as headers show it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ShownLimit<Name> {
    pub(crate) name: Name,
    pub(crate) requests: u32,
    /// None if the window is not one unit long.
    pub(crate) unit: Option<Unit>,
}

impl<'s> From<&Status<'s>> for ShownStatus<&'s str> {
    fn from(status: &Status<'s>) -> Self {
        Self {
            is_over: status.code == Code::OverLimit,
            limit: status.limit.map(|limit| ShownLimit {
                name: limit.name,
                requests: limit.requests,
                unit: limit.unit,
            }),
            remaining: status.remaining,
            reset_seconds: status.reset.and_then(Reset::seconds_rounded_up).unwrap_or(0),
        }
    }
}

impl ShownStatus<Box<str>> {
    /// The status of a response, whose texts are its own.
    pub(crate) fn borrowed(&self) -> ShownStatus<&str> {
        let Self { is_over, remaining, reset_seconds, .. } = *self;
        ShownStatus {
            is_over,
            limit: self.limit.as_ref().map(ShownLimit::borrowed),
            remaining,
            reset_seconds,
        }
    }
}

impl ShownLimit<Box<str>> {
    pub(crate) fn borrowed(&self) -> ShownLimit<&str> {
        ShownLimit { name: &self.name, requests: self.requests, unit: self.unit }
    }
}
