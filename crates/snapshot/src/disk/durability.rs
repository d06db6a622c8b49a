//! Makes files durable in an order that survives a power cut: content first, then the directory with their names, then whatever refers to
//! them.

use super::deadline::Permit;
use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

/// Makes the content of a file durable, or the names of the files in a directory: [`sync`], or in a test a call that is recorded.
pub(crate) type SyncCall = dyn Fn(&Path) -> io::Result<()> + Send + Sync;

/// The system call.
pub(crate) fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Writes a file under another name, makes it durable, and renames it. A reader finds the former file or the new one, never a part.
pub(crate) fn replace_file(path: &Path, content: &[u8], sync: &SyncCall, permit: &Permit) -> io::Result<()> {
    let (beside, directory) = (path.with_extension("new"), path.parent().unwrap_or(Path::new(".")));
    // A new file each time: an abandoned thread may still be writing to the former file.
    match fs::remove_file(&beside) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    File::create_new(&beside)?.write_all(content)?;
    sync(&beside)?;
    permit.with(|| fs::rename(&beside, path))?;
    sync(directory)
}
