//! The blocks of one domain, or those of every domain: matched by key.

use super::block::Block;
use crate::{
    limit::Entry,
    rules::{
        Network, Pattern, letter_case::folded, networks::NetworkMap, pattern_set::PatternSet,
        text_map::TextMap,
    },
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use smol_str::SmolStr;
use std::borrow::Cow;

/// Blocks that apply together.
#[derive(Clone, Debug, Default)]
pub(in crate::rules) struct Blocks {
    by_key: TextMap<KeyBlocks>,
    /// As declared, for explanations and lists.
    declared: Box<[Block]>,
    /// Whether values match in any case of letters: the blocks have them in lower case.
    ignores_case: bool,
}

/// The blocks of one key.
#[derive(Clone, Debug)]
struct KeyBlocks {
    values: TextMap<()>,
    patterns: PatternSet,
    networks: NetworkMap,
}

impl Blocks {
    pub(super) fn new(declared: Vec<Block>) -> Self {
        Self { by_key: by_key(&declared), declared: declared.into(), ignores_case: false }
    }

    /// The same blocks, whose values match in any case of letters.
    pub(super) fn in_any_case<'b>(declared: impl Iterator<Item = &'b Block>) -> Self {
        let folded = |block: &Block| Block { values: block.values.folded(), ..block.clone() };
        Self { ignores_case: true, ..Self::new(declared.map(folded).collect()) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.declared.is_empty()
    }

    pub(super) fn declared(&self) -> &[Block] {
        &self.declared
    }

    /// Whether one of the entries is blocked.
    pub(super) fn match_one_of(&self, entries: &[Entry<'_>]) -> bool {
        !self.is_empty()
            && entries.iter().any(|entry| {
                self.by_key.get(entry.key).is_some_and(|of_key| of_key.matches(&self.form(entry)))
            })
    }

    /// The first block that matches one of the entries.
    pub(super) fn find(&self, entries: &[Entry<'_>]) -> Option<&Block> {
        let matches_one = |block: &&Block| {
            let matches = |entry: &Entry<'_>| block.values.match_value(&self.form(entry));
            entries.iter().any(|entry| block.key == entry.key && matches(entry))
        };
        // Looks at every block only if there is one to find.
        self.match_one_of(entries).then(|| self.declared.iter().find(matches_one)).flatten()
    }

    /// The form of a value by which it is compared.
    #[inline]
    fn form<'v>(&self, entry: &Entry<'v>) -> Cow<'v, str> {
        if self.ignores_case { folded(entry.value) } else { Cow::Borrowed(entry.value) }
    }
}

impl KeyBlocks {
    fn matches(&self, value: &str) -> bool {
        self.values.get(value).is_some()
            || self.patterns.matches_one(value)
            || (!self.networks.is_empty() && self.networks.of_value(value).is_some())
    }
}

fn by_key(blocks: &[Block]) -> TextMap<KeyBlocks> {
    type Values = (Vec<(SmolStr, ())>, Vec<Pattern>, Vec<Network>);
    let mut by_key: HashMap<&str, Values, FixedState> = HashMap::default();
    for block in blocks {
        let (values, patterns, networks) = by_key.entry(&block.key).or_default();
        networks.extend(block.values.network());
        match block.values.literal().map(Pattern::unescaped) {
            Some(Ok(pattern)) => patterns.push(pattern),
            Some(Err(text)) => values.push((text.into(), ())),
            None => {}
        }
    }
    let of_key = |(key, (values, patterns, networks)): (&str, Values)| {
        let patterns = PatternSet::new((0..).zip(&patterns));
        let (values, networks) =
            (values.into_iter().collect(), NetworkMap::new(networks.into_iter().zip(0..)));
        (key.into(), KeyBlocks { values, patterns, networks })
    };
    by_key.into_iter().map(of_key).collect()
}
