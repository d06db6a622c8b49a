//! The connection against a client that the tests drive frame by frame.

mod batches;
mod bounds;
mod client;
mod closed_streams;
mod cost;
mod fragmentation;
mod header_blocks;
mod timeouts;
mod unary;

use super::*;
use crate::{flow_control::WINDOW_MAX, fuzz_bridge::Echo};

const SECOND: Duration = Duration::from_secs(1);
