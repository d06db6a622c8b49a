//! The script that decides in the store, and the encoding of its arguments and its reply. Pure: no connection, no clock.
//!
//! One call of the script decides a batch of requests at one moment of the store's clock. It reads each counter once and evaluates the
//! requests in order. It charges all counters of a request or none. It returns the moment, and the states that each request read. The
//! arithmetic is that of [`Algorithm`](tidegate_core::algorithm::Algorithm) in whole microseconds.
//!
//! docs/shared.md describes the layout of keys and states.

mod batch;
mod command;
mod mark;
mod microseconds;
mod parts;
mod quota;
mod reply;
mod reserved;
mod stored;
mod text;
mod undo;
mod value;

pub use batch::{Batch, COUNTERS_MAX, EncodedRequest};
pub use command::{Command, counter_name};
pub use mark::mark;
pub use parts::{Conclusion, Part, conclude, undo_all, undo_of};
pub use quota::{LIFE_ARGUMENT, decode_parts, encode_part};
pub use reply::{EncodedGrant, Reply, ReplyError, Undecided, Verdict};
pub use stored::{encode, read_value};
pub use text::Script;
pub use undo::Undo;
pub use value::{algorithm_of, decode as decode_state};

/// The version of the layout of keys and states. Servers with different versions cannot share a store.
pub const LAYOUT_VERSION: u32 = 3;
