//! Documents of feeds.

use super::{Block, OverrideRule, SourceId, overlay::Document};
use std::{borrow::Cow, sync::Arc};

/// Length that stands for an override or block without a text.
const BYTES_WITHOUT_TEXT: usize = 100;

/// One document that declares rules, overrides or blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// The document, as errors and origins name it.
    pub id: SourceId,
    /// Its content.
    pub content: Content,
}

/// The content of a document.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Content {
    /// The text of a rule file, of a file of blocks, or of a document from elsewhere in the grammar of either. With an override's id, the
    /// text that [`Source::text`] returns for it.
    Text(String),
    /// An override that an operator set.
    Override(Arc<OverrideRule>),
    /// Blocks that operators set.
    Blocks(Arc<[Block]>),
}

impl Source {
    /// A document with a text.
    pub fn new(id: SourceId, text: impl Into<String>) -> Self {
        Self { id, content: Content::Text(text.into()) }
    }

    /// The text of a rule file.
    pub fn file(path: impl Into<String>, text: impl Into<String>) -> Self {
        Self::new(SourceId::file(path.into()), text)
    }

    /// The document that declares an override.
    pub fn of_override(declared: OverrideRule) -> Self {
        Self {
            id: SourceId::Override(declared.id.as_str().into()),
            content: Content::Override(Arc::new(declared)),
        }
    }

    /// The document that declares blocks, under this name.
    pub fn of_blocks(name: &str, blocks: Vec<Block>) -> Self {
        Self { id: SourceId::Override(name.into()), content: Content::Blocks(blocks.into()) }
    }

    /// The text, which is JSON for overrides and blocks that operators set: for logs and people.
    pub fn text(&self) -> Cow<'_, str> {
        let document = match &self.content {
            Content::Text(text) => return Cow::Borrowed(text),
            Content::Override(declared) => Document::Override(Cow::Borrowed(declared)),
            Content::Blocks(blocks) => Document::Blocks(Cow::Borrowed(blocks)),
        };
        Cow::Owned(serde_json::to_string(&document).expect("texts and numbers are JSON"))
    }

    /// Length of the text in bytes, roughly for overrides and blocks that operators set.
    pub fn bytes(&self) -> usize {
        match &self.content {
            Content::Text(text) => text.len(),
            Content::Override(_) => BYTES_WITHOUT_TEXT,
            Content::Blocks(blocks) => blocks.len() * BYTES_WITHOUT_TEXT,
        }
    }
}
