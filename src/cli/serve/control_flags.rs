//! Flags of the control API, and of leases, which have callers with roles too.

use crate::{cli::Failure, server::ListenAddress};
use clap::Args;
use std::path::{Path, PathBuf};
use tidegate_operations::control::{ControlSettings, Reach};

/// The control API: operations on the running server (docs/control.md). Leases: holders of credits decide requests by themselves
/// (docs/leases.md).
#[derive(Args)]
pub(super) struct ControlFlags {
    /// Serve the control API on the gRPC port and the HTTP port, to callers with a role; by default it is off. Without a value:
    /// loopback.
    #[arg(long, value_name = "REACH", num_args = 0..=1, default_missing_value = "loopback")]
    pub(super) control: Option<Reach>,
    /// File of the audit log, to which each change by the control API is appended; by default DIR/audit.jsonl of --data.
    #[arg(long, value_name = "FILE", requires = "control")]
    audit_log: Option<PathBuf>,
    /// Grant leases of the counters on the gRPC port, to callers with the role lease; by default none are. Without a value: loopback.
    #[arg(
        long, value_name = "REACH", num_args = 0..=1, default_missing_value = "loopback",
        help_heading = "Leases"
    )]
    pub(super) leases: Option<Reach>,
}

impl ControlFlags {
    /// Refuses a control API without possible callers, and leases without possible holders. Roles belong to tokens and names in client
    /// certificates, both in the token file, and to users at Unix sockets.
    pub(super) fn require_callers(
        &self,
        has_tokens: bool,
        grpc: &[ListenAddress],
        http: &[ListenAddress],
    ) -> Result<(), Failure> {
        // A socket of systemd may be a Unix socket.
        let has_users =
            |listen: &[ListenAddress]| listen.iter().any(|address| !matches!(address, ListenAddress::Tcp(_)));
        let missing = match (self.control, self.leases) {
            _ if has_tokens || has_users(grpc) => return Ok(()),
            (Some(_), _) if !has_users(http) => {
                "--control: no caller has a role; give callers roles with --http-token-file (docs/control.md)"
            }
            (_, Some(_)) => {
                "--leases: no holder has a role; give holders the role lease with --http-token-file (docs/leases.md)"
            }
            _ => return Ok(()),
        };
        Err(Failure(format!(
            "{missing}, or add a Unix socket with --listen unix:/path, at which users of this machine have roles"
        )))
    }

    /// The settings, for a server with this data directory.
    pub(super) fn settings(&self, data: Option<&Path>) -> Option<ControlSettings> {
        let reach = self.control?;
        let kept = |name| data.map(|directory| directory.join(name));
        let audit_log = self.audit_log.clone().or_else(|| kept("audit.jsonl"));
        Some(ControlSettings { reach, audit_log, overlays: kept("overrides.json") })
    }
}
