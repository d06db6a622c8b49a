//! Options of the reference server that change decisions.

use crate::cli::Failure;
use clap::Args;
use tidegate_core::limiter::Compat;

/// Options of decisions with `--compat reference`.
#[derive(Args)]
pub(super) struct CompatFlags {
    /// Deny a request only if all of its descriptors are over their limits, descriptors without a limit included.
    #[arg(long)]
    pub(super) quota_mode: bool,
    /// Count a request that is over a limit only in the counters of the limits that it exceeds.
    #[arg(long)]
    stop_counting_over_limit: bool,
}

impl CompatFlags {
    /// The options; an error if they are set without `--compat reference`.
    pub(super) fn options(&self, is_reference: bool) -> Result<Compat, Failure> {
        let options = Compat { quota_mode: self.quota_mode, stop_counting: self.stop_counting_over_limit };
        if options != Compat::default() && !is_reference {
            let message = "--quota-mode and --stop-counting-over-limit are options of --compat reference; add it, or \
                           remove them";
            return Err(Failure(message.into()));
        }
        Ok(options)
    }
}
