//! Makes files durable in an order that survives a power cut: content first, then the directory with their names, then whatever refers to
//! them.

use super::deadline::Permit;
use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

/// The system calls that make files durable. A test records them.
pub(crate) trait Durability: Send + Sync {
    /// Makes the file's content durable.
    fn sync_file(&self, path: &Path) -> io::Result<()>;
    /// Makes the names of the files in the directory durable.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
}

/// The system calls of the operating system.
pub(crate) struct Os;

impl Durability for Os {
    fn sync_file(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }
}

/// Writes a file under another name, makes it durable, and renames it. A reader finds the former file or the new one, never a part.
pub(crate) fn replace_file(
    path: &Path,
    content: &[u8],
    durability: &dyn Durability,
    permit: &Permit,
) -> io::Result<()> {
    let (beside, directory) = (path.with_extension("new"), path.parent().unwrap_or(Path::new(".")));
    // A new file each time: an abandoned thread may still be writing to the former file.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::create_new(&beside)?.write_all(content)?;
    durability.sync_file(&beside)?;
    permit.with(|| fs::rename(&beside, path))?;
    durability.sync_directory(directory)
}
