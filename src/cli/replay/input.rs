//! Logs as files: plain or compressed by gzip, or standard input. Bad lines are counted, and reading continues.

use crate::{
    cli::Failure,
    replay::{Columns, Line, LineCounts, LineError, Mapping, Step, parse_line},
};
use flate2::bufread::MultiGzDecoder;
use indicatif::ProgressBar;
use std::{
    cell::RefCell,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    path::Path,
    rc::Rc,
};

/// Bytes of a line. The largest request that a server accepts by default makes a much shorter one.
const LINE_BYTES_MAX: usize = 4 << 20;

/// The first two bytes of a file that gzip made.
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

const BUFFER_BYTES: usize = 256 << 10;

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
    format: Format,
    /// None before the first line of CSV.
    columns: Option<Columns>,
    reader: Box<dyn BufRead>,
    /// Number of the line that was read last.
    line_number: u64,
    line: Vec<u8>,
    counts: Rc<RefCell<LineCounts>>,
}

/// A line as it is in the file.
enum ReadLine {
    Whole,
    /// At the end of the file, without a line feed: a server may be about to write the rest.
    Unfinished,
    TooLong,
    End,
}

impl LogFile {
    pub(super) fn open(
        path: &Path,
        format: Format,
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
        let reader = decompressed(bar.wrap_read(input)).map_err(failed)?;
        let mut log = Self { name, format, columns: None, reader, line_number: 0, line: Vec::new(), counts };
        if let Format::Csv(mapping) = log.format.clone() {
            log.read_line().map_err(|error| Failure(format!("{}: {error}", log.name)))?;
            let columns =
                Columns::parse(&log.line).map_err(|error| Failure(format!("{}:1: {error}", log.name)))?;
            if let [first, ..] = &*mapping.missing(&columns) {
                return Err(Failure(format!("{}:1: there is no column `{first}`", log.name)));
            }
            log.columns = Some(columns);
        }
        Ok(log)
    }

    fn parse(&self) -> Result<Line, LineError> {
        match (&self.format, &self.columns) {
            (Format::Json(mapping), _) => mapping.json_line(&self.line),
            (Format::Csv(mapping), Some(columns)) => mapping.csv_line(columns, &self.line),
            (Format::Decisions | Format::Csv(_), _) => parse_line(&self.line),
        }
    }

    fn read_line(&mut self) -> io::Result<ReadLine> {
        self.line.clear();
        self.line_number += 1;
        let mut bounded = (&mut self.reader).take(LINE_BYTES_MAX as u64);
        let bytes = bounded.read_until(b'\n', &mut self.line)?;
        Ok(match self.line.last() {
            None => ReadLine::End,
            Some(b'\n') => ReadLine::Whole,
            Some(_) if bytes < LINE_BYTES_MAX => ReadLine::Unfinished,
            Some(_) => {
                self.reader.skip_until(b'\n')?;
                ReadLine::TooLong
            }
        })
    }

    fn next_step(&mut self) -> io::Result<Option<Step>> {
        loop {
            let read = self.read_line()?;
            let (name, mut counts) = (&self.name, self.counts.borrow_mut());
            match read {
                ReadLine::End => return Ok(None),
                ReadLine::TooLong => {
                    let reason = format_args!("longer than {LINE_BYTES_MAX} bytes");
                    counts.add_bad(name, self.line_number, reason);
                    continue;
                }
                ReadLine::Whole | ReadLine::Unfinished => {}
            }
            match self.parse() {
                Ok(Line::Decision(event)) => return Ok(Some(Step::Decision(event))),
                Ok(Line::Rules(step)) => return Ok(Some(Step::Rules(step))),
                Ok(Line::Reset(step)) => return Ok(Some(Step::Reset(step))),
                Ok(Line::WithoutDescriptors) => counts.without_descriptors += 1,
                Ok(Line::Omitted) => counts.omitted += 1,
                Ok(Line::Dropped(count)) => counts.dropped += count,
                Err(_) if matches!(read, ReadLine::Unfinished) || self.line.trim_ascii().is_empty() => {}
                Err(error) => counts.add_bad(name, self.line_number, error),
            }
        }
    }
}

impl Iterator for LogFile {
    type Item = Result<Step, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        let next = self.next_step().map_err(|error| Failure(format!("{}: {error}", self.name)));
        next.transpose()
    }
}

/// The content of a log, decompressed if it is compressed. Rotated logs that were concatenated are read to the end.
fn decompressed(input: impl Read + 'static) -> io::Result<Box<dyn BufRead>> {
    let mut first = Vec::new();
    let mut input = input;
    (&mut input).take(GZIP_MAGIC.len() as u64).read_to_end(&mut first)?;
    let is_compressed = first == GZIP_MAGIC;
    let whole = BufReader::with_capacity(BUFFER_BYTES, io::Cursor::new(first).chain(input));
    Ok(if is_compressed {
        Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(whole)))
    } else {
        Box::new(whole)
    })
}
