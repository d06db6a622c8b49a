//! An entry of `rate_limits` and where it stands.

use crate::{node::Problems, part::Part, policy::Policy, schema::RATE_LIMIT, stream::Envoy};
use std::rc::Rc;

/// The place of an entry, which determines the fields that Envoy reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// The `rate_limits` of a route's action.
    Route,
    /// Entries of a virtual host.
    VirtualHost,
    /// Entries of the filter itself.
    Filter,
    /// Entries of a `RateLimitPerRoute`.
    PerRoute,
}

impl Level {
    /// Whether Envoy reads `stage` and `disable_key`, and ignores `hits_addend`.
    pub fn is_of_routes(self) -> bool {
        matches!(self, Self::Route | Self::VirtualHost)
    }
}

/// An entry of `rate_limits`.
#[derive(Debug)]
pub struct RateLimitEntry<'d> {
    /// Its place.
    pub part: Part<'d>,
    /// The level at which the entry is.
    pub level: Level,
    /// The entry, or why it cannot be evaluated: each problem with its place.
    pub policy: Result<Policy, Vec<(Part<'d>, String)>>,
}

impl<'d> RateLimitEntry<'d> {
    /// The entries of `rate_limits` of a part.
    pub(crate) fn list(of: Part<'d>, level: Level, envoy: &Envoy) -> Vec<Rc<Self>> {
        of.list("rate_limits").map(|part| Rc::new(Self::read(part, level, envoy))).collect()
    }

    fn read(part: Part<'d>, level: Level, envoy: &Envoy) -> Self {
        let problems = Problems::default();
        let policy = part.node(&RATE_LIMIT, &problems).map(|node| match level.is_of_routes() {
            true => Policy::of_route(&node, envoy, &problems),
            false => Policy::read(&node, envoy, &problems),
        });
        let problems: Vec<(Part<'d>, String)> =
            problems.into_lines().into_iter().map(|line| located(part, &line)).collect();
        let policy = match policy {
            Some(policy) if problems.is_empty() => Ok(policy),
            Some(_) => Err(problems),
            None => Err(vec![(part, "is not an entry of rate_limits".to_owned())]),
        };
        Self { part, level, policy }
    }

    /// The stage of the filters that apply it.
    pub fn stage(&self) -> u64 {
        self.part.number("stage").unwrap_or(0)
    }

    /// Whether it is applied when the stream has ended.
    pub fn is_at_end(&self) -> bool {
        self.part.flag("apply_on_stream_done")
    }
}

/// A problem `path: what` with the part that the path leads to.
fn located<'d>(part: Part<'d>, line: &str) -> (Part<'d>, String) {
    match line.split_once(": ") {
        Some((path, _)) if !path.contains(' ') => (part.at(path), line.to_owned()),
        _ => (part, line.to_owned()),
    }
}
