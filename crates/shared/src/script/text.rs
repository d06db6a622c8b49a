//! The scripts. Each is the concatenation of several files.

/// A script that the store runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Script {
    /// Decides a batch of requests.
    Decide,
    /// Takes back hits that were charged for a request that was denied elsewhere.
    Undo,
    /// Releases slots of requests in flight.
    Release,
    /// Ends reservations.
    End,
    /// Renews what a ticket names.
    Renew,
    /// Resets counters.
    Reset,
    /// Changes parts of quota.
    Quota,
}

/// The text of a script that changes counters: the common functions, and then its own files.
macro_rules! with_counters {
    ($($file:literal),+) => {
        concat!(
            include_str!("clock.lua"),
            include_str!("slots.lua"),
            include_str!("arithmetic.lua"),
            include_str!("lease.lua"),
            include_str!("reserved.lua"),
            $(include_str!($file)),+
        )
    };
}

impl Script {
    /// All scripts.
    pub const ALL: [Self; 7] =
        [Self::Decide, Self::Undo, Self::Release, Self::End, Self::Renew, Self::Reset, Self::Quota];

    /// The text of the script.
    pub const fn text(self) -> &'static str {
        match self {
            // The functions for requests that the fast path leaves are made by a function that captures nothing: captured variables cost
            // time in every call.
            Self::Decide => concat!(
                include_str!("clock.lua"),
                include_str!("mark.lua"),
                "local function make_general(now, states, changed, reply, lease_length)\n",
                include_str!("slots.lua"),
                include_str!("arithmetic.lua"),
                include_str!("lease.lua"),
                include_str!("reserved.lua"),
                include_str!("general.lua"),
                "end\n",
                include_str!("fast_path.lua"),
            ),
            Self::Undo => with_counters!("write.lua", "undo.lua"),
            Self::Release => {
                concat!(include_str!("clock.lua"), include_str!("slots.lua"), include_str!("release.lua"))
            }
            Self::End => with_counters!("write.lua", "end.lua"),
            Self::Renew => with_counters!("write.lua", "renew.lua"),
            Self::Reset => concat!(include_str!("mark.lua"), include_str!("reset.lua")),
            Self::Quota => with_counters!("quota.lua"),
        }
    }
}
