//! The scripts, each of which is a text of several files.

/// A script that the store runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Script {
    /// Decides a batch of requests.
    Decide,
    /// Takes hits back, which were charged for a request that was denied elsewhere.
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

/// The functions that change counters, and the files of one script behind them.
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

/// The lines of a script that read the clock.
const READS_CLOCK: &str = "local time = redis.call('TIME')\nlocal now = time[1] * 1000000 + time[2]\n";

/// The lines of a script that set the time that keys outlive their counters.
const SETS_SLACK: &str = "local SLACK_MS = 1000\n";

impl Script {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Decide, Self::Undo, Self::Release, Self::End, Self::Renew, Self::Reset, Self::Quota];

    /// Its text.
    pub const fn text(self) -> &'static str {
        match self {
            // The functions for requests that the fast path leaves are made by one that captures nothing: captured variables cost time
            // in every call.
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

    /// Its text for tests: it reads the time in microseconds from its last argument, and its keys outlive their counters by an hour of
    /// the store's clock, which is another one.
    pub fn with_argument_clock(self) -> String {
        let text = self.text();
        let has_lines = text.contains(READS_CLOCK) && (self == Self::Reset || text.contains(SETS_SLACK));
        assert!(has_lines, "the lines are those of the script");
        let with_clock = text.replace(READS_CLOCK, "local now = ARGV[#ARGV] + 0\n");
        with_clock.replace(SETS_SLACK, "local SLACK_MS = 3600000\n")
    }
}
