//! The script that decides in the store, with the encoding of its arguments and its reply. Pure: no connection, no clock.
//!
//! One call of the script decides a batch of requests at one moment of the store's clock. It reads each counter once, evaluates
//! the requests in order, charges all counters of a request or none, and returns the moment and the states that each request
//! read. The arithmetic is that of [`Algorithm`](tidegate_core::algorithm::Algorithm) in whole microseconds.
//!
//! docs/shared.md describes the layout of keys and states.

mod batch;
mod mark;
mod microseconds;
mod parts;
mod quota;
mod release;
mod renewal;
mod reply;
mod reserved;
mod stored;
mod undo;
mod value;

pub use batch::{Batch, COUNTERS_MAX, EncodedRequest};
pub use mark::mark;
pub use parts::{Conclusion, Part, conclude, undo_all, undo_of};
pub use quota::{LIFE_ARGUMENT, decode_parts, encode_part};
pub use release::{End, Release};
pub use renewal::Renewal;
pub use reply::{EncodedGrant, Reply, ReplyError, Verdict};
pub use stored::{encode, read_value};
pub use undo::{UNDO_SCRIPT, Undo};
pub use value::{algorithm_of, decode as decode_state};

/// The version of the layout of keys and states. Servers with different versions cannot share a store.
pub const LAYOUT_VERSION: u32 = 3;

/// The script. The functions for requests that the fast path leaves are made by one that captures nothing: captured variables
/// cost time in every call.
pub const SCRIPT: &str = concat!(
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
);

/// The script that releases slots of requests in flight.
pub const RELEASE_SCRIPT: &str =
    concat!(include_str!("clock.lua"), include_str!("slots.lua"), include_str!("release.lua"));

/// The script that ends reservations.
pub const END_SCRIPT: &str = concat!(
    include_str!("clock.lua"),
    include_str!("slots.lua"),
    include_str!("arithmetic.lua"),
    include_str!("lease.lua"),
    include_str!("reserved.lua"),
    include_str!("write.lua"),
    include_str!("end.lua"),
);

/// The script that renews what a ticket names.
pub const RENEW_SCRIPT: &str = concat!(
    include_str!("clock.lua"),
    include_str!("slots.lua"),
    include_str!("arithmetic.lua"),
    include_str!("lease.lua"),
    include_str!("reserved.lua"),
    include_str!("write.lua"),
    include_str!("renew.lua"),
);

/// The script that changes parts of quota.
pub const QUOTA_SCRIPT: &str = concat!(
    include_str!("clock.lua"),
    include_str!("slots.lua"),
    include_str!("arithmetic.lua"),
    include_str!("lease.lua"),
    include_str!("reserved.lua"),
    include_str!("quota.lua"),
);

/// The script that resets counters.
pub const RESET_SCRIPT: &str = concat!(include_str!("mark.lua"), include_str!("reset.lua"));

/// The lines of the script that read the clock.
const READS_CLOCK: &str = "local time = redis.call('TIME')\nlocal now = time[1] * 1000000 + time[2]\n";

/// The lines of the script that set the time that keys outlive their counters.
const SETS_SLACK: &str = "local SLACK_MS = 1000\n";

/// The script for tests, which reads the time in microseconds from its last argument, and whose keys outlive their counters by
/// an hour of the store's clock, which is another one.
pub fn script_with_argument_clock() -> String {
    with_argument_clock(SCRIPT)
}

/// The text of the script that takes hits back.
pub fn undo_script_with_argument_clock() -> String {
    with_argument_clock(UNDO_SCRIPT)
}

/// The text of the script that releases slots.
pub fn release_script_with_argument_clock() -> String {
    with_argument_clock(RELEASE_SCRIPT)
}

/// The text of the script that ends reservations.
pub fn end_script_with_argument_clock() -> String {
    with_argument_clock(END_SCRIPT)
}

/// The text of the script that renews what a ticket names.
pub fn renew_script_with_argument_clock() -> String {
    with_argument_clock(RENEW_SCRIPT)
}

/// The text of the script that changes parts of quota.
pub fn quota_script_with_argument_clock() -> String {
    with_argument_clock(QUOTA_SCRIPT)
}

/// The text of the script that resets counters.
pub fn reset_script_with_argument_clock() -> String {
    assert!(RESET_SCRIPT.contains(READS_CLOCK), "the lines are those of the script");
    RESET_SCRIPT.replace(READS_CLOCK, "local now = ARGV[#ARGV] + 0\n")
}

fn with_argument_clock(script: &str) -> String {
    assert!(script.contains(READS_CLOCK) && script.contains(SETS_SLACK), "the lines are those of the script");
    let with_clock = script.replace(READS_CLOCK, "local now = ARGV[#ARGV] + 0\n");
    with_clock.replace(SETS_SLACK, "local SLACK_MS = 3600000\n")
}
