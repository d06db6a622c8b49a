//! Flags of the control API.

use crate::{
    cli::{
        Failure,
        arguments::{Choice, choice},
    },
    server::ListenAddress,
};
use clap::Args;
use std::path::{Path, PathBuf};
use tidegate_operations::control::{ControlSettings, Reach};

/// The control API: operations on the running server (docs/control.md).
#[derive(Args)]
pub(super) struct ControlFlags {
    /// Serve the control API on the gRPC port and the HTTP port, to callers with a role; by default it is off. Without a value:
    /// loopback.
    #[arg(long, value_name = "REACH", num_args = 0..=1, default_missing_value = "loopback", value_parser = choice(REACH))]
    control: Option<Reach>,
    /// File of the audit log, to which each change by the control API is appended; by default DIR/audit.jsonl of --data.
    #[arg(long, value_name = "FILE", requires = "control")]
    audit_log: Option<PathBuf>,
}

/// Where callers may be.
pub(super) const REACH: [Choice<Reach>; 2] =
    [("loopback", "On this machine only", Reach::Loopback), ("any", "Anywhere", Reach::Any)];

impl ControlFlags {
    /// Serves the API to callers with a role.
    pub(super) fn open(&mut self, reach: Reach) {
        self.control = Some(reach);
    }

    /// Refuses a control API that nobody can call: roles are those of tokens, of names in client certificates, which the token file
    /// has too, and of users at Unix sockets.
    pub(super) fn require_callers<'l>(
        &self,
        has_tokens: bool,
        mut listen: impl Iterator<Item = &'l ListenAddress>,
    ) -> Result<(), Failure> {
        // A socket of systemd may be a Unix socket.
        if self.control.is_none()
            || has_tokens
            || listen.any(|address| !matches!(address, ListenAddress::Tcp(_)))
        {
            return Ok(());
        }
        Err(Failure(
            "--control: nobody could call it; give callers roles with --http-token-file (docs/control.md), or add a Unix socket \
             with --listen unix:/path, at which users of this machine have roles"
                .to_owned(),
        ))
    }

    /// The settings, for a server with this data directory.
    pub(super) fn settings(&self, data: Option<&Path>) -> Option<ControlSettings> {
        let reach = self.control?;
        let kept = |name| data.map(|directory| directory.join(name));
        let audit_log = self.audit_log.clone().or_else(|| kept("audit.jsonl"));
        Some(ControlSettings { reach, audit_log, overlays: kept("overrides.json") })
    }
}
