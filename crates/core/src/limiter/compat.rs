//! Options of the reference server.

/// Options of the reference server that change decisions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Compat {
    /// Every descriptor is a quota, even without a limit: a request is denied only if all of them are over. Unlimited descriptors are not
    /// counted (`QUOTA_MODE`).
    pub quota_mode: bool,
    /// If any descriptor of a request is over its limit, only the counters of such descriptors count the request
    /// (`STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT`).
    pub stop_counting: bool,
}
