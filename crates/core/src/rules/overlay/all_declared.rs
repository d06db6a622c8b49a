//! The overrides and blocks of all documents: an override or the blocks that operators set, and the text of each file of blocks.

use super::{Block, Blocks, Document, OverrideRule, block_lines};
use crate::rules::{Content, Source, SourceId, error::Problems};
use std::{collections::HashMap, mem, sync::Arc};

/// All that feeds declare besides rules.
#[derive(Default)]
pub(in crate::rules) struct DeclaredOverlay {
    pub(super) overrides: Vec<Arc<OverrideRule>>,
    /// Blocks of every domain.
    common_blocks: Vec<Block>,
    /// Other blocks, by domain.
    own_blocks: HashMap<String, Vec<Block>>,
}

impl DeclaredOverlay {
    /// Reads a document.
    pub(in crate::rules) fn read(&mut self, source: &Source, problems: &Problems) {
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
