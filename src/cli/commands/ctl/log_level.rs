//! `tidegate ctl log-level`.

use super::{
    connection::Caller,
    shown::{Reason, Shown},
};
use crate::{api::pb::control as pb, cli::Failure};
use clap::Args;

#[derive(Args, Clone)]
pub(super) struct LogLevel {
    /// As --log of serve: off, error, warn, info, debug or trace, or a list of target=level. Without it, the configured level.
    #[arg(default_value = "", hide_default_value = true)]
    level: String,
    #[command(flatten)]
    reason: Reason,
}

impl Caller<'_> {
    pub(super) async fn log_level(&mut self, set: LogLevel) -> Result<Shown, Failure> {
        let LogLevel { level, reason: Reason { reason } } = set;
        let response = self.call(pb::SetLogLevelRequest { level, reason }).await?;
        let text = format!("log level {}, before {}", response.level, response.former);
        Ok(Shown::new(&response, text))
    }
}
