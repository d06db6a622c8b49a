//! `SetLogLevel`: the level of the operational log.

use super::{
    caller::Admitted,
    error::{Error, Result},
};
use crate::api::pb::control as pb;
use tidegate_operations::telemetry::{LogLevelError, set_log_level};
use tonic::Code;

/// Longest list of targets and levels.
const LEVEL_BYTES_MAX: usize = 1_024;

impl Admitted {
    pub(super) async fn set_log_level(
        &self,
        message: pb::SetLogLevelRequest,
    ) -> Result<pb::SetLogLevelResponse> {
        if message.level.len() > LEVEL_BYTES_MAX {
            return Err(Error::invalid("level", format!("is longer than {LEVEL_BYTES_MAX} bytes")));
        }
        match set_log_level(&message.level) {
            Ok(change) => Ok(pb::SetLogLevelResponse { level: change.level, former: change.former }),
            Err(LogLevelError::Malformed(error)) => Err(Error::invalid("level", error.to_string())),
            Err(error @ LogLevelError::NotStarted) => {
                Err(Error::new(Code::FailedPrecondition, error.to_string()))
            }
        }
    }
}
