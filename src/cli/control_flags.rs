//! Flags of the control API.

use crate::control::{ControlSettings, Reach};
use clap::{Args, ValueEnum};

/// The control API: operations on the running server (docs/control.md).
#[derive(Args)]
#[command(next_help_heading = "Control API")]
pub(super) struct ControlFlags {
    /// Serve the control API on the gRPC port and the HTTP port, to callers with a role; by default it is off.
    #[arg(long, env = "TIDEGATE_CONTROL", value_name = "REACH")]
    control: Option<ReachChoice>,
}

/// Where callers may be.
#[derive(Clone, Copy, ValueEnum)]
enum ReachChoice {
    /// On this machine only.
    Loopback,
    /// Anywhere.
    Any,
}

impl ControlFlags {
    pub(super) fn settings(&self) -> Option<ControlSettings> {
        let reach = match self.control? {
            ReachChoice::Loopback => Reach::Loopback,
            ReachChoice::Any => Reach::Any,
        };
        Some(ControlSettings { reach })
    }
}
