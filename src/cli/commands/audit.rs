//! `tidegate audit`: verifies audit logs of the control API.

use crate::cli::{Failure, output::table};
use clap::Subcommand;
use std::{fs::File, io::BufReader, os::unix::fs::FileTypeExt as _, path::PathBuf, process::ExitCode};
use tidegate_operations::control::{VerifiedChain, verify_audit};

/// Verifies audit logs of the control API.
#[derive(Subcommand)]
pub(in crate::cli) enum Audit {
    /// Verifies the chain of hashes of an audit log.
    ///
    /// Exit code 0: no line was changed, removed or inserted. 1: the first line that breaks the chain is printed. Lines cut off at
    /// the end are not detected: compare the number and the hash of the last line with those that were noted elsewhere.
    Verify {
        /// The audit log.
        file: PathBuf,
    },
}

impl Audit {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let Self::Verify { file } = self;
        if file.metadata().is_ok_and(|found| found.file_type().is_fifo()) {
            eprintln!("{} is a pipe: reading until its writer closes it", file.display());
        }
        let lines = BufReader::new(File::open(&file).map_err(Failure::at(&file))?);
        match verify_audit(lines, |_| {}).map_err(Failure::at(&file))? {
            Ok(VerifiedChain { end, lines, bytes: _, torn_bytes }) => {
                let (number, hash, file) = (end.number, end.hash, file.display());
                table::print_line(format!(
                    "{file}: {lines} lines, the last has number {number} and hash {hash}"
                ));
                if torn_bytes > 0 {
                    let note = "of a line whose write was cut off; the server removes them when it starts";
                    table::print_line(format!("{file}: at the end, {torn_bytes} bytes {note}"));
                }
                Ok(ExitCode::SUCCESS)
            }
            Err(broken) => Err(Failure::at(&file)(broken)),
        }
    }
}
