//! Regular expressions of rule values: all of one key and level in one automaton.
//!
//! An expression matches if it does so anywhere in the value, unless it has `^` or `$`. The first of the file that matches is found in
//! one pass over the value, in time linear in its length.
//!
//! Invariant: an automaton takes a bounded amount of memory, and its cache for each thread too.

use regex_automata::{
    Anchored, Input,
    dfa::{Automaton, StartKind, dense},
    meta,
    nfa::thompson,
    util::{primitives::StateID, start},
};
use regex_syntax::hir::{Dot, Hir, Look, Repetition};
use std::collections::HashSet;

/// Bytes of an expression as it is written.
const TEXT_MAX: usize = 4096;

/// Bytes of the automaton of one expression. A counted repetition may need many more than its text.
const ONE_MAX: usize = 256 * 1024;

/// Bytes of the automaton of all expressions of one key and level.
const ALL_MAX: usize = 16 * 1024 * 1024;

/// Bytes of the states that a thread keeps between searches; states beyond it are computed again.
const CACHE_MAX: usize = 1024 * 1024;

/// Bytes of the automaton that finds expressions which are never the first to match.
const ANALYSIS_MAX: usize = 4 * 1024 * 1024;

/// One valid expression.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Regex {
    text: Box<str>,
    hir: Hir,
    /// Whether it matches at the start of a value alone.
    is_anchored: bool,
    /// Bytes of its automaton.
    size: usize,
}

/// The expressions of one key and level, in the order of the file.
#[derive(Clone, Debug)]
pub(super) struct Regexes {
    automaton: meta::Regex,
}

impl Regex {
    /// The expression, or the reason why it is not accepted, with the remedy.
    pub(super) fn new(text: &str, ignores_case: bool) -> Result<Self, String> {
        if text.len() > TEXT_MAX {
            return Err(format!(
                "has {} bytes, at most {TEXT_MAX} are allowed; divide it among several descriptors",
                text.len()
            ));
        }
        let mut parser = regex_syntax::ParserBuilder::new().case_insensitive(ignores_case).build();
        let hir = parser.parse(text).map_err(|error| reason(&error))?;
        let is_anchored = hir.properties().look_set_prefix().contains(Look::Start);
        let mut regex = Self { text: text.into(), hir, is_anchored, size: 0 };
        let nfa = thompson::Compiler::new()
            .configure(thompson::Config::new().utf8(false).nfa_size_limit(Some(ONE_MAX)))
            .build_from_hir(&regex.reaching_from_start(Dot::AnyByte));
        let too_large =
            "needs an automaton of more than 256 KiB; repeat fewer times, or write narrower classes";
        regex.size = nfa.map_err(|_| too_large.to_owned())?.memory_usage();
        Ok(regex)
    }

    /// Matches from the start of the value up to the end of a match, with any of `before` ahead of it.
    fn reaching_from_start(&self, before: Dot) -> Hir {
        match self.is_anchored {
            true => self.hir.clone(),
            false => Hir::concat(vec![any_number_of(before), self.hir.clone()]),
        }
    }

    /// The expression as it is written.
    pub(super) fn as_str(&self) -> &str {
        &self.text
    }
}

/// Any number, as few as possible.
fn any_number_of(dot: Dot) -> Hir {
    let sub = Box::new(Hir::dot(dot));
    Hir::repetition(Repetition { min: 0, max: None, greedy: false, sub })
}

fn reason(error: &regex_syntax::Error) -> String {
    let (kind, column) = match error {
        regex_syntax::Error::Parse(error) => (error.kind().to_string(), error.span().start.column),
        regex_syntax::Error::Translate(error) => (error.kind().to_string(), error.span().start.column),
        _ => (error.to_string(), 1),
    };
    format!(
        "is not a regular expression: {kind} at its character {column}; correct it, or write `\\` before a character that is meant literally"
    )
}

impl Regexes {
    /// The index of the first expression with which the expressions are too large for one automaton.
    pub(super) fn first_too_many<'r>(regexes: impl Iterator<Item = &'r Regex>) -> Option<usize> {
        let mut size = 0;
        let mut sizes = regexes.enumerate().map(|(index, regex)| {
            size += regex.size;
            (index, size)
        });
        sizes.find(|(_, size)| *size > ALL_MAX).map(|(index, _)| index)
    }

    /// The automaton of expressions that are not too many.
    pub(super) fn new(regexes: &[&Regex]) -> Self {
        let hirs: Vec<Hir> = regexes.iter().map(|regex| regex.reaching_from_start(Dot::AnyByte)).collect();
        let config = meta::Config::new()
            .utf8_empty(false)
            .nfa_size_limit(Some(2 * ALL_MAX))
            .hybrid_cache_capacity(CACHE_MAX);
        let automaton = meta::Builder::new().configure(config).build_many_from_hir(&hirs);
        Self {
            automaton: automaton.expect("each was compiled before, and the sum of their sizes is bounded"),
        }
    }

    /// The index of the first expression that matches.
    ///
    /// All are searched from the start of the value. Among several that match there, the automaton prefers the first in their order.
    pub(super) fn first(&self, value: &str) -> Option<u32> {
        let found = self.automaton.search_half(&Input::new(value).anchored(Anchored::Yes))?;
        Some(found.pattern().as_u32())
    }

    /// The indices of expressions that are never the first to match, whatever the value. None if finding out takes too much memory.
    pub(super) fn never_first(regexes: &[&Regex]) -> Option<Vec<usize>> {
        // Extended to the end of the value, all matches end at one place: the first expression there is the first of all.
        let whole = |regex: &&Regex| {
            let (matching, after) = (regex.reaching_from_start(Dot::AnyChar), any_number_of(Dot::AnyChar));
            Hir::concat(vec![matching, after, Hir::look(Look::End)])
        };
        let hirs: Vec<Hir> = regexes.iter().map(whole).collect();
        let nfa = thompson::Compiler::new()
            .configure(thompson::Config::new().utf8(false).nfa_size_limit(Some(ANALYSIS_MAX)))
            .build_many_from_hir(&hirs)
            .ok()?;
        let config = dense::Config::new()
            .start_kind(StartKind::Anchored)
            .dfa_size_limit(Some(ANALYSIS_MAX))
            .determinize_size_limit(Some(ANALYSIS_MAX));
        let dfa = dense::Builder::new().configure(config).build_from_nfa(&nfa).ok()?;
        let start = dfa.start_state(&start::Config::new().anchored(Anchored::Yes)).ok()?;
        let (mut open, mut seen) = (vec![start], HashSet::<StateID>::from([start]));
        let mut is_first = vec![false; regexes.len()];
        while let Some(state) = open.pop() {
            let end = dfa.next_eoi_state(state);
            if dfa.is_match_state(end) {
                is_first[dfa.match_pattern(end, 0).as_usize()] = true;
            }
            for byte in dfa.byte_classes().representatives(0..=u8::MAX).filter_map(|unit| unit.as_u8()) {
                let next = dfa.next_state(state, byte);
                if dfa.is_quit_state(next) {
                    return None;
                }
                if !dfa.is_dead_state(next) && seen.insert(next) {
                    open.push(next);
                }
            }
        }
        Some((0..regexes.len()).filter(|index| !is_first[*index]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn regexes(texts: &[&str]) -> Vec<Regex> {
        texts
            .iter()
            .map(|text| Regex::new(text, false).unwrap_or_else(|error| panic!("{text} {error}")))
            .collect()
    }

    fn all(texts: &[&str]) -> Regexes {
        let regexes = regexes(texts);
        Regexes::new(&regexes.iter().collect::<Vec<_>>())
    }

    fn never_first(texts: &[&str]) -> Vec<usize> {
        Regexes::never_first(&regexes(texts).iter().collect::<Vec<_>>()).expect("small")
    }

    #[test]
    fn the_first_expression_of_the_file_wins_wherever_it_matches() {
        let three = all(&["z$", "^/v[0-9]+/", "b"]);
        for (value, first) in
            [("/v1/abz", Some(0)), ("/v12/ab", Some(1)), ("ab", Some(2)), ("/v/", None), ("", None)]
        {
            assert_eq!(three.first(value), first, "{value:?}");
        }
        assert_eq!(all(&["^$", ""]).first(""), Some(0));
        assert_eq!(all(&["^$", ""]).first("é"), Some(1));
    }

    #[test]
    fn case_is_ignored_in_every_script() {
        let regex = Regex::new("^straße/é$", true).unwrap();
        let one = Regexes::new(&[&regex]);
        assert_eq!(one.first("STRAßE/É"), Some(0));
        assert_eq!(all(&["^straße/é$"]).first("STRAßE/É"), None);
    }

    #[test]
    fn classes_and_word_boundaries_are_those_of_unicode() {
        let two = all(&["^\\p{Greek}+$", "\\bfoo\\b"]);
        for (value, first) in
            [("λόγος", Some(0)), ("logos", None), ("é foo", Some(1)), ("éfoo", None), ("a-foo", Some(1))]
        {
            assert_eq!(two.first(value), first, "{value:?}");
        }
    }

    #[test]
    fn expressions_that_are_malformed_or_too_large_are_refused_with_the_reason() {
        for (text, reason) in [
            ("a(b", "unclosed group at its character 2"),
            ("[z-a]", "invalid character class range"),
            ("(?<x>a)\\k", "unrecognized escape sequence"),
            ("a(?=b)", "look-around"),
            ("(\\w{100}){100}", "more than 256 KiB"),
            (&"a".repeat(5000), "5000 bytes"),
        ] {
            let error = Regex::new(text, false).expect_err(text);
            assert!(error.contains(reason), "{text:.20}: {error}");
        }
    }

    #[test]
    fn expressions_beyond_the_bound_of_an_automaton_are_found() {
        let one = Regex::new("^[a-z]{20}$", false).unwrap();
        let fitting = ALL_MAX / one.size;
        assert_eq!(Regexes::first_too_many(std::iter::repeat_n(&one, fitting)), None);
        assert_eq!(Regexes::first_too_many(std::iter::repeat_n(&one, fitting + 3)), Some(fitting));
    }

    #[test]
    fn expressions_that_never_come_first_are_found() {
        assert_eq!(never_first(&["^a", "^ab", "b"]), [1]);
        assert_eq!(never_first(&["^ab", "^a", "b"]), [0_usize; 0]);
        assert_eq!(never_first(&["", "a"]), [1]);
        assert_eq!(never_first(&["a$b", "x^"]), [0, 1]);
        assert_eq!(never_first(&["a", "b", "^[^ab]*$", "."]), [3]);
    }

    proptest! {
        #[test]
        fn the_first_that_matches_is_found_among_many(
            texts in prop::collection::vec("\\^?[ab.]{0,3}([ab]\\*|\\(a\\|bb\\)|\\[\\^a\\])?[ab]{0,2}\\$?", 1..8),
            values in prop::collection::vec("[abc]{0,6}", 20),
        ) {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let (found, never) = (all(&texts), never_first(&texts));
            let each: Vec<meta::Regex> = texts.iter().map(|text| meta::Regex::new(text).unwrap()).collect();
            for value in values {
                let expected = each.iter().position(|regex| regex.is_match(&value));
                prop_assert_eq!(found.first(&value).map(|index| index as usize), expected, "{:?} {}", texts, value);
                prop_assert!(expected.is_none_or(|index| !never.contains(&index)), "{:?} {}", texts, value);
            }
        }
    }
}
