//! `serve --check`: whether the server would start.

use super::Serve;
use crate::{cli::Failure, server};
use std::process::ExitCode;
use tidegate_core::clock::SystemClock;

impl Serve {
    /// Reads everything that a start reads, except counters, and reports all errors.
    pub(super) fn check(&mut self) -> Result<ExitCode, Failure> {
        self.rules.require_rules();
        let (tls, tokens) = (self.tls.settings(), self.http.http_token_file.as_deref());
        let mut errors = self.settings().err().unwrap_or_default();
        errors.extend(self.compat().err());
        errors.extend(self.decision_log.settings().err());
        errors.extend(server::check_files(&tls, tokens, &SystemClock::new()).into_iter().map(Failure::from));
        errors.extend(server::check_exports().into_iter().map(Failure::from));
        if errors.is_empty() {
            println!("the settings, and the files that they name, are valid");
            return Ok(ExitCode::SUCCESS);
        }
        Err(Failure::all(errors))
    }
}
