//! Flags of every command that reads rule files.

use super::Failure;
use crate::rules::{self, LoadOptions, RuleSet, Semantics, Source};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Semantics to follow.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Compat {
    /// Those of envoyproxy/ratelimit: fixed windows, denied requests are charged, resets at the end of the window.
    Reference,
}

/// Interpretation of rule files.
#[derive(Args, Clone)]
pub(super) struct ReadAs {
    /// Follow the semantics of another server instead of Tidegate's own.
    #[arg(long, env = "TIDEGATE_COMPAT")]
    pub(super) compat: Option<Compat>,
    /// Allow several files to define the same domain.
    #[arg(long, env = "TIDEGATE_MERGE_DOMAINS")]
    pub(super) merge_domains: bool,
}

impl ReadAs {
    pub(super) fn options(&self) -> LoadOptions {
        let semantics = match self.compat {
            Some(Compat::Reference) => Semantics::Reference,
            None => Semantics::Exact,
        };
        LoadOptions { semantics, merge_domains: self.merge_domains, ..LoadOptions::default() }
    }

    /// The rules of files and directories, or every error in them.
    pub(super) fn load(&self, paths: &[PathBuf]) -> Result<RuleSet, Failure> {
        self.parse(&rules::read(paths)?)
    }

    /// The rules of texts, or every error in them.
    pub(super) fn parse(&self, sources: &[Source]) -> Result<RuleSet, Failure> {
        Ok(RuleSet::parse(sources, &self.options())?)
    }
}
