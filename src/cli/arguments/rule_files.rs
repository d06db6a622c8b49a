//! Flags of every command that reads rule files.

use crate::cli::Failure;
use clap::{Args, ValueEnum, builder::PossibleValuesParser};
use std::path::PathBuf;
use tidegate_core::rules::{self, DefaultAlgorithm, LoadOptions, RuleSet, Semantics};

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
        Ok(RuleSet::parse(&rules::read(paths)?, &self.options())?)
    }
}
