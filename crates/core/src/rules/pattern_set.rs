//! Many patterns, matched in one pass over a text.
//!
//! Each pattern is a sequence of literals between its `*`: one at the start, some within, one at the end. As each is best matched at its
//! first occurrence after the one before ([`Pattern::matches`]), the sequences form a tree whose nodes are each reached at most once,
//! at one place of the text. One automaton finds all literals.
//!
//! Invariant: time is linear in the text, whatever the number of patterns, but for the literals that occur in it.

use super::pattern::Pattern;
use aho_corasick::{AhoCorasick, AhoCorasickKind};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use smallvec::{SmallVec, smallvec};
use std::{iter, ops::ControlFlow};

/// Up to this many patterns are matched one after another: that is as fast, and saves the automaton.
const FEW_MAX: usize = 4;

/// Bytes of literals up to which the faster and larger kind of automaton is built: some 20 bytes for each of them.
const FAST_BYTES_MAX: usize = 256 * 1024;

/// Nodes that a text reaches without allocation.
const INLINE: usize = 8;

/// Finds which of many patterns match a text. Has no patterns of its own where there are few.
#[derive(Clone, Debug)]
pub(super) struct PatternSet {
    automaton: AhoCorasick,
    /// The node to which a literal of the automaton leads from another node.
    steps: HashMap<(Node, u32, Place), Node, FixedState>,
    /// By node: the patterns that end there.
    matched: Box<[SmallVec<[u32; 1]>]>,
}

/// A sequence of literals with which patterns begin; [`ROOT`] has none.
type Node = u32;

const ROOT: Node = 0;

/// Where in a text a literal has to be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Place {
    Start,
    Within,
    End,
}

impl PatternSet {
    /// The set of these patterns, each with its number; none if they are so few that each is better matched by itself.
    pub(super) fn new<'p>(patterns: impl Iterator<Item = (u32, &'p Pattern)> + Clone) -> Option<Box<Self>> {
        patterns.clone().nth(FEW_MAX)?;
        let mut literals: HashMap<&str, u32, FixedState> = HashMap::default();
        let (mut steps, mut matched) = (HashMap::default(), vec![SmallVec::new()]);
        for (number, pattern) in patterns {
            let mut node = ROOT;
            for (place, literal) in parts(pattern) {
                let next_literal = literals.len() as u32;
                let literal = *literals.entry(literal).or_insert(next_literal);
                node = *steps.entry((node, literal, place)).or_insert_with(|| {
                    matched.push(SmallVec::new());
                    matched.len() as u32 - 1
                });
            }
            matched[node as usize].push(number);
        }
        let mut in_order: Vec<(u32, &str)> =
            literals.into_iter().map(|(text, literal)| (literal, text)).collect();
        in_order.sort_unstable();
        let bytes: usize = in_order.iter().map(|(_, text)| text.len()).sum();
        let kind =
            if bytes <= FAST_BYTES_MAX { AhoCorasickKind::DFA } else { AhoCorasickKind::ContiguousNFA };
        let texts = in_order.into_iter().map(|(_, text)| text);
        let automaton = AhoCorasick::builder().kind(Some(kind)).build(texts);
        let automaton =
            automaton.expect("the literals of 2 GiB of rules at most are fewer than an automaton may have");
        Some(Box::new(Self { automaton, steps, matched: matched.into() }))
    }

    /// Calls `each` with the number of each pattern that matches the text, once and in no order, until it breaks.
    fn matching(&self, text: &str, mut each: impl FnMut(u32) -> ControlFlow<()>) -> ControlFlow<()> {
        let mut reach = |node: Node| self.matched[node as usize].iter().try_for_each(|&number| each(number));
        // With the end of the literal that led there.
        let mut reached: SmallVec<[(Node, usize); INLINE]> = smallvec![(ROOT, 0)];
        reach(ROOT)?;
        for found in self.automaton.find_overlapping_iter(text) {
            let literal = found.pattern().as_u32();
            for index in 0..reached.len() {
                let (node, end) = reached[index];
                if found.start() < end {
                    continue;
                }
                let at_start = (node == ROOT && found.start() == 0).then_some(Place::Start);
                let at_end = (found.end() == text.len()).then_some(Place::End);
                for place in iter::once(Place::Within).chain(at_start).chain(at_end) {
                    let Some(&next) = self.steps.get(&(node, literal, place)) else { continue };
                    if reached.iter().all(|(node, _)| *node != next) {
                        reach(next)?;
                        reached.push((next, found.end()));
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether a pattern matches the text.
    pub(super) fn matches_one(&self, text: &str) -> bool {
        self.matching(text, |_| ControlFlow::Break(())).is_break()
    }

    /// The lowest number of the patterns that match the text.
    pub(super) fn first(&self, text: &str) -> Option<u32> {
        let mut first = None;
        let _ = self.matching(text, |number| {
            first = Some(first.map_or(number, |first: u32| first.min(number)));
            if first == Some(0) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        first
    }

    /// The numbers of all patterns that match the text, ascending.
    pub(super) fn all(&self, text: &str) -> SmallVec<[u32; INLINE]> {
        let mut all = SmallVec::new();
        let _ = self.matching(text, |number| {
            all.push(number);
            ControlFlow::Continue(())
        });
        all.sort_unstable();
        all
    }
}

/// The literals of a pattern, in order.
fn parts(pattern: &Pattern) -> impl Iterator<Item = (Place, &str)> {
    let within = pattern.middles().map(|text| (Place::Within, text));
    let parts = iter::once((Place::Start, pattern.prefix())).chain(within);
    parts.chain(iter::once((Place::End, pattern.suffix()))).filter(|(_, text)| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn set(patterns: &[Pattern]) -> PatternSet {
        *PatternSet::new((0..).zip(patterns)).expect("more than a few")
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8 * ProptestConfig::default().cases))]
        #[test]
        fn a_set_matches_what_each_of_its_patterns_matches(
            texts in prop::collection::vec("[ab]{0,3}\\*[ab*é]{0,6}", FEW_MAX + 1..20), value in "[abé]{0,12}",
        ) {
            let patterns: Vec<Pattern> = texts.iter().filter_map(|text| Pattern::new(text)).collect();
            let set = set(&patterns);
            let expected: Vec<u32> =
                (0..).zip(&patterns).filter(|(_, pattern)| pattern.matches(&value)).map(|(number, _)| number).collect();
            prop_assert_eq!(&set.all(&value)[..], &expected[..], "{:?} {}", texts, value);
            prop_assert_eq!(set.first(&value), expected.first().copied());
            prop_assert_eq!(set.matches_one(&value), !expected.is_empty());
        }
    }

    #[test]
    fn few_patterns_have_no_automaton() {
        let patterns = ["a*", "b*", "c*", "d*", "e*"].map(|text| Pattern::new(text).unwrap());
        assert!(PatternSet::new((0..).zip(&patterns[..FEW_MAX])).is_none());
        assert!(PatternSet::new((0..).zip(&patterns)).is_some());
    }
}
