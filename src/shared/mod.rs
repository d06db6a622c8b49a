//! Counters shared between nodes, on a store that all of them reach.
//!
//! `lease` is the part without IO: how a node takes hits of a hot counter ahead of time and decides by itself, so that all
//! nodes together never admit more than one exact limiter would.

pub mod lease;
