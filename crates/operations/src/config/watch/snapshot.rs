//! State of the files below some paths, enough to detect changes.

use std::{
    collections::{BTreeSet, HashSet},
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};
use tidegate_core::rules::RuleFilePaths;

/// Maximum depth of directories, as for rule files: symbolic links can form a loop.
const DEPTH_MAX: usize = 16;

/// The files at and below some paths, without the hidden ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FilesSnapshot(Vec<(PathBuf, Content)>);

/// The file at a path; symbolic links are followed.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Content {
    File(FileVersion),
    Directory,
    Missing(io::ErrorKind),
}

/// A version that changes with every change of a file's content.
#[derive(Clone, PartialEq, Eq, Debug)]
struct FileVersion {
    device: u64,
    inode: u64,
    length: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
    /// Time of the last change of content or metadata. A writer cannot set it back.
    changed: (i64, i64),
}

impl FilesSnapshot {
    pub(super) fn of(watched: &RuleFilePaths) -> Self {
        let mut found = Vec::new();
        for path in &watched.paths {
            let mut add = |path: &Path, content| found.push((path.to_owned(), content));
            match watched.matching(path) {
                Ok(paths) => paths.iter().for_each(|path| walk(watched, path, 0, &mut add)),
                Err(error) => add(path, Content::Missing(error.kind())),
            }
        }
        Self(found)
    }
}

/// The directories in which something changes whenever a file at or below the paths does: those of the files, of the targets of symbolic
/// links, and of the links on the way.
pub(super) fn directories(watched: &RuleFilePaths) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for path in &watched.paths {
        let links = path.ancestors().filter(|ancestor| ancestor.is_symlink());
        found.extend(links.chain([path.as_path()]).map(parent));
        let mut add = |path: &Path, content| {
            match content {
                Content::Directory => _ = found.insert(path.to_owned()),
                Content::File(_) | Content::Missing(_) => {}
            }
            if let Ok(target) = path.canonicalize().map(|target| parent(&target)) {
                found.insert(target);
            }
        };
        // A directory that cannot be listed has no files to watch.
        let paths = watched.matching(path).unwrap_or_default();
        paths.iter().for_each(|path| walk(watched, path, 0, &mut add));
    }
    found
}

/// The files at and below the paths, under the names that lead to them, and under those of the targets of symbolic links.
pub(super) fn files(watched: &RuleFilePaths) -> HashSet<PathBuf> {
    let FilesSnapshot(found) = FilesSnapshot::of(watched);
    let of_files = found.into_iter().filter(|(_, content)| matches!(content, Content::File(_)));
    of_files.flat_map(|(path, _)| path.canonicalize().into_iter().chain([path])).collect()
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

fn walk(watched: &RuleFilePaths, path: &Path, depth: usize, visit: &mut dyn FnMut(&Path, Content)) {
    let metadata = match fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return visit(path, Content::Missing(error.kind())),
    };
    if !metadata.is_dir() {
        let version = FileVersion {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        };
        return visit(path, Content::File(version));
    }
    visit(path, Content::Directory);
    let entries = match fs::read_dir(path) {
        Ok(entries) if depth < DEPTH_MAX => entries,
        Ok(_) => return,
        Err(error) => return visit(path, Content::Missing(error.kind())),
    };
    let mut below: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    below.retain(|path| !watched.is_hidden(path));
    below.sort();
    for path in below {
        walk(watched, &path, depth + 1, visit);
    }
}
