//! Reads rule files: the only IO of this module.
//!
//! A directory is read recursively, in the order of its names. Names that begin with a dot are skipped: a Kubernetes
//! ConfigMap keeps its generations below `..data`, with a symbolic link for each file beside it.

use super::{
    SourceId,
    error::{Problems, RuleErrors},
};
use std::{
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

/// One document that declares rules: the text of a rule file, or one with the same grammar from elsewhere.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// The document, as errors and origins name it.
    pub id: SourceId,
    /// The whole text.
    pub text: String,
}

impl Source {
    /// The text of a rule file.
    pub fn file(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self { id: SourceId::file(path.into()), text: text.into() }
    }
}

/// Maximum depth of nested directories: symbolic links can make a loop of them.
const DEPTH_MAX: usize = 16;

/// Reads the files, and all `.yaml` and `.yml` files in and below the directories. The path `-` is standard input.
pub fn read(paths: &[PathBuf]) -> Result<Vec<Source>, RuleErrors> {
    let mut problems = Problems::default();
    let mut sources = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            let mut bytes = Vec::new();
            let read = io::stdin().read_to_end(&mut bytes).map(|_| bytes);
            add_source(SourceId::file("<stdin>"), read, &mut sources, &mut problems);
        } else if path.is_dir() {
            let before = sources.len();
            match read_directory(path, 0, &mut sources, &mut problems) {
                Ok(()) if sources.len() > before => {}
                Ok(()) => problems.of_source(source_id(path), "has no .yaml or .yml file that could be read"),
                Err(error) => problems.of_source(source_id(path), format!("cannot be listed: {error}")),
            }
        } else {
            read_file(path, &mut sources, &mut problems);
        }
    }
    problems.or(sources)
}

fn source_id(path: &Path) -> SourceId {
    SourceId::file(path.display().to_string())
}

fn read_directory(
    directory: &Path,
    depth: usize,
    sources: &mut Vec<Source>,
    problems: &mut Problems,
) -> io::Result<()> {
    if depth > DEPTH_MAX {
        let message =
            format!("is more than {DEPTH_MAX} directories deep; does a symbolic link point back up?");
        problems.of_source(source_id(directory), message);
        return Ok(());
    }
    let mut paths = fs::read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    for path in paths {
        let hidden = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
        if hidden {
            continue;
        }
        // Follows symbolic links.
        if path.is_dir() {
            if let Err(error) = read_directory(&path, depth + 1, sources, problems) {
                problems.of_source(source_id(&path), format!("cannot be listed: {error}"));
            }
        } else if path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
            read_file(&path, sources, problems);
        }
    }
    Ok(())
}

fn read_file(path: &Path, sources: &mut Vec<Source>, problems: &mut Problems) {
    add_source(source_id(path), fs::read(path), sources, problems);
}

fn add_source(id: SourceId, read: io::Result<Vec<u8>>, sources: &mut Vec<Source>, problems: &mut Problems) {
    match read {
        Err(error) => problems.of_source(id, format!("cannot be read: {error}")),
        Ok(bytes) => match String::from_utf8(bytes) {
            Ok(text) => sources.push(Source { id, text }),
            Err(error) => {
                let good = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let line = 1 + good.iter().filter(|byte| **byte == b'\n').count();
                problems.of_source(id, format!("line {line} is not UTF-8; save the file as UTF-8"));
            }
        },
    }
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
