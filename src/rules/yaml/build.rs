//! From the parser's events to a tree of nodes.

use super::{DEPTH_MAX, Kind, Node, Pair, REPEATED_MAX, Report, Scalar, join};
use crate::rules::error::Position;
use saphyr_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag};
use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
};

/// The one document of a file; none if it is empty or not YAML, which is reported.
///
/// After a mistake that leaves the rest readable (a key given twice, say) reading goes on, to find the others.
pub(in crate::rules) fn parse(text: &str, report: &mut Report<'_>) -> Option<Rc<Node>> {
    // Some editors put a byte order mark in front of UTF-8; it says nothing.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut builder = Builder { report, open: Vec::new(), anchors: HashMap::new(), repeated: 0, root: None };
    let mut documents = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = match event {
            Ok(event) => event,
            Err(error) => {
                let (position, message) = (position(*error.marker()), explained(&error, text));
                builder.report.at(position, "", message);
                return None;
            }
        };
        let position = position(span.start);
        if matches!(event, Event::DocumentStart(_)) {
            documents += 1;
            if documents > 1 {
                let message = "a second document begins; put it into a file of its own";
                builder.report.at(position, "", message);
                break;
            }
        }
        if let Err((path, message)) = builder.event(event, position) {
            builder.report.at(position, path, message);
            return None;
        }
    }
    let root = builder.root.filter(|root| !root.is_null());
    if root.is_none() {
        let message = "the file says nothing; begin it with `domain: NAME`";
        builder.report.at(Position { line: 1, column: 1 }, "", message);
    }
    root
}

fn position(marker: Marker) -> Position {
    Position { line: marker.line().max(1), column: marker.col() + 1 }
}

/// The parser's words for what is wrong, with a remedy for what people run into most.
fn explained(error: &ScanError, text: &str) -> String {
    let line = text.lines().nth(error.marker().line().saturating_sub(1)).unwrap_or_default();
    let indent = &line[..line.len() - line.trim_start().len()];
    if indent.contains('\t') {
        return "a tab cannot indent YAML; indent with spaces".to_owned();
    }
    let remedy = match error.info() {
        info if info.contains("mapping values are not allowed") => {
            "; check the indentation, and quote a value that holds \": \""
        }
        info if info.contains("unknown anchor") => "; an alias (*name) needs an anchor (&name) before it",
        info if info.contains("anchor or alias") || info.contains("expected alphabetic") => {
            "; quote a value that begins with * or &"
        }
        info if info.contains("end of stream") || info.contains("quoted scalar") => "; is a quote missing?",
        info if info.contains("flow") => "; is a bracket or a comma missing?",
        info if info.contains("indent") || info.contains("block") || info.contains("expected key") => {
            "; check the indentation"
        }
        _ => "",
    };
    format!("this is not YAML: {}{remedy}", error.info())
}

/// A reason to read no further, and the path to it.
type Fatal = (String, String);

/// A map or a list that has begun.
struct Open {
    position: Position,
    /// The parser's number for its anchor; 0 if it has none.
    anchor: usize,
    content: Content,
}

enum Content {
    List(Vec<Rc<Node>>),
    Map { pairs: Vec<Pair>, merged: Vec<Rc<Node>>, key: Key },
}

/// What of the next pair is there.
enum Key {
    Awaited,
    Given(KeyText),
    /// The key was no text; the value that follows has no place.
    Bad,
}

struct KeyText {
    text: Box<str>,
    /// As [`Scalar::plain`].
    plain: bool,
    position: Position,
}

struct Builder<'b, 'p> {
    report: &'b mut Report<'p>,
    open: Vec<Open>,
    anchors: HashMap<usize, Rc<Node>>,
    /// Nodes repeated by aliases so far.
    repeated: usize,
    root: Option<Rc<Node>>,
}

impl Builder<'_, '_> {
    fn event(&mut self, event: Event<'_>, position: Position) -> Result<(), Fatal> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let forced_text = self.tag_says_text(tag.as_deref(), position);
                let node = Node::scalar(position, text, style == ScalarStyle::Plain && !forced_text);
                self.complete(Rc::new(node), anchor);
                Ok(())
            }
            Event::SequenceStart(anchor, tag) => {
                self.tag_says_text(tag.as_deref(), position);
                self.begin(position, anchor, Content::List(Vec::new()))
            }
            Event::MappingStart(anchor, tag) => {
                self.tag_says_text(tag.as_deref(), position);
                let content = Content::Map { pairs: Vec::new(), merged: Vec::new(), key: Key::Awaited };
                self.begin(position, anchor, content)
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let open = self.open.pop().expect("the parser ends only what it began");
                let node = match open.content {
                    Content::List(items) => Node::list(open.position, items),
                    Content::Map { pairs, merged, .. } => {
                        Node::map(open.position, self.distinct(pairs, &merged))
                    }
                };
                self.complete(Rc::new(node), open.anchor);
                Ok(())
            }
            Event::Alias(anchor) => self.alias(anchor),
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd => Ok(()),
        }
    }

    /// Whether a tag makes a text of what would be a number or so. Tags of other types say what the place says anyway.
    fn tag_says_text(&mut self, tag: Option<&Tag>, position: Position) -> bool {
        match tag {
            Some(tag) if tag.is_yaml_core_schema() => tag.suffix == "str",
            Some(tag) => {
                let message = format!("the tag {tag} means nothing in rules; remove it");
                self.report.at(position, self.path(), message);
                false
            }
            None => false,
        }
    }

    fn begin(&mut self, position: Position, anchor: usize, content: Content) -> Result<(), Fatal> {
        if self.open.len() == DEPTH_MAX {
            let message =
                format!("this lies more than {DEPTH_MAX} maps and lists deep; a file may go no deeper");
            return Err((String::new(), message));
        }
        self.open.push(Open { position, anchor, content });
        Ok(())
    }

    fn alias(&mut self, anchor: usize) -> Result<(), Fatal> {
        let Some(node) = self.anchors.get(&anchor).cloned() else {
            return Err((self.path(), "an alias within what it stands for never ends; remove it".to_owned()));
        };
        self.repeated = self.repeated.saturating_add(node.size);
        if self.repeated > REPEATED_MAX {
            let message = format!("aliases repeat more than {REPEATED_MAX} values; write fewer of them");
            return Err((self.path(), message));
        }
        if self.open.len() + node.height > DEPTH_MAX {
            let message = format!(
                "this alias makes the file more than {DEPTH_MAX} maps and lists deep; it may go no deeper"
            );
            return Err((String::new(), message));
        }
        self.complete(node, 0);
        Ok(())
    }

    /// Puts a finished node where it belongs.
    fn complete(&mut self, node: Rc<Node>, anchor: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return;
        };
        match &mut open.content {
            Content::List(items) => items.push(node),
            Content::Map { pairs, merged, key } => match std::mem::replace(key, Key::Awaited) {
                Key::Awaited => match &node.kind {
                    Kind::Scalar(Scalar { text, plain }) => {
                        *key = Key::Given(KeyText {
                            text: text.clone(),
                            plain: *plain,
                            position: node.position,
                        });
                    }
                    Kind::List(_) | Kind::Map(_) => {
                        *key = Key::Bad;
                        let message = "a map or a list stands where a key is due; write `key: value`";
                        self.report.at(node.position, self.path(), message);
                    }
                },
                Key::Bad => {}
                Key::Given(key) if key.plain && &*key.text == "<<" => merged.push(node),
                Key::Given(key) => {
                    pairs.push(Pair { key: key.text, key_position: key.position, value: node });
                }
            },
        }
    }

    /// The pairs without repetitions, which are reported, and with those merged pairs (`<<: *map` or `<<: [*map, *other]`)
    /// that are not overridden: a map's own keys come before merged ones, and of the merged maps the first one counts.
    fn distinct(&mut self, mut pairs: Vec<Pair>, merged: &[Rc<Node>]) -> Vec<Pair> {
        let mut seen: HashMap<Box<str>, Position> = HashMap::with_capacity(pairs.len());
        let mut repeated = Vec::new();
        pairs.retain(|pair| match seen.get(&pair.key) {
            None => {
                seen.insert(pair.key.clone(), pair.key_position);
                true
            }
            Some(first) => {
                repeated.push((pair.key_position, pair.key.clone(), *first));
                false
            }
        });
        for (position, key, first) in repeated {
            let message = format!("the key is already given at {first}; keep one of the two");
            self.report.at(position, join(&self.path(), &key), message);
        }
        let mut names: HashSet<Box<str>> = seen.into_keys().collect();
        let maps = merged.iter().flat_map(|node| match &node.kind {
            Kind::List(items) => items.as_slice(),
            _ => std::slice::from_ref(node),
        });
        for map in maps {
            if let Kind::Map(others) = &map.kind {
                pairs.extend(others.iter().filter(|pair| names.insert(pair.key.clone())).cloned());
            } else {
                let message = "`<<` merges maps; write `<<: *name` with the anchor `&name` on a map";
                self.report.at(map.position, self.path(), message);
            }
        }
        pairs
    }

    /// The way through the keys to what is being read.
    fn path(&self) -> String {
        let mut path = String::new();
        for open in &self.open {
            match &open.content {
                Content::List(items) => path += &format!("[{}]", items.len()),
                Content::Map { key: Key::Given(key), .. } => {
                    path = join(&path, &key.text);
                }
                Content::Map { .. } => {}
            }
        }
        path
    }
}
