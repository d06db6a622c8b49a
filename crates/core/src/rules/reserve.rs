//! Estimates of costs that are known when a request ends.

use crate::limit::Window;
use std::{fmt, num::NonZeroU32};

/// An estimate that is charged when a request starts. Its end names the actual cost.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reserve {
    /// The estimate; none for the hits of the request.
    pub hits: Option<NonZeroU32>,
    /// The longest time until the end.
    pub max_hold: Window,
    /// Whether the estimate is returned if no end arrives until then; else it stays charged.
    pub returns: bool,
}

/// `2000 for up to 10m, then kept`.
impl fmt::Display for Reserve {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hits {
            Some(hits) => write!(f, "{hits}")?,
            None => f.write_str("the hits of the request")?,
        }
        let then = if self.returns { "returned" } else { "kept" };
        write!(f, " for up to {}, then {then}", self.max_hold)
    }
}
