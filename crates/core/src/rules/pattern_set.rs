//! Many patterns, matched in one pass over a text.
//!
//! Each pattern is a sequence of literals between its `*`: one at the start, some within, one at the end. As each is best matched at its
//! first occurrence after the one before ([`Pattern::matches`]), the sequences form a tree whose nodes are each reached at most once,
//! at one place of the text. One automaton finds all literals.
//!
//! Invariant: time is linear in the text and in the occurrences of literals in it, whatever the number of patterns. A node whose steps were
//! all taken is not looked at again, so a text that repeats literals costs no more than a text that has each of them once.

use super::pattern::Pattern;
use aho_corasick::{AhoCorasick, AhoCorasickKind, Match, PatternID};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use smallvec::SmallVec;
use std::{iter, ops::ControlFlow};

/// Up to this many patterns are matched one after another: that is as fast, and saves the automaton.
const FEW_MAX: usize = 4;

/// Bytes of literals up to which the faster and larger kind of automaton is built: some 20 bytes for each of them.
const FAST_BYTES_MAX: usize = 256 * 1024;

/// Nodes with steps to take, of a text, without allocation.
const INLINE: usize = 8;

/// Bits for the nodes of a set without allocation, as words.
const INLINE_WORDS: usize = 8;

/// Finds which of some patterns, each with its number, match a text.
#[derive(Clone, Debug)]
pub(super) enum PatternSet {
    /// Matched one after another, in ascending order of their numbers.
    Few(Box<[(u32, Pattern)]>),
    Many(Box<ManyPatterns>),
}

/// Patterns that are matched at once.
#[derive(Clone, Debug)]
pub(super) struct ManyPatterns {
    automaton: AhoCorasick,
    /// The node to which a literal of the automaton leads from another node.
    steps: HashMap<(Node, u32, Place), Node, FixedState>,
    /// The same steps, by literal.
    steps_of: Box<[StepsOf]>,
    nodes: Box<[NodeOfSet]>,
}

/// The steps of a literal: the node before it, the place where it has to be, and the node after it.
type StepsOf = SmallVec<[(Node, Place, Node); 1]>;

/// Facts about a node.
#[derive(Clone, Default, Debug)]
struct NodeOfSet {
    /// The patterns that end there.
    matched: SmallVec<[u32; 1]>,
    /// Number of steps that lead on.
    steps: usize,
}

/// A sequence of literals with which patterns begin; [`ROOT`] has none.
type Node = u32;

const ROOT: Node = 0;

/// Place in a text where a literal has to be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Place {
    Start,
    Within,
    End,
}

impl PatternSet {
    /// The set of these patterns, each with its number, in ascending order of the numbers.
    pub(super) fn new<'p>(patterns: impl Iterator<Item = (u32, &'p Pattern)> + Clone) -> Self {
        match patterns.clone().nth(FEW_MAX) {
            None => Self::Few(patterns.map(|(number, pattern)| (number, pattern.clone())).collect()),
            Some(_) => Self::Many(Box::new(ManyPatterns::new(patterns))),
        }
    }

    /// Whether a pattern matches the text.
    pub(super) fn matches_one(&self, text: &str) -> bool {
        self.matching(text, |_| ControlFlow::Break(())).is_break()
    }

    /// The lowest number of the patterns that match the text.
    #[inline]
    pub(super) fn first(&self, text: &str) -> Option<u32> {
        match self {
            Self::Few(few) => {
                few.iter().find(|(_, pattern)| pattern.matches(text)).map(|(number, _)| *number)
            }
            Self::Many(many) => many.first(text),
        }
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

    /// Calls `each` with the number of each pattern that matches the text, once and in no order, until it breaks.
    fn matching(&self, text: &str, mut each: impl FnMut(u32) -> ControlFlow<()>) -> ControlFlow<()> {
        match self {
            Self::Few(few) => few
                .iter()
                .filter(|(_, pattern)| pattern.matches(text))
                .try_for_each(|(number, _)| each(*number)),
            Self::Many(many) => many.matching(text, each),
        }
    }
}

impl ManyPatterns {
    fn new<'p>(patterns: impl Iterator<Item = (u32, &'p Pattern)>) -> Self {
        let mut literals: HashMap<&str, u32, FixedState> = HashMap::default();
        let (mut steps, mut nodes) = (HashMap::default(), vec![NodeOfSet::default()]);
        let mut steps_of: Vec<StepsOf> = Vec::new();
        for (number, pattern) in patterns {
            let mut node = ROOT;
            for (place, literal) in parts(pattern) {
                let next_literal = literals.len() as u32;
                let literal = *literals.entry(literal).or_insert(next_literal);
                node = *steps.entry((node, literal, place)).or_insert_with(|| {
                    let next = nodes.len() as Node;
                    nodes.push(NodeOfSet::default());
                    nodes[node as usize].steps += 1;
                    steps_of.resize_with(literals.len(), SmallVec::new);
                    steps_of[literal as usize].push((node, place, next));
                    next
                });
            }
            nodes[node as usize].matched.push(number);
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
        Self { automaton, steps, steps_of: steps_of.into(), nodes: nodes.into() }
    }

    /// Calls `each` with the number of each pattern that matches the text, once and in no order, until it breaks.
    fn matching(&self, text: &str, mut each: impl FnMut(u32) -> ControlFlow<()>) -> ControlFlow<()> {
        let mut walk = Walk::new(self);
        let mut reach =
            |node: Node| self.nodes[node as usize].matched.iter().try_for_each(|&number| each(number));
        reach(ROOT)?;
        for found in self.automaton.find_overlapping_iter(text) {
            if walk.open.is_empty() {
                break;
            }
            self.advance(&mut walk, found, text.len(), &mut reach)?;
        }
        ControlFlow::Continue(())
    }

    /// Takes all steps by a literal that was found in a text of so many bytes.
    fn advance(
        &self,
        walk: &mut Walk,
        found: Match,
        text_len: usize,
        reach: &mut impl FnMut(Node) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let is_at = |from: Node, end: usize, place| {
            end <= found.start()
                && match place {
                    Place::Start => from == ROOT && found.start() == 0,
                    Place::Within => true,
                    Place::End => found.end() == text_len,
                }
        };
        let literal = found.pattern();
        if self.looks_by_literal(walk, literal) {
            for &(from, place, next) in &self.steps_of[literal] {
                if walk.end_before(from, next).is_some_and(|end| is_at(from, end, place)) {
                    walk.take(self, from, (next, found.end()));
                    reach(next)?;
                }
            }
            return ControlFlow::Continue(());
        }
        // Backwards: nodes that are reached now are appended, and a removed node's place is filled from the end.
        for index in (0..walk.open.len()).rev() {
            let Open { node, end, .. } = walk.open[index];
            for place in [Place::Start, Place::Within, Place::End] {
                if !is_at(node, end, place) {
                    continue;
                }
                let next = self.steps.get(&(node, literal.as_u32(), place));
                if let Some(&next) = next.filter(|next| !walk.has_reached(**next)) {
                    walk.take(self, node, (next, found.end()));
                    reach(next)?;
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether to go through the steps of a literal, which are no more than the open nodes, instead of through these.
    fn looks_by_literal(&self, walk: &Walk, literal: PatternID) -> bool {
        self.steps_of[literal].len() <= walk.open.len()
    }

    /// The lowest number of the patterns that match the text.
    fn first(&self, text: &str) -> Option<u32> {
        let mut first = None;
        let _ = self.matching(text, |number| {
            first = Some(first.map_or(number, |first: u32| first.min(number)));
            if first == Some(0) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        first
    }
}

/// The nodes that a text has reached so far.
struct Walk {
    /// A bit for each node.
    reached: SmallVec<[u64; INLINE_WORDS]>,
    open: SmallVec<[Open; INLINE]>,
}

/// A node with steps that were not taken.
#[derive(Clone, Copy)]
struct Open {
    node: Node,
    /// The end of the literal that led there.
    end: usize,
    steps: usize,
}

impl Walk {
    fn new(set: &ManyPatterns) -> Self {
        let reached = SmallVec::from_elem(0, set.nodes.len().div_ceil(64));
        let mut walk = Self { reached, open: SmallVec::new() };
        walk.reach(set, (ROOT, 0));
        walk
    }

    fn reach(&mut self, set: &ManyPatterns, (node, end): (Node, usize)) {
        self.reached[node as usize / 64] |= 1 << (node % 64);
        let steps = set.nodes[node as usize].steps;
        if steps > 0 {
            self.open.push(Open { node, end, steps });
        }
    }

    fn has_reached(&self, node: Node) -> bool {
        self.reached[node as usize / 64] & 1 << (node % 64) != 0
    }

    /// The end of the literal that led to `from`, if it was reached and `next` was not.
    fn end_before(&self, from: Node, next: Node) -> Option<usize> {
        let is_open = self.has_reached(from) && !self.has_reached(next);
        is_open.then(|| self.open.iter().find(|open| open.node == from).map(|open| open.end)).flatten()
    }

    /// Takes a step to a node, at which its literal ends.
    fn take(&mut self, set: &ManyPatterns, from: Node, next: (Node, usize)) {
        if let Some(index) = self.open.iter().position(|open| open.node == from) {
            self.open[index].steps -= 1;
            if self.open[index].steps == 0 {
                self.open.swap_remove(index);
            }
        }
        self.reach(set, next);
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
        PatternSet::new((0..).zip(patterns))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(8 * ProptestConfig::default().cases))]
        #[test]
        fn a_set_matches_what_each_of_its_patterns_matches(
            texts in prop::collection::vec("[ab]{0,3}\\*[ab*é]{0,6}", 1..20), value in "[abé]{0,12}",
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

    /// Steps and nodes that were looked at for a text, and occurrences of literals in it.
    fn looked_at(set: &ManyPatterns, text: &str) -> (usize, usize) {
        let mut walk = Walk::new(set);
        let (mut looked_at, mut occurrences) = (0, 0);
        for found in set.automaton.find_overlapping_iter(text) {
            let steps = set.steps_of[found.pattern()].len();
            looked_at += if set.looks_by_literal(&walk, found.pattern()) { steps } else { walk.open.len() };
            occurrences += 1;
            let _ = set.advance(&mut walk, found, text.len(), &mut |_| ControlFlow::Continue(()));
        }
        (looked_at, occurrences)
    }

    /// Each occurrence was compared with each node that was reached before: 8,000 bytes cost 90 ms against a hundred patterns.
    #[test]
    fn a_literal_that_occurs_again_is_compared_with_few_nodes() {
        let of = |text: &dyn Fn(usize) -> String| -> Vec<Pattern> {
            (0..100).map(|number| Pattern::new(&text(number)).expect("a pattern")).collect()
        };
        let ending = of(&|number| format!("*{}*b", "a".repeat(number % 50 + 1)));
        let each = of(&|number| format!("*bad{number:05}*"));
        let all: String = (0..100).map(|number| format!("bad{number:05}")).collect();
        let two = of(&|number| format!("*x{number:02}*y*"));
        let begun: String = (0..100).map(|number| format!("x{number:02}")).collect();
        for (patterns, text) in [
            (&ending, "a".repeat(8_000)),
            (&each, all.repeat(10)),
            (&two, begun.clone() + &"y".repeat(7_700)),
            (&two, "y".repeat(8_000)),
            (&two, begun.repeat(26)),
        ] {
            let many = ManyPatterns::new((0..).zip(patterns));
            let (looked_at, occurrences) = looked_at(&many, &text);
            assert!(
                looked_at <= 2 * occurrences + 200,
                "{looked_at} for {occurrences} occurrences: {text:.20}…"
            );
        }
    }

    #[test]
    fn few_patterns_have_no_automaton() {
        let patterns = ["a*", "b*", "c*", "d*", "e*"].map(|text| Pattern::new(text).unwrap());
        assert!(matches!(set(&patterns[..FEW_MAX]), PatternSet::Few(_)));
        assert!(matches!(set(&patterns), PatternSet::Many(_)));
    }
}
