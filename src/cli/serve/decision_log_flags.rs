//! Flags of `serve` for the decision log.

use crate::cli::{
    Failure,
    arguments::{Choice, choice},
};
use clap::Args;
use std::{path::PathBuf, sync::Arc};
use tidegate_core::{
    clock::Clock,
    rules::{Redaction, read_regular},
};
use tidegate_operations::telemetry::{
    DecisionLog, DecisionLogSettings, Rotation, RulesText, SampleRate, Target,
};

/// The longest file with a salt.
const SALT_BYTES_MAX: u64 = 1 << 20;

/// The decision log: one JSON line for each decision.
#[derive(Args)]
pub(super) struct DecisionLogFlags {
    /// Write decisions as JSON lines: to a file, to - for standard output, or to unix:/path/of/socket.
    #[arg(long, value_name = "TARGET")]
    decision_log: Option<Target>,
    /// Share of requests whose admissions are logged, from 0 to 1; of equal requests all are logged, or none.
    #[arg(long, requires = "decision_log", value_name = "SHARE", default_value = "1", value_parser = share)]
    decision_log_sample: SampleRate,
    /// Share of requests whose denials are logged.
    #[arg(long, requires = "decision_log", value_name = "SHARE", default_value = "1", value_parser = share)]
    decision_log_sample_denials: SampleRate,
    /// Rename the file to PATH.1 before it exceeds this size, without the rules at its start; by default it grows. SIGUSR2 opens PATH again.
    #[arg(long, requires = "decision_log", value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    decision_log_max_bytes: Option<u64>,
    /// Number of renamed files to keep: PATH.1 is the newest.
    #[arg(long, requires = "decision_log", value_name = "N", default_value_t = 5)]
    decision_log_keep: u32,
    /// Values of keys for which no rule has `log`.
    #[arg(long, requires = "decision_log", value_name = "HOW", default_value = "plain", value_parser = choice(VALUES))]
    decision_log_values: Redaction,
    /// File with the secret of hashed values; by default a random one, so that hashes differ after a restart.
    #[arg(long, requires = "decision_log", value_name = "PATH")]
    decision_log_salt_file: Option<PathBuf>,
    /// How the rules in force are written, at the start of each file and when they change.
    #[arg(long, requires = "decision_log", value_name = "HOW", default_value = "auto")]
    decision_log_rules: RulesText,
    /// Bytes of queued decisions for each worker; decisions beyond are missing in the log, and counted.
    #[arg(long, requires = "decision_log", value_name = "BYTES", default_value_t = 2 << 20)]
    decision_log_queue_bytes: usize,
}

/// How values are written.
const VALUES: [Choice<Redaction>; 3] = [
    ("plain", "As they are", Redaction::Plain),
    ("hash", "As keyed hashes", Redaction::Hash),
    ("omit", "Not at all", Redaction::Omit),
];

impl DecisionLogFlags {
    /// Starts the log, if there is to be one.
    pub(super) fn start(&self, clock: &Arc<dyn Clock>) -> Result<Option<DecisionLog>, Failure> {
        let Some(settings) = self.settings()? else { return Ok(None) };
        Ok(Some(DecisionLog::start(settings, Arc::clone(clock))?))
    }

    /// The settings, if there is to be a log.
    pub(super) fn settings(&self) -> Result<Option<DecisionLogSettings>, Failure> {
        let Some(target) = &self.decision_log else { return Ok(None) };
        let salt = match &self.decision_log_salt_file {
            Some(path) => read_regular(path, SALT_BYTES_MAX)
                .map_err(|error| Failure(format!("--decision-log-salt-file {}: {error}", path.display())))?,
            None => {
                let mut salt = vec![0; 32];
                getrandom::fill(&mut salt)?;
                salt
            }
        };
        Ok(Some(DecisionLogSettings {
            target: target.clone(),
            sample: self.decision_log_sample,
            sample_denials: self.decision_log_sample_denials,
            rotation: Rotation { bytes_max: self.decision_log_max_bytes, files_kept: self.decision_log_keep },
            queue_bytes: self.decision_log_queue_bytes,
            values: self.decision_log_values,
            salt,
            rules_text: self.decision_log_rules,
        }))
    }
}

fn share(text: &str) -> Result<SampleRate, String> {
    let share = text.parse().ok().and_then(SampleRate::new);
    share.ok_or_else(|| format!("{text:?} is not a share; write a number from 0 to 1, such as 0.01"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Flags {
        #[command(flatten)]
        flags: DecisionLogFlags,
    }

    /// Each write renamed the file.
    #[test]
    fn a_file_of_no_bytes_is_refused() {
        let parse = |bytes| {
            Flags::try_parse_from(["", "--decision-log", "d.log", "--decision-log-max-bytes", bytes])
                .map(|parsed| parsed.flags.decision_log_max_bytes)
        };
        assert!(parse("0").is_err());
        assert_eq!(parse("1").unwrap(), Some(1));
    }
}
