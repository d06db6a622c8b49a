//! Operations of a server, independent of protocols: the sources of its rules, its reports, and changes while it runs.
//!
//! The modules, lowest first; imports point down only (enforced by `tests/it/tidy` of the server):
//!
//! | module | content |
//! |---|---|
//! | [`config`] | the feeds of rules, and the one owner of the rules in force |
//! | [`telemetry`] | logs, metrics and traces |
//! | [`control`] | operations on a running server: what it decides now, overrides and blocks, audit |

pub mod config;
pub mod control;
pub mod telemetry;
