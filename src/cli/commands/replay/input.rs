//! Logs as files: plain or compressed by gzip, or standard input. Bad lines are counted, and reading continues.

use super::lines::{LINE_BYTES_MAX, LineReader, ReadLine};
use crate::cli::{Failure, files};
use flate2::bufread::MultiGzDecoder;
use indicatif::ProgressBar;
use std::{
    cell::RefCell,
    io::{self, BufReader, Read},
    path::Path,
    rc::Rc,
    sync::Arc,
};
use tidegate_replay::{
    AccessLog, Columns, FieldsSeen, GZIP_MAGIC, Layout, LineCounts, LineError, LineParser, Log, LogLine,
    LoggedDecision, Mapping, without_container_prefix,
};

/// A byte order mark, with which some programs start a file.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// Bytes of a compressed log that are read at once.
const COMPRESSED_BYTES: usize = 64 << 10;

/// The lines of logs.
#[derive(Clone)]
pub(super) enum Format {
    /// Lines of the decision log.
    Decisions,
    /// Lines of an access log.
    Access(AccessLog),
    /// Records of CSV, after a line with the names of the columns.
    Csv(Arc<Mapping>),
}

/// Counts over all logs.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) lines: LineCounts,
    pub(super) fields: FieldsSeen,
}

/// Why the steps of logs are not read on.
pub(super) enum Stop {
    Failed(Failure),
    /// The logs have to be sorted first.
    OutOfOrder,
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The content of one log.
pub(super) struct LogFile {
    name: String,
    lines: LineReader<Box<dyn Read>>,
    /// Number of the line that was read last.
    line_number: u64,
    /// A line without what a container runtime has put around it.
    unwrapped: Vec<u8>,
    pub(super) parser: Parser,
    counts: Rc<RefCell<Counts>>,
}

/// A line that was read.
pub(super) struct Line<'s> {
    pub(super) content: LogLine,
    /// Its text, from which [`Parser::parse`] reads the content again.
    pub(super) text: &'s [u8],
}

/// Reads the lines of a format.
pub(super) enum Parser {
    Decisions(LineParser),
    Access(AccessLog),
}

impl LogFile {
    pub(super) fn open(
        path: &Path,
        format: &Format,
        bar: &ProgressBar,
        counts: Rc<RefCell<Counts>>,
    ) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let failed = |error: io::Error| Failure(format!("{name}: {error}"));
        let (input, length) = files::open(path)?;
        bar.inc_length(length);
        let mut lines = LineReader::new(decompressed(bar.wrap_read(input)).map_err(failed)?);
        let (mut line_number, first_line) = (0, |error: &str| Failure(format!("{name}:1: {error}")));
        let parser = match format {
            Format::Decisions => Parser::Decisions(LineParser::default()),
            Format::Access(log) => Parser::Access(log.clone()),
            Format::Csv(mapping) => {
                line_number = 1;
                let line = match lines.next().map_err(failed)? {
                    Some(ReadLine::Whole(line) | ReadLine::Unfinished(line)) => line,
                    Some(ReadLine::TooLong) | None => &[],
                };
                let line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
                let mut buffer = Vec::new();
                let columns = without_container_prefix(line, &mut buffer).and_then(Columns::parse);
                let columns = columns.map_err(|error| first_line(&error.to_string()))?;
                let log = AccessLog::new(Arc::clone(mapping), Layout::Csv(columns));
                Parser::Access(log.map_err(|error| first_line(&error.to_string()))?)
            }
        };
        Ok(Self { name, lines, line_number, unwrapped: Vec::new(), parser, counts })
    }

    /// Reads the next line; none at the end. See [`Log::read`].
    pub(super) fn next<'s>(
        &'s mut self,
        decision: &mut LoggedDecision<'s>,
    ) -> Result<Option<Line<'s>>, Failure> {
        let Self { name, lines, line_number, unwrapped, parser, counts } = self;
        *line_number += 1;
        let counts = &mut *counts.borrow_mut();
        let read = lines.next().map_err(|error| Failure(format!("{name}: {error}")))?;
        let (line, is_whole) = match read {
            None => return Ok(None),
            Some(ReadLine::Whole(line)) => (line, true),
            Some(ReadLine::Unfinished(line)) => (line, false),
            Some(ReadLine::TooLong) => {
                let reason = format_args!("longer than {LINE_BYTES_MAX} bytes");
                counts.lines.add_bad(name, *line_number, reason);
                return Ok(Some(Line { content: LogLine::Other, text: &[] }));
            }
        };
        let line = match line.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) if *line_number == 1 => rest,
            _ => line,
        };
        let (mut text, mut content) = (line, Ok(LogLine::Other));
        if !line.trim_ascii().is_empty() {
            content = without_container_prefix(line, unwrapped).and_then(|unwrapped| {
                text = unwrapped;
                parser.parse(text, decision, counts)
            });
        }
        let content = content.unwrap_or_else(|error| {
            if is_whole {
                counts.lines.add_bad(name, *line_number, error);
            }
            LogLine::Other
        });
        Ok(Some(Line { content, text }))
    }
}

impl Parser {
    /// Reads a line; a line that cannot be replayed is counted. See [`Log::read`].
    pub(super) fn parse<'l>(
        &mut self,
        line: &'l [u8],
        decision: &mut LoggedDecision<'l>,
        counts: &mut Counts,
    ) -> Result<LogLine, LineError> {
        let content = match self {
            Self::Decisions(parser) => parser.parse(line, decision)?,
            Self::Access(log) => Some(log.parse(line, &mut counts.fields)?),
        };
        let Some(content) = content else { return Ok(LogLine::Decision) };
        Ok(counts.lines.step_of(content).map_or(LogLine::Other, LogLine::Step))
    }
}

impl Log for LogFile {
    type Error = Stop;

    fn read<'s>(&'s mut self, decision: &mut LoggedDecision<'s>) -> Result<Option<LogLine>, Stop> {
        Ok(self.next(decision)?.map(|line| line.content))
    }
}

/// The content of a log, decompressed if it is compressed. Rotated logs that were concatenated are read to the end.
fn decompressed(input: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    let mut first = Vec::new();
    let mut input = input;
    (&mut input).take(GZIP_MAGIC.len() as u64).read_to_end(&mut first)?;
    let is_compressed = first == GZIP_MAGIC;
    let whole = io::Cursor::new(first).chain(input);
    Ok(if is_compressed {
        Box::new(MultiGzDecoder::new(BufReader::with_capacity(COMPRESSED_BYTES, whole)))
    } else {
        Box::new(whole)
    })
}
