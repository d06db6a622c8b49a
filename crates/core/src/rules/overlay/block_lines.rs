//! Files of blocks: one entry per line.
//!
//! `KEY=VALUE` blocks a value, `KEY=ADDRESS` and `KEY=ADDRESS/LENGTH` a network. A line `[DOMAIN]` limits the lines after it to one
//! domain, `[*]` ends that. `#` begins a comment, at the start of a line or after a space.

use super::block::{Block, BlockedValues};
use crate::rules::{Origin, Position, Source, error::Problems};

/// The reason why a line is malformed, and the number of characters before the malformed part.
type Malformed = (usize, String);

enum BlockLine<'l> {
    /// The following lines are for this domain; none: for every domain.
    Domain(Option<&'l str>),
    Entry(&'l str, BlockedValues),
}

/// Reads every line, and notes every malformed line. Returns the blocks with their places.
pub(super) fn read(source: &Source, problems: &Problems) -> Vec<(Position, Block)> {
    let text = source.text();
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let (mut blocks, mut domain) = (Vec::new(), None);
    for (line, text) in (1..).zip(text.lines()) {
        let content = without_comment(text);
        let indent = content.chars().take_while(|character| character.is_whitespace()).count();
        let position = |before: usize| Position { line, column: indent + before + 1 };
        match content.trim() {
            "" => {}
            content => match parse(content) {
                Ok(BlockLine::Domain(of)) => domain = of.map(str::to_owned),
                Ok(BlockLine::Entry(key, values)) => {
                    let (id, domain, key) = (format!("{}:{line}", source.id), domain.clone(), key.to_owned());
                    blocks.push((position(0), Block { id, domain, key, values, is_in_file: true }));
                }
                Err((before, message)) => {
                    let position = Some(position(before));
                    problems.at(&Origin { source: source.id.clone(), position }, "", message);
                }
            },
        }
    }
    blocks
}

fn without_comment(line: &str) -> &str {
    let mut hashes = line.match_indices('#').map(|(at, _)| at);
    let comment = hashes.find(|at| line[..*at].chars().next_back().is_none_or(char::is_whitespace));
    &line[..comment.unwrap_or(line.len())]
}

fn parse(content: &str) -> Result<BlockLine<'_>, Malformed> {
    let Some((key, value)) = content.split_once('=') else {
        return match content.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            Some("") => Err((0, "has no domain; write [DOMAIN], or [*] for every domain".to_owned())),
            Some("*") => Ok(BlockLine::Domain(None)),
            Some(domain) => Ok(BlockLine::Domain(Some(domain))),
            None => Err((0, format!("{content:?} is not an entry; write KEY=VALUE or KEY=CIDR"))),
        };
    };
    let before_value = key.chars().count() + 1;
    if key.is_empty() {
        return Err((0, "has no key; write KEY=VALUE".to_owned()));
    }
    if value.is_empty() {
        return Err((before_value, "has no value; write KEY=VALUE, or KEY=* for every value".to_owned()));
    }
    if key.ends_with(char::is_whitespace) || value.starts_with(char::is_whitespace) {
        return Err((before_value - 1, "has a space beside `=`; write KEY=VALUE without".to_owned()));
    }
    let values = BlockedValues::of_text(value).map_err(|message| (before_value, message))?;
    Ok(BlockLine::Entry(key, values))
}
