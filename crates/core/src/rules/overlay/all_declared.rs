//! The overrides and blocks of all documents: an override or the blocks that operators set, and the text of each file of blocks.

use super::{Block, Blocks, Document, OverrideRule, block_lines};
use crate::rules::{Content, Origin, Source, SourceId, error::Problems};
use std::{collections::HashMap, mem, sync::Arc};

/// Keys of blocks, each with the place of the first block.
type KeysInFiles = HashMap<String, Origin>;

/// All that feeds declare besides rules.
#[derive(Default)]
pub(in crate::rules) struct DeclaredOverlay {
    pub(super) overrides: Vec<Arc<OverrideRule>>,
    /// Blocks of every domain.
    common_blocks: Vec<Block>,
    /// Other blocks, by domain.
    own_blocks: HashMap<String, Vec<Block>>,
    /// By domain, none for all of them.
    first_in_file: HashMap<Option<String>, KeysInFiles>,
}

impl DeclaredOverlay {
    /// Reads a document.
    pub(in crate::rules) fn read(&mut self, source: &Source, problems: &Problems) {
        match &source.content {
            Content::Override(declared) => self.overrides.push(Arc::clone(declared)),
            Content::Blocks(blocks) => blocks.iter().cloned().for_each(|block| self.add_block(block)),
            Content::Text(_) if matches!(source.id, SourceId::Blocks(_)) => {
                self.add_blocks_of_file(source, problems);
            }
            Content::Text(text) => match serde_json::from_str(text) {
                Ok(Document::Override(declared)) => self.overrides.push(Arc::new(declared.into_owned())),
                Ok(Document::Blocks(blocks)) => {
                    blocks.into_owned().into_iter().for_each(|block| self.add_block(block))
                }
                Err(error) => problems.of_source(source.id.clone(), error.to_string()),
            },
        }
    }

    fn add_blocks_of_file(&mut self, source: &Source, problems: &Problems) {
        for (position, block) in block_lines::read(source, problems) {
            let keys = self.first_in_file.entry(block.domain.clone()).or_default();
            if !keys.contains_key(&block.key) {
                let origin = Origin { source: source.id.clone(), position: Some(position) };
                keys.insert(block.key.clone(), origin);
            }
            self.add_block(block);
        }
    }

    fn add_block(&mut self, block: Block) {
        match block.domain.clone() {
            Some(domain) => self.own_blocks.entry(domain).or_default().push(block),
            None => self.common_blocks.push(block),
        }
    }

    /// For each domain of blocks in files, none for all of them, the keys with the places of their first blocks.
    pub(in crate::rules) fn keys_in_files(&self) -> impl Iterator<Item = (Option<&str>, &KeysInFiles)> {
        self.first_in_file.iter().map(|(domain, keys)| (domain.as_deref(), keys))
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
