//! `tidegate token`: makes a bearer token of the HTTP port.

use crate::{
    api::{NewToken, TokenName},
    cli::Failure,
};
use clap::Args;
use std::{fs::OpenOptions, io::Write, os::unix::fs::FileTypeExt as _, path::PathBuf, process::ExitCode};
use tidegate_operations::control::Role;

/// Makes a bearer token for the HTTP port of `serve --http-token-file`.
///
/// The token is printed once and stored nowhere; the file has its hash. Without --file, the line for the file is printed as well.
#[derive(Args)]
pub(in crate::cli) struct Token {
    /// Name of the token, for people: 1 to 64 of A-Z a-z 0-9 . _ -
    name: TokenName,
    /// File to append the line to; created if it does not exist.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Role: lease (docs/leases.md), read (docs/control.md), or operate, which includes both. Without it the token has none.
    #[arg(long)]
    role: Option<Role>,
}

impl Token {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let token = NewToken::generate(self.name, self.role.unwrap_or_default())?;
        match &self.file {
            None => println!("token: {}\nline:  {}", token.text(), token.line()),
            Some(path) => {
                if path.metadata().is_ok_and(|found| found.file_type().is_fifo()) {
                    eprintln!("{} is a pipe: waiting until a program reads it", path.display());
                }
                let options = OpenOptions::new().append(true).create(true).open(path);
                // One write: a server that watches the file reads the whole line.
                let line = format!("{}\n", token.line());
                let written = options.and_then(|mut file| file.write_all(line.as_bytes()));
                written.map_err(Failure::at(path))?;
                println!("{}", token.text());
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
