//! Names under which the port is reached.

use std::sync::Arc;

/// The names of the port.
#[derive(Clone, Debug, Default)]
pub struct Hosts {
    /// Names besides addresses and those that only local name servers have.
    pub allowed: Arc<[String]>,
    /// Whether requests under other names are refused: no credential protects the responses.
    pub is_checked: bool,
}

impl Hosts {
    pub(super) fn allows(&self, name: &str) -> bool {
        self.allowed.iter().any(|allowed| allowed == "*" || allowed.eq_ignore_ascii_case(name))
    }
}
