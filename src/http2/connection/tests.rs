//! The connection against a client that is played frame by frame.

mod bounds;
mod calls;
mod client;
mod cuts;
mod heads;
mod times;
mod together;

use super::*;
use crate::http2::{flow::WINDOW_MAX, proof::Echo};

const SECOND: Duration = Duration::from_secs(1);
