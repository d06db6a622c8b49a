//! Calls of functions and methods, and loops, which have the form of methods.

use super::{Deep, Parsed, Parser};
use crate::{
    LOOPS_MAX, ParseError,
    functions::{Function, NAMES},
    lexer::Kind,
    node::{Loop, LoopKind, Node},
    pattern::with_ascii_classes,
};
use regex_automata::{meta::Regex, util::syntax};
use std::sync::Arc;

/// Bytes that the automaton of a pattern may take.
const PATTERN_BYTES_MAX: usize = 1 << 20;

impl Parser {
    /// Parses a call, after `name(`.
    pub(super) fn call(&mut self, name: &str, offset: usize) -> Parsed {
        let error = |message: String| Err(ParseError { offset, message });
        let (mut arguments, depth) = self.arguments(")")?;
        match (name, arguments.len()) {
            ("has", 1) => match arguments.remove(0) {
                Node::Entry { descriptor, key } => {
                    let of = (Node::Descriptors, Node::Int(descriptor as i64));
                    self.above(Node::Has(Box::new(Node::Index(Box::new(of))), key), depth + 1)
                }
                Node::Select(of, key) => self.above(Node::Has(of, key), depth),
                Node::LimitName | Node::LimitId => Ok(Deep::leaf(Node::Bool(true))),
                _ => error("`has` is for a field; write has(VALUE.NAME), or \"NAME\" in VALUE".to_owned()),
            },
            ("matches", 2) => {
                let pattern = arguments.remove(1);
                self.matches(Deep { node: arguments.remove(0), depth }, &pattern, offset)
            }
            (name, 1) if let Some(function) = Function::global(name) => {
                self.above(Node::Call(function, arguments.into()), depth)
            }
            ("has" | "matches", count) => error(format!("`{name}` is called with {count} arguments")),
            (name, count) if Function::global(name).is_some() => {
                error(format!("`{name}` has one argument, not {count}"))
            }
            (name, _) => error(format!("`{name}` is not a function; supported are {NAMES}")),
        }
    }

    /// Parses a method call, after `of.name(`.
    pub(super) fn method(&mut self, of: Deep, name: &str, offset: usize) -> Parsed {
        let error = |message: String| Err(ParseError { offset, message });
        let kind = match name {
            "all" => Some(LoopKind::All),
            "exists" => Some(LoopKind::Exists),
            "exists_one" | "existsOne" => Some(LoopKind::ExistsOne),
            "filter" | "map" => Some(LoopKind::List),
            _ => None,
        };
        if let Some(kind) = kind {
            return self.each(of, name, kind);
        }
        let (mut arguments, depth) = self.arguments(")")?;
        let depth = depth.max(of.depth);
        if name == "matches" && arguments.len() == 1 {
            return self.matches(Deep { node: of.node, depth }, &arguments.remove(0), offset);
        }
        match Function::method(name) {
            Some((function, count)) if count == arguments.len() + 1 => {
                arguments.insert(0, of.node);
                self.above(Node::Call(function, arguments.into()), depth)
            }
            Some((_, count)) => {
                error(format!("`{name}` has {} arguments, not {}", count - 1, arguments.len()))
            }
            None if name == "matches" => {
                error(format!("`matches` has one argument, not {}", arguments.len()))
            }
            None => error(format!("`{name}` is not a function; supported are {NAMES}")),
        }
    }

    fn matches(&self, of: Deep, pattern: &Node, offset: usize) -> Parsed {
        let error = |message: String| Err(ParseError { offset, message });
        let Node::Text(pattern) = pattern else {
            return error(
                "`matches` has a pattern that is not known beforehand; write it as a text in quotes"
                    .to_owned(),
            );
        };
        let config =
            Regex::config().nfa_size_limit(Some(PATTERN_BYTES_MAX)).hybrid_cache_capacity(PATTERN_BYTES_MAX);
        let syntax = syntax::Config::new().nest_limit(100);
        let built = Regex::builder().configure(config).syntax(syntax).build(&with_ascii_classes(pattern));
        match built {
            Ok(built) => self.above(Node::Matches(Box::new(of.node), Arc::new(built)), of.depth),
            Err(problem) => {
                let reason = match problem.syntax_error() {
                    Some(syntax) => {
                        syntax.to_string().lines().last().unwrap_or_default().replace("error: ", "")
                    }
                    None => problem.to_string(),
                };
                error(format!("{pattern:?} is not a regular expression: {reason}"))
            }
        }
    }

    /// Parses a loop, after its `of.name(`.
    fn each(&mut self, over: Deep, name: &str, kind: LoopKind) -> Parsed {
        let Kind::Name(variable) = self.next() else {
            return self.error(format!("`{name}` begins with the name of a variable; write {name}(x, …)"));
        };
        if self.variables.len() >= LOOPS_MAX {
            return self.error(format!("loops are nested more than {LOOPS_MAX} deep; split the condition"));
        }
        self.expect(",")?;
        let index = self.variables.len();
        self.variables.push(variable);
        let first = self.expression()?;
        let second = if name == "map" && self.takes(",") { Some(self.expression()?) } else { None };
        self.expect(")")?;
        self.variables.pop();
        let depth = over.depth.max(first.depth).max(second.as_ref().map_or(0, |second| second.depth));
        let (predicate, item) = match (name, second) {
            ("map", None) => (Node::Bool(true), Some(first.node)),
            (_, second) => (first.node, second.map(|second| second.node)),
        };
        self.above(
            Node::Loop(Box::new(Loop { kind, over: over.node, variable: index, predicate, item })),
            depth,
        )
    }
}
