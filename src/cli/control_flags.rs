//! Flags of the control API.

use crate::control::{ControlSettings, Reach};
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};

/// The control API: operations on the running server (docs/control.md).
#[derive(Args)]
#[command(next_help_heading = "Control API")]
pub(super) struct ControlFlags {
    /// Serve the control API on the gRPC port and the HTTP port, to callers with a role; by default it is off.
    #[arg(long, env = "TIDEGATE_CONTROL", value_name = "REACH")]
    control: Option<ReachChoice>,
    /// File of the audit log, to which each change by the control API is appended; by default DIR/audit.jsonl of --data.
    #[arg(long, env = "TIDEGATE_AUDIT_LOG", value_name = "FILE", requires = "control")]
    audit_log: Option<PathBuf>,
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
    /// The settings, for a server with this data directory.
    pub(super) fn settings(&self, data: Option<&Path>) -> Option<ControlSettings> {
        let reach = match self.control? {
            ReachChoice::Loopback => Reach::Loopback,
            ReachChoice::Any => Reach::Any,
        };
        let kept = |name| data.map(|directory| directory.join(name));
        let audit_log = self.audit_log.clone().or_else(|| kept("audit.jsonl"));
        Some(ControlSettings { reach, audit_log, overlays: kept("overrides.json") })
    }
}
