//! `cargo xtask clients`: the client libraries against the server.

mod vectors;

use super::Failure;
use clap::Args;
use std::{fs, path::Path, process::ExitCode};

/// Tests the client libraries in `clients/`.
#[derive(Args)]
pub(super) struct Clients {
    /// Convert tests/vectors to the clients' conformance cases, and do nothing else.
    #[arg(long)]
    write_vectors: bool,
}

impl Clients {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        if self.write_vectors {
            let path = repository.join(vectors::CONVERTED);
            fs::write(&path, vectors::convert(&repository)?)
                .map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
