//! `--rules` and what belongs to it, for every command that reads rules.

use super::Failure;
use crate::rules::{self, LoadOptions, RuleSet, Semantics, Source};
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Whose behaviour to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(super) enum Compat {
    /// The reference server's (envoyproxy/ratelimit): fixed windows, denied requests are charged, its resets.
    Reference,
}

/// How rule files are read.
#[derive(Args, Clone)]
pub(super) struct ReadAs {
    /// Behave as the reference server does where Tidegate would do better.
    #[arg(long, env = "TIDEGATE_COMPAT")]
    pub(super) compat: Option<Compat>,
    /// Let several files add rules to one domain.
    #[arg(long, env = "TIDEGATE_MERGE_DOMAINS")]
    pub(super) merge_domains: bool,
}

impl ReadAs {
    pub(super) fn options(&self) -> LoadOptions {
        let semantics = match self.compat {
            Some(Compat::Reference) => Semantics::Reference,
            None => Semantics::Exact,
        };
        LoadOptions { semantics, merge_domains: self.merge_domains }
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
