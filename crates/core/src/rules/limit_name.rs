//! Names of limits.

use std::{fmt, sync::Arc};

/// The name of a limit in metrics, logs and control: it does not change when other limits do.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LimitName {
    /// The domain.
    pub domain: Arc<str>,
    /// The `name` of the rule file; without one, the rule's path, with the window if the rule has several limits without
    /// names; `(request's own limit per UNIT)` for limits of requests. Limits to which a file gives the same name share
    /// it.
    pub limit: Arc<str>,
}

/// `domain: limit`.
impl fmt::Display for LimitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.domain, self.limit)
    }
}
