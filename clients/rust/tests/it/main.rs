//! The client against a real server: the conformance cases, and what they cannot say.

#![expect(clippy::disallowed_methods, reason = "tests measure real time")]

mod client;
mod conformance;
mod generated;
mod servers;
