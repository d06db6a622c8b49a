//! Logs as files: plain or compressed by gzip, or standard input. Bad lines are counted, and reading continues.

use super::lines::{LINE_BYTES_MAX, LineReader, ReadLine};
use crate::cli::Failure;
use flate2::bufread::MultiGzDecoder;
use indicatif::ProgressBar;
use std::{
    cell::RefCell,
    fs::File,
    io::{self, BufReader, Read},
    path::Path,
    rc::Rc,
};
use tidegate_replay::{
    Columns, LineContent, LineCounts, LineError, LineParser, Log, LogLine, LoggedDecision, Mapping, Step,
};

/// The first two bytes of a file that gzip made.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

/// Bytes of a compressed log that are read at once.
const COMPRESSED_BYTES: usize = 64 << 10;

/// Whether the argument means standard input.
pub(super) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The lines of logs.
#[derive(Clone)]
pub(super) enum Format {
    /// Of the decision log.
    Decisions,
    /// JSON objects with fields.
    Json(Rc<Mapping>),
    /// Records of CSV, after a line with the names of the columns.
    Csv(Rc<Mapping>),
}

/// The content of one log.
pub(super) struct LogFile {
    name: String,
    lines: LineReader<Box<dyn Read>>,
    /// Number of the line that was read last.
    line_number: u64,
    parser: Parser,
    counts: Rc<RefCell<LineCounts>>,
}

/// Reads the lines of a format.
enum Parser {
    Decisions(LineParser),
    Json(Rc<Mapping>),
    Csv(Rc<Mapping>, Columns),
}

impl LogFile {
    pub(super) fn open(
        path: &Path,
        format: &Format,
        bar: &ProgressBar,
        counts: Rc<RefCell<LineCounts>>,
    ) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let failed = |error: io::Error| Failure(format!("{name}: {error}"));
        let input: Box<dyn Read> = if is_standard(path) {
            Box::new(io::stdin().lock())
        } else {
            let file = File::open(path).map_err(failed)?;
            bar.inc_length(file.metadata().map_err(failed)?.len());
            Box::new(file)
        };
        let mut lines = LineReader::new(decompressed(bar.wrap_read(input)).map_err(failed)?);
        let (mut line_number, first_line) = (0, |error: &str| Failure(format!("{name}:1: {error}")));
        let parser = match format {
            Format::Decisions => Parser::Decisions(LineParser::default()),
            Format::Json(mapping) => Parser::Json(Rc::clone(mapping)),
            Format::Csv(mapping) => {
                line_number = 1;
                let line = match lines.next().map_err(failed)? {
                    Some(ReadLine::Whole(line) | ReadLine::Unfinished(line)) => line,
                    Some(ReadLine::TooLong) | None => &[],
                };
                let columns = Columns::parse(line).map_err(|error| first_line(&error.to_string()))?;
                if let [first, ..] = &*mapping.missing(&columns) {
                    return Err(first_line(&format!("there is no column `{first}`")));
                }
                Parser::Csv(Rc::clone(mapping), columns)
            }
        };
        Ok(Self { name, lines, line_number, parser, counts })
    }
}

impl Parser {
    /// See [`LineParser::parse`].
    fn parse<'l>(
        &mut self,
        line: &'l [u8],
        decision: &mut LoggedDecision<'l>,
    ) -> Result<Option<LineContent>, LineError> {
        match self {
            Self::Decisions(parser) => parser.parse(line, decision),
            Self::Json(mapping) => mapping.json_line(line).map(Some),
            Self::Csv(mapping, columns) => mapping.csv_line(columns, line).map(Some),
        }
    }
}

impl Log for LogFile {
    type Error = Failure;

    fn read<'s>(&'s mut self, decision: &mut LoggedDecision<'s>) -> Result<Option<LogLine>, Failure> {
        let Self { name, lines, line_number, parser, counts } = self;
        *line_number += 1;
        let read = lines.next().map_err(|error| Failure(format!("{name}: {error}")))?;
        let (line, is_whole) = match read {
            None => return Ok(None),
            Some(ReadLine::Whole(line)) => (line, true),
            Some(ReadLine::Unfinished(line)) => (line, false),
            Some(ReadLine::TooLong) => {
                let reason = format_args!("longer than {LINE_BYTES_MAX} bytes");
                counts.borrow_mut().add_bad(name, *line_number, reason);
                return Ok(Some(LogLine::Other));
            }
        };
        let counts = || counts.borrow_mut();
        match parser.parse(line, decision) {
            Ok(None) => return Ok(Some(LogLine::Decision)),
            Ok(Some(LineContent::Decision(event))) => return Ok(Some(LogLine::Step(Step::Decision(event)))),
            Ok(Some(LineContent::Rules(step))) => return Ok(Some(LogLine::Step(Step::Rules(step)))),
            Ok(Some(LineContent::Reset(step))) => return Ok(Some(LogLine::Step(Step::Reset(step)))),
            Ok(Some(LineContent::Cancelled(step))) => return Ok(Some(LogLine::Step(Step::Cancelled(step)))),
            Ok(Some(LineContent::WithoutDescriptors)) => counts().without_descriptors += 1,
            Ok(Some(LineContent::Omitted)) => counts().omitted += 1,
            Ok(Some(LineContent::Assignment)) => counts().assignments += 1,
            Ok(Some(LineContent::Dropped(count))) => counts().dropped += count,
            Err(_) if !is_whole || line.trim_ascii().is_empty() => {}
            Err(error) => counts().add_bad(name, *line_number, error),
        }
        Ok(Some(LogLine::Other))
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
