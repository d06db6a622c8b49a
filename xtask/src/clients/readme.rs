//! The README of each client in an empty project: the program, and the output that its test saw.
//!
//! The test of the built package writes both to the file that [`VARIABLE`] names, so that a run shows them.

use super::languages::Language;
use crate::Failure;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The environment variable with the path of the file.
const VARIABLE: &str = "TIDEGATE_README_TRANSCRIPT";

/// The file of one language.
pub(super) struct Transcript<'l> {
    name: &'l str,
    path: PathBuf,
}

impl<'l> Transcript<'l> {
    /// Removes the file of an earlier run.
    pub(super) fn new(repository: &Path, language: &'l Language) -> Result<Self, Failure> {
        let folder = repository.join("target/client-readme");
        let path = folder.join(language.folder);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(format!("{}: {error}", path.display()))
            }
            _ => Ok(Self { name: &language.name, path }),
        }
    }

    /// Returns the variable and its value.
    pub(super) fn variable(&self) -> (&'static str, &Path) {
        (VARIABLE, &self.path)
    }

    /// Returns the text under a title; empty if the test did not run.
    pub(super) fn read(&self) -> Result<String, Failure> {
        match fs::read_to_string(&self.path) {
            Ok(text) => {
                Ok(format!("--- {}: the README in an empty project\n{}\n", self.name, text.trim_end()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(format!("{}: {error}", self.path.display())),
        }
    }
}
