//! The targets of lines: a file, standard output or a Unix socket.
//!
//! After any failure, a reader finds complete lines. Only the last line may be cut off, if the process was killed.

use super::target::Target;
use std::{
    fmt::Display,
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::{
        fs::{FileTypeExt as _, OpenOptionsExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    time::Duration,
};

/// Time in which a socket's reader has to accept bytes.
const SOCKET_TIMEOUT: Duration = Duration::from_secs(1);

/// Rotation of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rotation {
    /// Bytes at which a file is renamed to PATH.1, without the rules at its start. None to let it grow.
    pub bytes_max: Option<u64>,
    /// Number of renamed files that are kept.
    pub files_kept: u32,
}

/// An open target.
pub(super) enum Sink {
    File(LogFile),
    Stdout,
    Socket { path: PathBuf, stream: Option<UnixStream> },
}

impl Sink {
    /// Opens the target. A socket's reader may connect later.
    pub(super) fn open(target: &Target, rotation: Rotation) -> io::Result<Self> {
        match target {
            Target::File(path) => LogFile::open(path.clone(), rotation).map(Self::File),
            Target::Stdout => Ok(Self::Stdout),
            Target::Socket(path) => Ok(Self::Socket { path: path.clone(), stream: None }),
        }
    }

    /// Makes the target ready for `bytes`. Returns whether it is another file or connection than before. Call it before each write.
    pub(super) fn prepare(&mut self, bytes: usize) -> io::Result<bool> {
        match self {
            Self::File(file) => file.prepare(bytes),
            Self::Stdout => Ok(false),
            Self::Socket { stream: Some(_), .. } => Ok(false),
            Self::Socket { path, stream } => {
                *stream = Some(connect(path)?);
                Ok(true)
            }
        }
    }

    /// Writes complete lines: all of them, or an error. The first `rules_bytes` are the line of the rules.
    pub(super) fn write(&mut self, lines: &[u8], rules_bytes: usize) -> io::Result<()> {
        match self {
            Self::File(file) => file.write(lines, rules_bytes),
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(lines).and_then(|()| stdout.flush())
            }
            Self::Socket { stream, .. } => {
                // A connection with an incomplete line is not used again.
                let mut open = stream.take().ok_or(io::ErrorKind::NotConnected)?;
                open.write_all(lines)?;
                *stream = Some(open);
                Ok(())
            }
        }
    }

    /// Reopens a file by its path, as another process may have renamed it. Reconnects to a socket.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        match self {
            Self::File(file) => file.reopen(),
            Self::Stdout => Ok(()),
            Self::Socket { stream, .. } => {
                *stream = None;
                Ok(())
            }
        }
    }
}

fn connect(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path)?;
    stream.set_write_timeout(Some(SOCKET_TIMEOUT))?;
    Ok(stream)
}

/// A file to which lines are appended.
pub(super) struct LogFile {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    /// Bytes of complete lines.
    bytes: u64,
    /// Bytes of the rules with which the file starts. Each file repeats them, so that a rotation makes no room for them.
    rules_bytes: u64,
    /// Whether a failed write may have left an incomplete line after them.
    has_remnant: bool,
    /// Whether nothing was written to this file since it was opened.
    is_new: bool,
}

impl LogFile {
    fn open(path: PathBuf, rotation: Rotation) -> io::Result<Self> {
        let (file, bytes) = open_file(&path)?;
        Ok(Self { path, rotation, file, bytes, rules_bytes: 0, has_remnant: false, is_new: true })
    }

    fn prepare(&mut self, bytes: usize) -> io::Result<bool> {
        if self.has_remnant {
            self.file.set_len(self.bytes)?;
            self.has_remnant = false;
        }
        let counted = self.bytes - self.rules_bytes;
        if self.rotation.bytes_max.is_some_and(|max| counted > 0 && counted + bytes as u64 > max) {
            self.rotate()?;
        }
        Ok(std::mem::take(&mut self.is_new))
    }

    fn write(&mut self, lines: &[u8], rules_bytes: usize) -> io::Result<()> {
        if let Err(error) = self.file.write_all(lines) {
            // A full disk accepts part of a write. Truncating a file needs no space.
            self.has_remnant = self.file.set_len(self.bytes).is_err();
            return Err(error);
        }
        if self.bytes == 0 {
            self.rules_bytes = rules_bytes as u64;
        }
        self.bytes += lines.len() as u64;
        Ok(())
    }

    /// Renames PATH to PATH.1, PATH.1 to PATH.2 and so on, and starts PATH anew. The oldest file is replaced.
    ///
    /// The new file is opened as PATH.next first, and files are only moved up to a free number: rotations that fail and are repeated replace
    /// no more files than a rotation that succeeds.
    fn rotate(&mut self) -> io::Result<()> {
        let beside = |ending: &dyn Display| {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".{ending}"));
            PathBuf::from(name)
        };
        let next = beside(&"next");
        let opened = open_file(&next)?;
        let kept = self.rotation.files_kept;
        if kept > 0 && self.path.exists() {
            let last = (1..kept).find(|number| !beside(number).exists()).unwrap_or(kept);
            for number in (1..last).rev() {
                fs::rename(beside(&number), beside(&(number + 1)))?;
            }
            fs::rename(&self.path, beside(&1))?;
        }
        fs::rename(next, &self.path)?;
        self.use_file(opened);
        Ok(())
    }

    fn reopen(&mut self) -> io::Result<()> {
        self.use_file(open_file(&self.path)?);
        Ok(())
    }

    fn use_file(&mut self, opened: (File, u64)) {
        (self.file, self.bytes) = opened;
        (self.rules_bytes, self.has_remnant, self.is_new) = (0, false, true);
    }
}

/// The file and its length, at the end of a line. If a killed process left an incomplete line, it gets a newline, so that it does not spoil
/// the next line.
fn open_file(path: &Path) -> io::Result<(File, u64)> {
    let options = OpenOptions::new().read(true).append(true).create(true).mode(0o640).clone();
    let mut file = options.open(path)?;
    let metadata = file.metadata()?;
    if metadata.file_type().is_fifo() {
        // Without a reader, a pipe accepts only some kilobytes.
        return Err(io::Error::other("is a pipe; write - for standard output, or unix:PATH for a socket"));
    }
    // Devices, such as /dev/null, have no last byte.
    if !metadata.is_file() || metadata.len() == 0 {
        return Ok((file, 0));
    }
    let mut bytes = metadata.len();
    let mut last = [0];
    file.seek(SeekFrom::Start(bytes - 1))?;
    file.read_exact(&mut last)?;
    if last != *b"\n" {
        file.write_all(b"\n")?;
        bytes += 1;
    }
    Ok((file, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::read_to_string;

    fn file(folder: &Path, bytes_max: Option<u64>) -> Sink {
        rotated(folder, Rotation { bytes_max, files_kept: 2 })
    }

    fn rotated(folder: &Path, rotation: Rotation) -> Sink {
        Sink::open(&Target::File(folder.join("d.log")), rotation).expect("a new file")
    }

    fn write(sink: &mut Sink, lines: &[u8]) {
        sink.prepare(lines.len()).expect("ready");
        sink.write(lines, 0).expect("written");
    }

    #[test]
    fn a_cut_off_line_does_not_spoil_the_next_one() {
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("d.log"), "{\"v\":1}\n{\"v\":").expect("written");
        write(&mut file(folder.path(), None), b"{\"v\":1}\n");
        let text = read_to_string(folder.path().join("d.log")).expect("text");
        assert_eq!(text, "{\"v\":1}\n{\"v\":\n{\"v\":1}\n");
    }

    #[test]
    fn a_file_is_rotated_before_it_exceeds_its_size_and_the_oldest_is_replaced() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut sink = file(folder.path(), Some(8));
        for line in ["one\n", "two\n", "three\n", "four\n", "five\n", "longer than all\n"] {
            write(&mut sink, line.as_bytes());
        }
        let read = |name: &str| read_to_string(folder.path().join(name)).ok();
        assert_eq!(read("d.log").as_deref(), Some("longer than all\n"));
        assert_eq!(read("d.log.1").as_deref(), Some("five\n"));
        assert_eq!(read("d.log.2").as_deref(), Some("four\n"));
        assert_eq!(read("d.log.3"), None);
    }

    #[test]
    fn a_renamed_file_is_written_until_the_path_is_opened_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, old) = (folder.path().join("d.log"), folder.path().join("old"));
        let mut sink = file(folder.path(), None);
        write(&mut sink, b"one\n");
        fs::rename(&path, &old).expect("renamed");
        write(&mut sink, b"two\n");
        sink.reopen().expect("opened");
        write(&mut sink, b"three\n");
        assert_eq!(read_to_string(old).expect("text"), "one\ntwo\n");
        assert_eq!(read_to_string(path).expect("text"), "three\n");
    }

    /// Each write rotated the file, so that the kept files had few lines.
    #[test]
    fn rules_at_the_start_of_a_file_do_not_count_towards_its_size() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut sink = file(folder.path(), Some(8));
        sink.prepare(0).expect("ready");
        sink.write(b"longer than all\n", 16).expect("written");
        for line in ["longer than 8\n", "two\n", "three\n"] {
            let is_new = sink.prepare(line.len()).expect("ready");
            let rules = if is_new { "rules\n" } else { "" };
            sink.write(format!("{rules}{line}").as_bytes(), rules.len()).expect("written");
        }
        let read = |name: &str| read_to_string(folder.path().join(name)).ok();
        assert_eq!(read("d.log.2").as_deref(), Some("longer than all\nlonger than 8\n"));
        assert_eq!(read("d.log.1").as_deref(), Some("rules\ntwo\n"));
        assert_eq!(read("d.log").as_deref(), Some("rules\nthree\n"));
    }

    /// Each failed rotation deleted a kept file.
    #[test]
    fn a_rotation_that_cannot_open_the_new_file_deletes_no_kept_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut sink = rotated(folder.path(), Rotation { bytes_max: Some(8), files_kept: 3 });
        for line in ["first\n", "second\n", "third\n", "fourth\n"] {
            write(&mut sink, line.as_bytes());
        }
        let next = folder.path().join("d.log.next");
        fs::create_dir(&next).expect("a folder");
        let read = || {
            let read = |name| read_to_string(folder.path().join(name)).unwrap_or_default();
            ["d.log", "d.log.1", "d.log.2", "d.log.3"].map(read)
        };
        for _ in 0..5 {
            assert!(sink.prepare(8).is_err());
            assert_eq!(read(), ["fourth\n", "third\n", "second\n", "first\n"]);
        }
        fs::remove_dir(next).expect("removed");
        write(&mut sink, b"fifth\n");
        assert_eq!(read(), ["fifth\n", "fourth\n", "third\n", "second\n"]);
    }

    #[test]
    fn a_rotation_fills_the_first_free_number_and_moves_no_file_beyond_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("d.log.1"), "newer\n").expect("written");
        fs::write(path("d.log.3"), "older\n").expect("written");
        let mut sink = rotated(folder.path(), Rotation { bytes_max: Some(8), files_kept: 3 });
        ["first\n", "second\n"].iter().for_each(|line| write(&mut sink, line.as_bytes()));
        let read = |name| read_to_string(path(name)).expect("text");
        assert_eq!(
            ["d.log", "d.log.1", "d.log.2", "d.log.3"].map(read),
            ["second\n", "first\n", "newer\n", "older\n"]
        );
    }

    /// No line was written any more.
    #[test]
    fn a_file_that_was_moved_away_is_begun_anew_at_its_size() {
        for files_kept in [0, 2] {
            let folder = tempfile::tempdir().expect("a folder");
            let mut sink = rotated(folder.path(), Rotation { bytes_max: Some(8), files_kept });
            write(&mut sink, b"first\n");
            fs::rename(folder.path().join("d.log"), folder.path().join("old")).expect("moved");
            write(&mut sink, b"second\n");
            assert_eq!(read_to_string(folder.path().join("d.log")).expect("text"), "second\n");
            assert!(!folder.path().join("d.log.1").exists());
        }
    }
}
