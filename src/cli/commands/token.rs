//! `tidegate token`: makes a bearer token of the HTTP port.

use crate::{
    api::{NewToken, TokenName, Tokens},
    cli::Failure,
};
use clap::Args;
use std::{
    fs::{self, FileType, OpenOptions},
    io::Write,
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
    process::ExitCode,
};
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
        let token = NewToken::generate(self.name.clone(), self.role.unwrap_or_default())?;
        match &self.file {
            None => println!("token: {}\nline:  {}", token.text(), token.line()),
            Some(path) => {
                self.append(&token.line(), path)?;
                println!("{}", token.text());
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Appends the line, unless a server would refuse the file with it.
    fn append(&self, line: &str, path: &Path) -> Result<(), Failure> {
        let found = path.metadata().map(|found| found.file_type());
        if found.as_ref().is_ok_and(FileType::is_fifo) {
            eprintln!("{} is a pipe: waiting until a program reads it", path.display());
        }
        // The content of a pipe or of a device is not known.
        let begin = match found.is_ok_and(|found| found.is_file()) {
            true => self.before_line(&fs::read_to_string(path).map_err(Failure::at(path))?, path)?,
            false => "",
        };
        let file = OpenOptions::new().append(true).create(true).open(path);
        // One write: a server that watches the file reads the whole line.
        let written = file.and_then(|mut file| file.write_all(format!("{begin}{line}\n").as_bytes()));
        written.map_err(Failure::at(path))
    }

    /// The end of line that this content of the file lacks.
    fn before_line(&self, content: &str, path: &Path) -> Result<&'static str, Failure> {
        let tokens = Tokens::parse_again(content).map_err(Failure::at(path))?;
        if tokens.has(&self.name) {
            let error = format!(
                "the name {} is in the file already; remove its line first, or choose another",
                self.name
            );
            return Err(Failure::at(path)(error));
        }
        Ok(if content.is_empty() || content.ends_with('\n') { "" } else { "\n" })
    }
}
