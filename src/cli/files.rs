//! Files that commands read and write; `-` is standard input or output.

use super::Failure;
use std::{
    fs::{File, OpenOptions},
    io::{self, BufWriter, Read, Write},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// Whether the argument means standard input or output.
pub(super) fn is_standard(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// Opens the content, with its length, or 0 for standard input, whose length is unknown.
pub(super) fn open(file: &Path) -> Result<(Box<dyn Read>, u64), Failure> {
    if is_standard(file) {
        return Ok((Box::new(io::stdin().lock()), 0));
    }
    let content = File::open(file).map_err(Failure::at(file))?;
    let length = content.metadata().map_err(Failure::at(file))?.len();
    Ok((Box::new(content), length))
}

/// The file for an export, which must not exist; only its owner can read it.
pub(super) fn create(file: &Path) -> Result<BufWriter<Box<dyn Write>>, Failure> {
    if is_standard(file) {
        return Ok(BufWriter::new(Box::new(io::stdout().lock())));
    }
    let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    Ok(BufWriter::new(Box::new(created.map_err(Failure::at(file))?)))
}
