//! Builds a tree of nodes from the events of the YAML parser.

use super::{DEPTH_MAX, Kind, Node, Pair, REPEATED_MAX, Report, Scalar, join};
use crate::rules::error::Position;
use granit_parser::{ErrorKind, Event, Marker, Options, Parser, ScalarStyle, ScanError, Tag};
use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap, HashSet},
    rc::Rc,
};

/// The first document of a file; none if the file is empty or not YAML, which is reported. Another document is an error
/// unless it is empty.
///
/// After an error that leaves the rest readable, such as a repeated key, parsing continues to find the others.
pub(in crate::rules) fn parse(text: &str, report: &Report<'_>) -> Option<Rc<Node>> {
    parse_wanted(text, Wanted::One, report).pop()
}

/// All documents of a file that are not empty, whatever their shape: tags other than YAML's own have no effect.
pub(in crate::rules) fn parse_all(text: &str, report: &Report<'_>) -> Vec<Rc<Node>> {
    parse_wanted(text, Wanted::All, report)
}

/// The documents of a file that are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// The first document, which must be the only one.
    One,
    All,
}

fn parse_wanted(text: &str, wanted: Wanted, report: &Report<'_>) -> Vec<Rc<Node>> {
    // Some editors write a byte order mark before UTF-8; it has no meaning.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = AmendedText { text: Cow::Borrowed(text), indented: BTreeSet::new(), parted: 0 };
    let errors_before = report.problems.len();
    loop {
        match read(&lines, wanted, report) {
            Ok(roots) => return roots,
            Err(error) if lines.amend(&error) => report.problems.truncate(errors_before),
            Err(error) => {
                report.at(lines.position(*error.marker()), "", explained(&error, &lines.text));
                return Vec::new();
            }
        }
    }
}

/// The text of a file, changed where YAML 1.2 is stricter than YAML 1.1 and the reference server's parser.
struct AmendedText<'t> {
    text: Cow<'t, str>,
    /// Lines, counted from 1, indented by [`INSERTED`] spaces.
    indented: BTreeSet<usize>,
    /// Number of comments before which a space was put. Nothing but the comment follows it in its line.
    parted: usize,
}

/// Spaces that are put before a line of quoted text which is indented less than YAML 1.2 demands. Folding drops them.
const INSERTED: usize = 256;

/// Bound on such lines of one file: each takes another reading of the file.
const INDENTED_MAX: usize = 64;

/// Bound on the comments that a space is put before: likewise.
const PARTED_MAX: usize = 256;

impl AmendedText<'_> {
    /// Changes the text if another reading may then get further, because YAML 1.1 and the reference server's parser
    /// allow what the error is about.
    fn amend(&mut self, error: &ScanError) -> bool {
        let line = error.marker().line();
        let begins = self.text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
        let (at, spaces) = match error.kind() {
            // Quoted text may continue at any column.
            ErrorKind::InvalidQuotedScalarIndent | ErrorKind::TabInIndentation
                if line > 0 && self.indented.len() < INDENTED_MAX && self.indented.insert(line) =>
            {
                (begins, INSERTED)
            }
            // A comment may follow a token without a space.
            ErrorKind::CommentNotSeparated if line > 0 && self.parted < PARTED_MAX => {
                let mut of_line = self.text[begins..].split('\n').next().unwrap_or_default().char_indices();
                let Some((column, '#')) = of_line.nth(error.marker().col()) else { return false };
                self.parted += 1;
                (begins + column, 1)
            }
            _ => return false,
        };
        self.text.to_mut().insert_str(at, &" ".repeat(spaces));
        true
    }

    /// The position in the file as it was written.
    fn position(&self, marker: Marker) -> Position {
        let line = marker.line().max(1);
        let inserted = if self.indented.contains(&line) { INSERTED } else { 0 };
        Position { line, column: marker.col().saturating_sub(inserted) + 1 }
    }
}

/// One reading; an error is one of the parser's, other problems are reported.
fn read(lines: &AmendedText<'_>, wanted: Wanted, report: &Report<'_>) -> Result<Vec<Rc<Node>>, ScanError> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    let mut builder =
        Builder { report, wanted, open: Vec::new(), anchors: HashMap::new(), repeated: 0, roots: Vec::new() };
    let mut documents: Vec<Position> = Vec::new();
    for event in Parser::new_from_str_with_options(&lines.text, options) {
        let (event, span) = event?;
        let position = lines.position(span.start);
        if matches!(event, Event::DocumentStart(..)) {
            documents.push(position);
        }
        let event = match event {
            // The parser reports an absent value as `~`.
            Event::Scalar(_, ScalarStyle::Plain, anchor, tag) if span.start.index() >= span.end.index() => {
                Event::Scalar(Cow::Borrowed(""), ScalarStyle::Plain, anchor, tag)
            }
            event => event,
        };
        if let (Wanted::One, [_, .., begins]) = (wanted, &*documents) {
            if has_content(&event) {
                let message = "a second document begins; put it into a file of its own";
                builder.report.at(*begins, "", message);
                break;
            }
        } else if let Err((path, message)) = builder.event(event, position) {
            builder.report.at(position, path, message);
            return Ok(Vec::new());
        }
    }
    builder.roots.retain(|root| !root.is_null());
    if wanted == Wanted::One && builder.roots.is_empty() {
        let message = "the file is empty; begin it with `domain: NAME`";
        builder.report.at(Position { line: 1, column: 1 }, "", message);
    }
    Ok(builder.roots)
}

/// Whether the event is more than the beginning, the end or the absence of a document.
fn has_content(event: &Event<'_>) -> bool {
    match event {
        Event::Scalar(text, style, ..) => *style != ScalarStyle::Plain || !text.is_empty(),
        Event::SequenceStart(..) | Event::MappingStart(..) | Event::Alias(_) => true,
        _ => false,
    }
}

/// The parser's message, with a remedy for common mistakes.
fn explained(error: &ScanError, text: &str) -> String {
    let line = text.lines().nth(error.marker().line().saturating_sub(1)).unwrap_or_default();
    let indent = &line[..line.len() - line.trim_start().len()];
    if indent.contains('\t') {
        return "a tab cannot indent YAML; indent with spaces".to_owned();
    }
    let remedy = match error.kind() {
        ErrorKind::RecursionLimitExceeded => return TOO_DEEP.to_owned(),
        ErrorKind::MappingValueNotAllowed
        | ErrorKind::InvalidMappingValueWhitespace
        | ErrorKind::InvalidColonPlacement => "; check the indentation, and quote a value that holds \": \"",
        ErrorKind::UnknownAnchor => "; an alias (*name) needs an anchor (&name) before it",
        ErrorKind::MissingAnchorOrAliasName => "; quote a value that begins with * or &",
        ErrorKind::UnclosedQuotedScalar | ErrorKind::UnexpectedEof => "; is a quote missing?",
        ErrorKind::UnexpectedEofFlowSequence
        | ErrorKind::UnexpectedEofFlowMapping
        | ErrorKind::UnexpectedEofImplicitFlowMapping
        | ErrorKind::ExpectedFlowMappingSeparator
        | ErrorKind::ExpectedFlowSequenceSeparator
        | ErrorKind::MisplacedFlowCollectionEnd
        | ErrorKind::MismatchedFlowCollectionEnd { .. }
        | ErrorKind::UnclosedFlowCollection { .. } => "; is a bracket or a comma missing?",
        ErrorKind::ExpectedBlockMappingKey
        | ErrorKind::ExpectedBlockSequenceEntry
        | ErrorKind::BlockSequenceEntryNotAllowed
        | ErrorKind::MappingKeyNotAllowed
        | ErrorKind::SimpleKeyExpected
        | ErrorKind::InvalidSimpleKey
        | ErrorKind::InvalidBlockScalarIndent
        | ErrorKind::InvalidIndentation => "; check the indentation",
        _ => "",
    };
    format!("this is not YAML: {}{remedy}", error.info())
}

/// Shown for nesting beyond [`DEPTH_MAX`], which the parser or [`Builder`] may find first.
const TOO_DEEP: &str = "maps and lists are nested more than 200 deep here; a file may not be nested deeper";
const _: () = assert!(DEPTH_MAX == 200, "TOO_DEEP names it");

/// The path to an error after which parsing cannot continue, and its message.
type Fatal = (String, String);

/// A map or a list before its end has been read.
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

/// The state of the next pair.
enum Key {
    Awaited,
    Given(KeyText),
    /// The key was not a text; the value that follows is dropped.
    Bad,
}

struct KeyText {
    text: Box<str>,
    /// As [`Scalar::plain`].
    plain: bool,
    position: Position,
}

struct Builder<'b, 'p> {
    report: &'b Report<'p>,
    wanted: Wanted,
    open: Vec<Open>,
    anchors: HashMap<usize, Rc<Node>>,
    /// Nodes repeated by aliases so far.
    repeated: usize,
    /// The documents that are read to their ends.
    roots: Vec<Rc<Node>>,
}

impl Builder<'_, '_> {
    fn event(&mut self, event: Event<'_>, position: Position) -> Result<(), Fatal> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = match self.tag(tag.as_deref(), position) {
                    Some("str") => false,
                    // `!!int "5"` is the number 5, quotes or not.
                    Some(_) => true,
                    None => style == ScalarStyle::Plain,
                };
                let node = Node::scalar(position, text, plain);
                self.complete(Rc::new(node), anchor);
                Ok(())
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.tag(tag.as_deref(), position);
                self.begin(position, anchor, Content::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, tag) => {
                self.tag(tag.as_deref(), position);
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
            _ => Ok(()),
        }
    }

    /// The type that a tag of YAML's own gives its node; other tags are reported.
    fn tag<'t>(&mut self, tag: Option<&'t Tag>, position: Position) -> Option<&'t str> {
        let tag = tag?;
        if tag.is_yaml_core_schema() {
            return Some(tag.suffix());
        }
        if self.wanted == Wanted::One {
            let message = format!("the tag {tag} has no meaning in rules; remove it");
            self.report.at(position, self.path(), message);
        }
        None
    }

    fn begin(&mut self, position: Position, anchor: usize, content: Content) -> Result<(), Fatal> {
        if self.open.len() == DEPTH_MAX {
            return Err((String::new(), TOO_DEEP.to_owned()));
        }
        self.open.push(Open { position, anchor, content });
        Ok(())
    }

    fn alias(&mut self, anchor: usize) -> Result<(), Fatal> {
        let Some(node) = self.anchors.get(&anchor).cloned() else {
            return Err((
                self.path(),
                "the alias refers to a map or list that contains it; remove it".to_owned(),
            ));
        };
        self.repeated = self.repeated.saturating_add(node.size);
        if self.repeated > REPEATED_MAX {
            let message = format!("aliases repeat more than {REPEATED_MAX} values; write fewer of them");
            return Err((self.path(), message));
        }
        if self.open.len() + node.height > DEPTH_MAX {
            return Err((String::new(), TOO_DEEP.to_owned()));
        }
        self.complete(node, 0);
        Ok(())
    }

    /// Adds a finished node to the map or list that contains it.
    fn complete(&mut self, node: Rc<Node>, anchor: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, Rc::clone(&node));
        }
        let Some(open) = self.open.last_mut() else {
            self.roots.push(node);
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
                        let message = "a map or a list instead of a key; write `key: value`";
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

    /// The pairs without repeated keys, which are reported, and with the merged pairs (`<<: *map` or `<<: [*map, *other]`)
    /// that are not overridden: a map's own keys override merged keys, and an earlier merged map overrides a later map.
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

    /// The keys and indices that lead to the value being read.
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
