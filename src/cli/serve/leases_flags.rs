//! Flag of leases.

use super::control_flags::REACH;
use crate::{
    cli::{Failure, arguments::choice},
    server::ListenAddress,
};
use clap::Args;
use tidegate_operations::control::Reach;

/// Leases: holders of credits decide requests by themselves (docs/leases.md).
#[derive(Args)]
pub(super) struct LeasesFlags {
    /// Grant leases of the counters on the gRPC port, to callers with the role lease; by default none are. Without a value: loopback.
    #[arg(long, value_name = "REACH", num_args = 0..=1, default_missing_value = "loopback", value_parser = choice(REACH))]
    leases: Option<Reach>,
}

impl LeasesFlags {
    /// Refuses leases that nobody could hold: roles are those of tokens, of names in client certificates, which the token file has
    /// too, and of users at Unix sockets.
    pub(super) fn require_callers(&self, has_tokens: bool, listen: &[ListenAddress]) -> Result<(), Failure> {
        // A socket of systemd may be a Unix socket.
        let has_users = listen.iter().any(|address| !matches!(address, ListenAddress::Tcp(_)));
        if self.leases.is_none() || has_tokens || has_users {
            return Ok(());
        }
        Err(Failure(
            "--leases: nobody could hold one; give holders the role lease with --http-token-file (docs/leases.md), or add a Unix \
             socket with --listen unix:/path, at which users of this machine have roles"
                .to_owned(),
        ))
    }

    /// Where holders may be; none if no leases are granted.
    pub(super) fn reach(&self) -> Option<Reach> {
        self.leases
    }
}
