//! Overrides and blocks as a feed declares them: a document for each override, one for all blocks that operators set, and the text of
//! each file of blocks.

use super::{Block, Blocks, OverrideLimit, block_lines, override_limit};
use crate::{
    limit::Entry,
    rules::{Content, Source, SourceId, error::Problems},
};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, collections::HashMap, mem, sync::Arc};

/// Takes the place of the rules for the descriptors that it matches.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OverrideRule {
    /// Its name.
    pub id: String,
    /// The domain.
    pub domain: String,
    /// Keys and values of the descriptor's entries, in order and no more; `*` in a value matches any text, `\*` stands for a literal one.
    pub entries: Vec<(String, String)>,
    /// The limit, or the absence of one, instead of the rules.
    pub action: OverrideAction,
}

impl OverrideRule {
    /// The entries as those of a descriptor.
    pub(in crate::rules) fn as_entries(&self) -> Vec<Entry<'_>> {
        self.entries.iter().map(|(key, value)| Entry { key, value }).collect()
    }
}

/// The effect of an override.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverrideAction {
    /// These limits for each descriptor: one or a few, no two of one window.
    #[serde(rename = "limit", with = "override_limit::one_or_several")]
    Limits(Vec<OverrideLimit>),
    /// No limit.
    Unlimited,
    /// No hits.
    Denied,
}

/// The JSON of a document: what a decision log has of the overrides and blocks that operators set.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::rules) enum Document<'d> {
    Override(Cow<'d, OverrideRule>),
    Blocks(Cow<'d, [Block]>),
}

/// All that feeds declare besides rules.
#[derive(Default)]
pub(in crate::rules) struct DeclaredOverlay {
    pub(super) overrides: Vec<Arc<OverrideRule>>,
    /// Those of every domain.
    common_blocks: Vec<Block>,
    /// The others, by domain.
    own_blocks: HashMap<String, Vec<Block>>,
}

impl DeclaredOverlay {
    /// Reads a document.
    pub(in crate::rules) fn read(&mut self, source: &Source, problems: &mut Problems) {
        match &source.content {
            Content::Override(declared) => self.overrides.push(Arc::clone(declared)),
            Content::Blocks(blocks) => self.add_blocks(blocks.to_vec()),
            Content::Text(_) if matches!(source.id, SourceId::Blocks(_)) => {
                self.add_blocks(block_lines::read(source, problems));
            }
            Content::Text(text) => match serde_json::from_str(text) {
                Ok(Document::Override(declared)) => self.overrides.push(Arc::new(declared.into_owned())),
                Ok(Document::Blocks(blocks)) => self.add_blocks(blocks.into_owned()),
                Err(error) => problems.of_source(source.id.clone(), error.to_string()),
            },
        }
    }

    fn add_blocks(&mut self, blocks: Vec<Block>) {
        for block in blocks {
            match block.domain.clone() {
                Some(domain) => self.own_blocks.entry(domain).or_default().push(block),
                None => self.common_blocks.push(block),
            }
        }
    }

    /// Takes the blocks of every domain, compiled.
    pub(in crate::rules) fn take_common_blocks(&mut self) -> Arc<Blocks> {
        Arc::new(Blocks::new(mem::take(&mut self.common_blocks)))
    }

    /// The blocks of one domain alone.
    pub(super) fn blocks_of(&self, domain: &str) -> &[Block] {
        self.own_blocks.get(domain).map_or(&[], Vec::as_slice)
    }
}
