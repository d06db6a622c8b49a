//! The rules that a server starts with: those of its files or, while the files have errors or a control plane has not responded, those kept
//! in the data directory.

use crate::{
    api::time::{time_text, timestamp},
    cli::Failure,
};
use tidegate_core::{
    limit::Timestamp,
    rules::{self, LoadOptions, RuleErrors, RuleFilePaths, RuleSet, Source},
};
use tidegate_operations::config::{Feed, KeptRules, KeptRulesError, LastRules};

/// The sources of the rules of a start.
pub(super) struct FirstSources<'f> {
    pub(super) options: &'f LoadOptions,
    pub(super) files: &'f RuleFilePaths,
    pub(super) block_files: &'f RuleFilePaths,
    pub(super) has_control_plane: bool,
    /// Whether the server starts without rules if the files have errors.
    pub(super) awaits_files: bool,
    /// None if the server does not start with them.
    pub(super) kept: Option<&'f KeptRules>,
}

/// The rules of a start.
#[derive(Default)]
pub(super) struct Started {
    pub(super) sources: Vec<Source>,
    pub(super) rules: RuleSet,
    /// Whether the server waits for other rules before it decides.
    pub(super) is_awaited: bool,
    /// Feeds whose kept rules are in force.
    pub(super) began_with_kept: Vec<BeganWithKept>,
}

/// A feed whose kept rules are in force, when a former process put them in force, and the errors of its present rules, if any.
pub(super) type BeganWithKept = (Feed, Timestamp, Option<RuleErrors>);

impl FirstSources<'_> {
    pub(super) fn load(&self) -> Result<Started, Failure> {
        match self.present() {
            Err(errors) => self.instead_of(&errors),
            Ok(present) if !self.has_control_plane => Ok(present),
            Ok(present) => Ok(self.until_control_plane(present)),
        }
    }

    /// The rules to start with instead of rules with these errors.
    fn instead_of(&self, errors: &RuleErrors) -> Result<Started, Failure> {
        let reason = match self.with_kept(Some(errors)) {
            Ok(Some(started)) => {
                errors.iter().for_each(|error| tracing::error!("{error}"));
                return Ok(started);
            }
            Ok(None) => String::new(),
            Err(reason) => format!("\n{reason}"),
        };
        if !self.awaits_files || errors.iter().any(|error| Feed::of(&error.origin.source) != Feed::Files) {
            return Err(Failure(format!("{errors}{reason}")));
        }
        tracing::error!("{errors}{reason}");
        let sources = self.block_files.read_blocks()?;
        let rules = RuleSet::parse(&sources, self.options)?;
        Ok(Started { sources, rules, is_awaited: true, began_with_kept: Vec::new() })
    }

    /// The rules to start with until the control plane has sent any; `present` are the files' valid rules.
    fn until_control_plane(&self, present: Started) -> Started {
        let kept = self.with_kept(None).inspect_err(|reason| tracing::warn!("{reason}"));
        kept.ok().flatten().unwrap_or(present)
    }

    /// The rules of the files, or all errors in them.
    fn present(&self) -> Result<Started, RuleErrors> {
        let mut sources = match (self.files.paths.is_empty(), self.has_control_plane) {
            (true, false) => demo(),
            (true, true) => Vec::new(),
            (false, _) => self.files.read()?,
        };
        sources.extend(self.block_files.read_blocks()?);
        let rules = RuleSet::parse(&sources, self.options)?;
        Ok(Started { sources, rules, is_awaited: self.has_control_plane, began_with_kept: Vec::new() })
    }

    /// The kept rules of each feed that has errors, or is a control plane; the present ones of the others. None if none are kept.
    fn with_kept(&self, errors: Option<&RuleErrors>) -> Result<Option<Started>, Failure> {
        let LastRules { sources: last, at } = match self.kept.map(KeptRules::read) {
            None | Some(Err(KeptRulesError::None(_))) => return Ok(None),
            Some(read) => read?,
        };
        let mut began_with_kept = Vec::new();
        let mut kept_of = |feed: Feed, errors: Option<&RuleErrors>| -> Vec<Source> {
            began_with_kept.push((feed, at, errors.cloned()));
            last.iter().filter(|source| Feed::of(&source.id) == feed).cloned().collect()
        };
        let is_of = |feed: Feed| {
            errors.is_some_and(|errors| errors.iter().any(|error| Feed::of(&error.origin.source) == feed))
        };
        let mut sources = match self.files.read() {
            Ok(sources) if !is_of(Feed::Files) => sources,
            _ => kept_of(Feed::Files, errors),
        };
        if self.has_control_plane {
            let of_control_plane = kept_of(Feed::Xds, None);
            if of_control_plane.is_empty() {
                return Ok(None);
            }
            sources.extend(of_control_plane);
        }
        sources.extend(match self.block_files.read_blocks() {
            Ok(blocks) if !is_of(Feed::Blocks) => blocks,
            _ => kept_of(Feed::Blocks, errors),
        });
        let rules = RuleSet::parse(&sources, self.options).map_err(|errors| {
            Failure(format!("the rules kept in the data directory are not used: {errors}"))
        })?;
        let started = Started { sources, rules, is_awaited: false, began_with_kept };
        started.log();
        Ok(Some(started))
    }
}

impl Started {
    fn log(&self) {
        for (feed, at, errors) in &self.began_with_kept {
            let (feed, put_in_force) = (feed.name(), time_text(timestamp(*at), 0));
            match errors {
                Some(_) => tracing::error!(
                    feed,
                    put_in_force,
                    "starting with the rules that were valid last: the present ones have errors"
                ),
                None => tracing::warn!(
                    feed,
                    put_in_force,
                    "starting with the rules that the control plane sent last, until it responds"
                ),
            }
        }
    }
}

fn demo() -> Vec<Source> {
    vec![Source::file("demo.yaml", rules::DEMO)]
}
