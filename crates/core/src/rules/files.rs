//! Reads rule files: the only IO of this module.
//!
//! A directory is read recursively, in the order of its names. Names that begin with a dot are skipped: a Kubernetes
//! ConfigMap keeps its generations below `..data`, with a symbolic link for each file beside it.

use super::{
    Origin, RuleError, Source, SourceId,
    error::{Problems, RuleErrors},
    other_files,
};
use rustix::fs::OFlags;
use std::{
    ffi::OsStr,
    fs,
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// Length of one read. The system does not interrupt a read for another thread: a read of 13 MB delayed decisions by 10 ms.
const PIECE_BYTES: u64 = 64 << 10;

/// Maximum length of a file. The longest useful files, of a million blocks, are a tenth of it.
const FILE_BYTES_MAX: u64 = 256 << 20;

/// Maximum length of a file that is examined although it is not read.
const UNREAD_BYTES_MAX: u64 = 1 << 20;

/// Maximum depth of nested directories: symbolic links can make a loop of them.
const DEPTH_MAX: usize = 16;

/// Files and directories of rule files, and which files of a directory are read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RuleFilePaths {
    /// The files and directories. `-` is standard input, and `DIRECTORY/NAME.*` a pattern ([`RuleFilePaths::matching`]).
    pub paths: Vec<PathBuf>,
    /// Every file of a directory; else those that end in `.yaml` or `.yml`. A directory may then have none.
    pub every_file: bool,
    /// Files whose names begin with a dot too, but not with two.
    pub dot_files: bool,
}

/// These files and directories, with the usual choice of their files.
impl From<Vec<PathBuf>> for RuleFilePaths {
    fn from(paths: Vec<PathBuf>) -> Self {
        Self { paths, ..Self::default() }
    }
}

/// Reads the files, and all `.yaml` and `.yml` files in and below the directories. The path `-` is standard input.
pub fn read(paths: &[PathBuf]) -> Result<Vec<Source>, RuleErrors> {
    RuleFilePaths::from(paths.to_vec()).read()
}

impl RuleFilePaths {
    /// Reads the files, or returns every error.
    pub fn read(&self) -> Result<Vec<Source>, RuleErrors> {
        let mut reader = Reader { of: self, sources: Vec::new(), problems: Problems::default() };
        for path in &self.paths {
            match self.matching(path) {
                Ok(found) => found.iter().for_each(|path| reader.read(path)),
                Err(error) => {
                    let message = format!("its directory cannot be listed: {error}");
                    reader.problems.of_source(source_id(path), message);
                }
            }
        }
        reader.problems.or(reader.sources)
    }

    /// Reads the files as files of blocks, or returns every error.
    pub fn read_blocks(&self) -> Result<Vec<Source>, RuleErrors> {
        let of_blocks = |source: Source| match source.id {
            SourceId::File(path) => Source { id: SourceId::Blocks(path), ..source },
            _ => source,
        };
        self.read().map(|sources| sources.into_iter().map(of_blocks).collect())
    }

    /// The files and directories at one of these paths. If it is a pattern `DIRECTORY/NAME.*`, those in `DIRECTORY` whose names begin with
    /// `NAME.`, without the hidden ones, in the order of their names. None if the path is missing and the pattern `PATH.*`, which is one of
    /// these paths too, has some.
    pub fn matching(&self, path: &Path) -> io::Result<Vec<PathBuf>> {
        if let Some((directory, begin)) = pattern(path) {
            return self.beginning_with(directory, begin);
        }
        let beside = PathBuf::from([path.as_os_str(), OsStr::new(".*")].join(OsStr::new("")));
        let is_missing =
            || fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
        let has_others = || self.matching(&beside).is_ok_and(|found| !found.is_empty());
        let is_absent = self.paths.contains(&beside) && is_missing() && has_others();
        Ok(if is_absent { Vec::new() } else { vec![path.to_owned()] })
    }

    fn beginning_with(&self, directory: &Path, begin: &str) -> io::Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(begin.as_bytes()) {
                found.push(entry.path());
            }
        }
        found.retain(|path| !self.is_hidden(path));
        found.sort();
        Ok(found)
    }

    /// Warnings about files of the directories that look like rule files, and are not read because of their names.
    pub fn unread(&self) -> Vec<RuleError> {
        let mut found = Vec::new();
        if !self.every_file {
            self.paths
                .iter()
                .filter(|path| path.is_dir())
                .for_each(|path| self.find_unread(path, 0, &mut found));
        }
        found
    }

    fn find_unread(&self, directory: &Path, depth: usize, found: &mut Vec<RuleError>) {
        // What cannot be listed is an error of `read`.
        let Ok(entries) = fs::read_dir(directory) else { return };
        let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths.iter().filter(|path| !self.is_hidden(path)) {
            if path.is_dir() && depth < DEPTH_MAX {
                self.find_unread(path, depth + 1, found);
            } else if !self.selects(path) && !is_left_behind(path) && has_rules(path) {
                let message = "is not read, since it does not end in .yaml or .yml: its rules limit nothing; rename it, or start with \
                               --rules-every-file";
                let origin = Origin { source: source_id(path), position: None };
                found.push(RuleError { origin, path: String::new(), message: message.to_owned() });
            }
        }
    }

    fn selects(&self, path: &Path) -> bool {
        self.every_file || path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
    }

    /// Whether a file or directory in a directory is passed over because of the dots before its name.
    pub fn is_hidden(&self, path: &Path) -> bool {
        let begin: &[u8] = if self.dot_files { b".." } else { b"." };
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(begin))
    }
}

/// Whether a file is, by its name, a copy as editors and people leave it, or a page.
fn is_left_behind(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    let ends = ["~", ".bak", ".disabled", ".md", ".old", ".orig", ".swp", ".tmp"];
    ends.iter().any(|end| name.ends_with(end.as_bytes()))
}

/// Whether a file is a rule file by its content.
fn has_rules(path: &Path) -> bool {
    let text = read_text(path, UNREAD_BYTES_MAX);
    text.is_ok_and(|text| other_files::looks_like_rules(&text))
}

/// `DIRECTORY` and `NAME.`, if the path is `DIRECTORY/NAME.*`.
fn pattern(path: &Path) -> Option<(&Path, &str)> {
    let begin = path.file_name()?.to_str()?.strip_suffix('*').filter(|begin| begin.ends_with('.'))?;
    let directory = path.parent()?;
    Some((if directory.as_os_str().is_empty() { Path::new(".") } else { directory }, begin))
}

/// The text of a regular file of at most so many bytes. A pipe or a device might never end, or never begin.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    String::from_utf8(read_regular(path, bytes_max)?).map_err(|_| io::Error::other("is not UTF-8"))
}

/// The bytes of a regular file of at most so many.
pub fn read_regular(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    // Checked before opening, which blocks until the other end of a pipe is opened.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("is not a regular file"));
    }
    // Reading must not block either: files of /proc may block forever, and so may a pipe that was put there meanwhile.
    let mut file = fs::File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("is not a regular file"));
    }
    let too_long = || io::Error::other(format!("is longer than {bytes_max} bytes"));
    let length = file.metadata()?.len();
    if length > bytes_max {
        return Err(too_long());
    }
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length.try_into().unwrap_or(usize::MAX))?;
    let blocks = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock => io::Error::other("its read blocks; put a plain file there"),
        _ => error,
    };
    while (&mut file).take(PIECE_BYTES).read_to_end(&mut bytes).map_err(blocks)? > 0 {
        // It may grow meanwhile.
        if bytes.len() as u64 > bytes_max {
            return Err(too_long());
        }
    }
    Ok(bytes)
}

/// The sources read so far, and the errors.
struct Reader<'p> {
    of: &'p RuleFilePaths,
    sources: Vec<Source>,
    problems: Problems,
}

impl Reader<'_> {
    fn read(&mut self, path: &Path) {
        if path.as_os_str() == "-" {
            let mut bytes = Vec::new();
            let read = io::stdin().read_to_end(&mut bytes).map(|_| bytes);
            self.add(SourceId::file("<stdin>"), read);
        } else if path.is_dir() {
            let before = self.sources.len();
            match self.read_directory(path, 0) {
                Ok(()) if self.of.every_file || self.sources.len() > before => {}
                Ok(()) => {
                    self.problems.of_source(source_id(path), "has no .yaml or .yml file that could be read")
                }
                Err(error) => self.problems.of_source(source_id(path), format!("cannot be listed: {error}")),
            }
        } else {
            self.read_file(path);
        }
    }

    fn read_directory(&mut self, directory: &Path, depth: usize) -> io::Result<()> {
        if depth > DEPTH_MAX {
            let message =
                format!("is more than {DEPTH_MAX} directories deep; does a symbolic link point back up?");
            self.problems.of_source(source_id(directory), message);
            return Ok(());
        }
        let mut paths = fs::read_dir(directory)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<io::Result<Vec<_>>>()?;
        paths.sort();
        for path in paths {
            if self.of.is_hidden(&path) {
                continue;
            }
            // Follows symbolic links.
            if path.is_dir() {
                if let Err(error) = self.read_directory(&path, depth + 1) {
                    self.problems.of_source(source_id(&path), format!("cannot be listed: {error}"));
                }
            } else if self.of.selects(&path) {
                self.read_file(&path);
            }
        }
        Ok(())
    }

    fn read_file(&mut self, path: &Path) {
        self.add(source_id(path), read_regular(path, FILE_BYTES_MAX));
    }

    fn add(&mut self, id: SourceId, read: io::Result<Vec<u8>>) {
        match read {
            Err(error) => self.problems.of_source(id, format!("cannot be read: {error}")),
            Ok(bytes) => match String::from_utf8(bytes) {
                Ok(text) => self.sources.push(Source::new(id, text)),
                Err(error) => {
                    let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                    let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
                    self.problems.of_source(id, format!("line {line} is not UTF-8; save the file as UTF-8"));
                }
            },
        }
    }
}

fn source_id(path: &Path) -> SourceId {
    SourceId::file(path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(sources: &[Source]) -> Vec<String> {
        let file = |source: &Source| {
            Path::new(&source.id.to_string()).file_name().unwrap().to_string_lossy().into_owned()
        };
        sources.iter().map(file).collect()
    }

    #[test]
    fn a_directory_is_read_as_a_whole_in_the_order_of_its_names() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("c")).unwrap();
        for name in ["b.yaml", "a.yml", "c/d.yaml", ".hidden.yaml", "notes.txt"] {
            fs::write(dir.path().join(name), "domain: d").unwrap();
        }
        assert_eq!(names(&read(&[dir.path().into()]).unwrap()), ["a.yml", "b.yaml", "d.yaml"]);
    }

    /// The domain of such a file had no rules, and nothing named the file.
    #[test]
    fn files_with_rules_that_are_not_read_are_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("c")).unwrap();
        let rules = "# Rules.\ndomain: d\ndescriptors: []\n";
        for name in ["a.yaml", "b", "c/d.conf", "e.YAML", "f.yaml.bak", "g.yaml~", ".hidden"] {
            fs::write(dir.path().join(name), rules).unwrap();
        }
        fs::write(dir.path().join("h.json"), r#"{ "domain": "d", "descriptors": [] }"#).unwrap();
        fs::write(dir.path().join("notes.txt"), "The domain: see below.\n").unwrap();
        fs::write(dir.path().join("binary"), [0xff; 9]).unwrap();
        let mut paths = RuleFilePaths { paths: vec![dir.path().into()], ..RuleFilePaths::default() };
        let named = |paths: &RuleFilePaths| {
            let begin = format!("{}/", dir.path().display());
            let lines = paths.unread().into_iter().map(|warning| warning.to_string().replace(&begin, ""));
            lines.map(|line| line.split(": ").next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(named(&paths), ["b", "c/d.conf", "e.YAML", "h.json"]);
        paths.every_file = true;
        assert!(named(&paths).is_empty());
    }

    #[test]
    fn every_file_and_dot_files_are_read_on_request() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.yaml", "rules", ".hidden", "..generation"] {
            fs::write(dir.path().join(name), "domain: d").unwrap();
        }
        let paths = RuleFilePaths { paths: vec![dir.path().into()], every_file: true, dot_files: false };
        assert_eq!(names(&paths.read().unwrap()), ["b.yaml", "rules"]);
        let paths = RuleFilePaths { dot_files: true, ..paths };
        assert_eq!(names(&paths.read().unwrap()), [".hidden", "b.yaml", "rules"]);
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(RuleFilePaths { paths: vec![empty.path().into()], ..paths }.read(), Ok(Vec::new()));
    }

    /// With RUNTIME_WATCH_ROOT the reference server reads `config.yaml` beside `config/`.
    #[test]
    fn what_is_beside_a_directory_is_found_by_the_beginning_of_its_name() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("config.d")).unwrap();
        fs::create_dir(dir.path().join("config")).unwrap();
        for name in ["config/a", "config.yaml", "config.d/b", "configuration.yaml", "other.yaml"] {
            fs::write(dir.path().join(name), "domain: d").unwrap();
        }
        let paths = vec![dir.path().join("config"), dir.path().join("config.*")];
        let paths = RuleFilePaths { paths, every_file: true, dot_files: true };
        assert_eq!(names(&paths.read().unwrap()), ["a", "b", "config.yaml"]);
    }

    /// The reference server needs no `config/` then, and Tidegate refused `config.yaml` without it.
    #[test]
    fn a_missing_directory_is_an_error_only_if_nothing_is_beside_it() {
        let dir = tempfile::tempdir().unwrap();
        let paths = ["config", "config.*"].map(|name| dir.path().join(name)).to_vec();
        let paths = RuleFilePaths { paths, every_file: true, dot_files: true };
        let error = paths.read().unwrap_err().to_string();
        assert!(error.contains("/config: cannot be read: No such file"), "{error}");
        fs::write(dir.path().join("config.yaml"), "domain: d").unwrap();
        assert_eq!(names(&paths.read().unwrap()), ["config.yaml"]);
        std::os::unix::fs::symlink("nowhere", dir.path().join("config")).unwrap();
        let error = paths.read().unwrap_err().to_string();
        assert!(error.contains("/config: cannot be read: No such file"), "{error}");
    }

    /// A directory that could not be listed counted as a directory without files, so that a reload dropped all rules.
    #[test]
    fn a_pattern_whose_directory_cannot_be_listed_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "").unwrap();
        fs::write(dir.path().join("a.yaml"), "domain: d").unwrap();
        for unlisted in ["file", "gone"] {
            let errors = read(&[dir.path().join("a.yaml"), dir.path().join(unlisted).join("config.*")]);
            let errors = errors.unwrap_err().to_string();
            assert!(errors.contains("/config.*: its directory cannot be listed: "), "{errors}");
        }
    }

    /// Later reloads never began, and no line of the log named the file.
    #[test]
    fn a_file_whose_read_blocks_is_an_error_with_its_name() {
        let kernel_log = Path::new("/proc/kmsg");
        if fs::File::open(kernel_log).is_err() {
            return eprintln!("skipped: {} cannot be opened by this user", kernel_log.display());
        }
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.yaml"), "domain: d").unwrap();
        std::os::unix::fs::symlink(kernel_log, dir.path().join("blocks.yaml")).unwrap();
        let (done, read_again) = std::sync::mpsc::channel();
        let path = dir.path().to_owned();
        std::thread::spawn(move || done.send(read(&[path])));
        let error = read_again.recv_timeout(std::time::Duration::from_secs(10)).expect("it does not wait");
        let error = error.unwrap_err().to_string();
        assert!(error.contains("blocks.yaml: cannot be read: its read blocks"), "{error}");
    }

    #[test]
    fn files_longer_than_a_piece_are_read_to_the_end() {
        let dir = tempfile::tempdir().unwrap();
        for length in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 7] {
            let path = dir.path().join("r.yaml");
            let bytes: Vec<u8> = (0..length).map(|position| (position % 251) as u8).collect();
            fs::write(&path, &bytes).unwrap();
            assert_eq!(read_regular(&path, length).unwrap(), bytes);
            let too_long = length > 0 && read_regular(&path, length - 1).is_ok();
            assert!(!too_long, "{length}");
        }
    }

    /// A pipe ended all reloads silently and hung the start; a link to /dev/zero took all memory.
    #[cfg(unix)]
    #[test]
    fn pipes_and_devices_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.yaml"), "domain: d").unwrap();
        let pipe = std::process::Command::new("mkfifo").arg(dir.path().join("pipe.yaml")).status();
        assert!(pipe.unwrap().success());
        std::os::unix::fs::symlink("/dev/zero", dir.path().join("zero.yaml")).unwrap();
        let errors = read(&[dir.path().into()]).unwrap_err().to_string();
        assert_eq!(errors.matches("cannot be read: is not a regular file").count(), 2, "{errors}");
    }

    #[cfg(unix)]
    #[test]
    fn a_kubernetes_config_map_yields_each_file_once() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("..2026")).unwrap();
        fs::write(dir.path().join("..2026/rules.yaml"), "domain: d").unwrap();
        std::os::unix::fs::symlink("..2026", dir.path().join("..data")).unwrap();
        std::os::unix::fs::symlink("..data/rules.yaml", dir.path().join("rules.yaml")).unwrap();
        assert_eq!(names(&read(&[dir.path().into()]).unwrap()), ["rules.yaml"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_loop_of_symbolic_links_is_an_error_and_ends() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(".", dir.path().join("again")).unwrap();
        let errors = read(&[dir.path().into()]).unwrap_err().to_string();
        assert!(errors.contains("does a symbolic link point back up?"), "{errors}");
    }

    #[test]
    fn every_file_that_cannot_be_read_is_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("latin.yaml"), b"domain: d\n# caf\xe9\n").unwrap();
        fs::create_dir(dir.path().join("empty")).unwrap();
        let paths = ["latin.yaml", "gone.yaml", "empty"].map(|name| dir.path().join(name));
        let errors = read(&paths).unwrap_err();
        let errors: Vec<_> = errors.iter().map(|error| error.message.as_str()).collect();
        assert_eq!(errors[0], "line 2 is not UTF-8; save the file as UTF-8");
        assert!(errors[1].starts_with("cannot be read: "));
        assert_eq!(errors[2], "has no .yaml or .yml file that could be read");
    }
}
