//! Files that are replaced as a whole. They always have either the former content or the next, even if the process ends in between.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

/// Replaces a file. Only its owner can read it, as it may contain values of requests.
pub(crate) fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let next = path.with_extension("next");
    let mut options = fs::OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&next)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&next, path)?;
    match path.parent() {
        // The name has to be durable too.
        Some(directory) if !directory.as_os_str().is_empty() => fs::File::open(directory)?.sync_all(),
        _ => Ok(()),
    }
}
