//! Flags of every command that reads rule files.

use crate::cli::Failure;
use clap::{Args, ValueEnum, builder::PossibleValuesParser};
use std::path::PathBuf;
use tidegate_core::rules::{
    DefaultAlgorithm, LoadOptions, RuleErrors, RuleFilePaths, RuleSet, Semantics, Source, SourceId,
};

/// Semantics to follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Compat {
    /// Those of envoyproxy/ratelimit: fixed windows, denied requests are charged, resets at the end of the window.
    Reference,
}

/// Interpretation of rule files.
#[derive(Args, Clone)]
pub(in crate::cli) struct ReadAs {
    /// Follow the semantics of another server instead of Tidegate's own.
    #[arg(long, env = "TIDEGATE_COMPAT")]
    compat: Option<Compat>,
    /// Algorithm of rules that name none, from files and from a control plane; by default sliding_window, and fixed_window with
    /// --compat reference.
    #[arg(
        long,
        env = "TIDEGATE_DEFAULT_ALGORITHM",
        value_name = "NAME",
        value_parser = PossibleValuesParser::new(DefaultAlgorithm::NAMES)
    )]
    pub(in crate::cli) default_algorithm: Option<String>,
    /// Allow several files to define the same domain.
    #[arg(long, env = "TIDEGATE_MERGE_DOMAINS")]
    pub(in crate::cli) merge_domains: bool,
}

impl ReadAs {
    /// Whether the semantics are those of the reference server.
    pub(in crate::cli) fn is_reference(&self) -> bool {
        self.compat == Some(Compat::Reference)
    }

    pub(in crate::cli) fn options(&self) -> LoadOptions {
        LoadOptions {
            semantics: if self.is_reference() { Semantics::Reference } else { Semantics::Exact },
            default_algorithm: self.default_algorithm.as_deref().and_then(DefaultAlgorithm::named),
            merge_domains: self.merge_domains,
            ..LoadOptions::default()
        }
    }

    /// The rules of files and directories, or every error in them.
    pub(in crate::cli) fn load(&self, paths: &[PathBuf]) -> Result<RuleSet, Failure> {
        Ok(RuleSet::parse(&read(&paths.to_vec().into())?, &self.options())?)
    }
}

/// Reads rule files for a command that reaches no control plane.
pub(in crate::cli) fn read(files: &RuleFilePaths) -> Result<Vec<Source>, RuleErrors> {
    // A list of paths is divided at its colons, and so is the address of a control plane in it.
    let text: Vec<_> = files.paths.iter().map(|path| path.to_string_lossy()).collect();
    let text = text.join(":");
    let Some(begin) = control_plane_begin(&text) else { return files.read() };
    let message = "is a control plane, whose rules cannot be read here; get them from a server by `GET /rules` with \
                   `accept: application/yaml`, and save each document to a file";
    Err(RuleErrors::of_source(SourceId::file(&text[begin..]), message))
}

/// Where the address of a control plane begins in paths that are separated by colons.
pub(in crate::cli) fn control_plane_begin(paths: &str) -> Option<usize> {
    if paths.starts_with("xds://") { Some(0) } else { paths.find(":xds://").map(|at| at + 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_plane_among_paths_is_one_error_with_the_remedy() {
        for paths in [&["xds://gw:18001?node=x"][..], &["/missing", "xds", "//gw", "18001?node=x"]] {
            let paths: Vec<PathBuf> = paths.iter().map(PathBuf::from).collect();
            let errors = read(&paths.into()).expect_err("no rules").to_string();
            assert!(errors.starts_with("xds://gw:18001?node=x: is a control plane"), "{errors}");
            assert_eq!(errors.lines().count(), 1, "{errors}");
        }
    }
}
