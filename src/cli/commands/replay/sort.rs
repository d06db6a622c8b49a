//! Logs that are not in the order of time, sorted with bounded memory: parts of them are sorted in memory and written to temporary
//! files, which are then read side by side.

use super::input::{Counts, LogFile, Parser, Stop};
use crate::cli::Failure;
use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs::File,
    io::{self, BufReader, BufWriter, Read, Seek, Write},
};
use tidegate_core::limit::Timestamp;
use tidegate_replay::{Log, LogLine, LoggedDecision};

/// Bytes that are sorted in memory at once.
const PART_BYTES: usize = 64 << 20;
/// Parts of all logs: each is an open file with a buffer.
const PARTS_MAX: usize = 512;
const BUFFER_BYTES: usize = 64 << 10;

/// The lines of all logs in the order of time.
pub(super) struct SortedLogs {
    parts: Vec<Part>,
    /// The time of the next line of each part; at one time, in the order of the parts.
    heads: BinaryHeap<Reverse<(Timestamp, usize)>>,
    /// The part whose line was read last.
    last: Option<usize>,
    parsers: Vec<Parser>,
    /// The lines were counted when they were read first.
    counted: Counts,
}

/// Lines in the order of time, in a temporary file.
struct Part {
    file: BufReader<File>,
    /// Index of the parser of its lines.
    parser: usize,
    /// The next line.
    line: Vec<u8>,
}

/// The parts of one log, and the time of its oldest line.
struct SortedLog {
    start: Option<Timestamp>,
    parts: Vec<Part>,
}

/// Sorts the lines that can be repeated.
pub(super) fn sorted(logs: Vec<LogFile>) -> Result<SortedLogs, Failure> {
    sorted_by_parts(logs, PART_BYTES)
}

fn sorted_by_parts(logs: Vec<LogFile>, part_bytes: usize) -> Result<SortedLogs, Failure> {
    let (mut sorted, mut parsers, mut parts_left) = (Vec::new(), Vec::new(), PARTS_MAX);
    for mut log in logs {
        sorted.push(SortedLog::read(&mut log, parsers.len(), part_bytes, &mut parts_left)?);
        parsers.push(log.parser);
    }
    // For lines at one time, the log that starts first goes first.
    sorted.sort_by_key(|log| log.start);
    let parts = sorted.into_iter().flat_map(|log| log.parts).collect::<Vec<_>>();
    let heads = BinaryHeap::with_capacity(parts.len());
    let mut logs = SortedLogs { parts, heads, last: None, parsers, counted: Counts::default() };
    (0..logs.parts.len()).try_for_each(|part| logs.read_head(part))?;
    Ok(logs)
}

impl SortedLog {
    fn read(
        log: &mut LogFile,
        parser: usize,
        part_bytes: usize,
        parts_left: &mut usize,
    ) -> Result<Self, Failure> {
        let mut sorted = Self { start: None, parts: Vec::new() };
        let (mut is_at_end, mut descents) = (false, 0);
        while !is_at_end {
            let mut unsorted = Unsorted::default();
            is_at_end = !unsorted.fill(log, part_bytes)?;
            if unsorted.lines.is_empty() {
                break;
            }
            *parts_left = parts_left.checked_sub(1).ok_or_else(|| {
                Failure(format!(
                    "the logs are not in the order of time, and more than the {} GiB that can be sorted; sort them, or replay them \
                     in parts",
                    (PARTS_MAX * part_bytes) >> 30
                ))
            })?;
            // In a log with the newest line first, what is read later is older.
            descents += unsorted.descents();
            let is_descending = descents > 0;
            let index = if is_descending { 0 } else { sorted.parts.len() };
            let (start, file) = unsorted.into_file(is_descending).map_err(|error| {
                let folder = std::env::temp_dir();
                Failure(format!(
                    "sorting the logs in {}: {error}; TMPDIR names another folder",
                    folder.display()
                ))
            })?;
            sorted.start = Some(sorted.start.map_or(start, |earlier| earlier.min(start)));
            sorted.parts.insert(index, Part { file, parser, line: Vec::new() });
        }
        Ok(sorted)
    }
}

impl SortedLogs {
    /// Reads the next line of a part, if there is one.
    fn read_head(&mut self, part: usize) -> Result<(), Failure> {
        let time =
            self.parts[part].read_line().map_err(|error| Failure(format!("a temporary file: {error}")))?;
        self.heads.extend(time.map(|time| Reverse((time, part))));
        Ok(())
    }
}

impl Log for SortedLogs {
    type Error = Stop;

    fn read<'s>(&'s mut self, decision: &mut LoggedDecision<'s>) -> Result<Option<LogLine>, Stop> {
        if let Some(last) = self.last.take() {
            self.read_head(last)?;
        }
        let Some(Reverse((_, part))) = self.heads.pop() else { return Ok(None) };
        self.last = Some(part);
        let Part { line, parser, .. } = &self.parts[part];
        let content = self.parsers[*parser].parse(line, decision, &mut self.counted);
        Ok(Some(content.map_err(Failure::from)?))
    }
}

impl Part {
    /// Reads the next line, and returns its time; none at the end.
    fn read_line(&mut self) -> io::Result<Option<Timestamp>> {
        let Some(time) = self.read_number()? else { return Ok(None) };
        let length = self.read_number()?.unwrap_or(0);
        self.line.clear();
        (&mut self.file).take(length).read_to_end(&mut self.line)?;
        Ok(Some(Timestamp::from_nanos(time)))
    }

    fn read_number(&mut self) -> io::Result<Option<u64>> {
        let mut bytes = [0; 8];
        match self.file.read_exact(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            read => read.map(|()| Some(u64::from_le_bytes(bytes))),
        }
    }
}

/// Lines in memory.
#[derive(Default)]
struct Unsorted {
    text: Vec<u8>,
    lines: Vec<UnsortedLine>,
}

struct UnsortedLine {
    time: Timestamp,
    start: usize,
    end: usize,
}

impl Unsorted {
    /// Reads lines until there is no room for more; false at the end of the log.
    fn fill(&mut self, log: &mut LogFile, bytes: usize) -> Result<bool, Failure> {
        while self.text.len() + self.lines.len() * size_of::<UnsortedLine>() < bytes {
            let mut decision = LoggedDecision::default();
            let Some(line) = log.next(&mut decision)? else { return Ok(false) };
            let time = match &line.content {
                LogLine::Other => continue,
                LogLine::Decision => decision.time,
                LogLine::Step(step) => step.time(),
            };
            let start = self.text.len();
            self.text.extend_from_slice(line.text);
            self.lines.push(UnsortedLine { time, start, end: self.text.len() });
        }
        Ok(true)
    }

    /// Number of lines older than the line before them, less the number of newer lines.
    fn descents(&self) -> i64 {
        self.lines.windows(2).map(|pair| pair[0].time.cmp(&pair[1].time) as i64).sum()
    }

    /// Writes the lines in the order of time; returns the time of the first line too. Lines at one time keep their order, or are reversed
    /// if the log starts with the newest.
    fn into_file(mut self, is_descending: bool) -> io::Result<(Timestamp, BufReader<File>)> {
        if is_descending {
            self.lines.reverse();
        }
        self.lines.sort_by_key(|line| line.time);
        let mut file = BufWriter::new(tempfile::tempfile()?);
        for UnsortedLine { time, start, end } in &self.lines {
            file.write_all(&time.as_nanos().to_le_bytes())?;
            file.write_all(&((end - start) as u64).to_le_bytes())?;
            file.write_all(&self.text[*start..*end])?;
        }
        let mut file = file.into_inner().map_err(io::IntoInnerError::into_error)?;
        file.rewind()?;
        Ok((self.lines[0].time, BufReader::with_capacity(BUFFER_BYTES, file)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::commands::replay::input::Format;
    use indicatif::ProgressBar;
    use std::sync::Arc;
    use tidegate_replay::{AccessLog, Layout, Mapping, Step};

    /// Sorts logs of lines at these seconds, in parts of a few lines. Returns the time of each line, with its number in its log.
    fn sorted_lines(logs: &[&[u64]], part_bytes: usize) -> Result<Vec<(u64, String)>, String> {
        let mut mapping = Mapping::new("d".into(), "time");
        mapping.add_descriptor("line=line").expect("a descriptor");
        let log = AccessLog::new(Arc::new(mapping), Layout::Json).expect("JSON");
        let files: Vec<_> = logs
            .iter()
            .map(|seconds| {
                let mut file = tempfile::NamedTempFile::new().expect("a file");
                for (line, second) in seconds.iter().enumerate() {
                    writeln!(file, "{{\"time\":{second},\"line\":{line}}}").expect("written");
                    writeln!(file, "not JSON").expect("written");
                }
                file
            })
            .collect();
        let open = |file: &tempfile::NamedTempFile| {
            LogFile::open(
                file.path(),
                &Format::Access(log.clone()),
                &ProgressBar::hidden(),
                Default::default(),
            )
        };
        let logs = files.iter().map(open).collect::<Result<_, _>>().expect("files");
        let mut sorted = sorted_by_parts(logs, part_bytes).map_err(|failure| failure.to_string())?;
        let mut lines = Vec::new();
        loop {
            match sorted.read(&mut LoggedDecision::default()) {
                Ok(Some(LogLine::Step(Step::Decision(event)))) => lines.push((
                    event.time.as_nanos() / 1_000_000_000,
                    event.descriptors[0].entries[0].1.to_string(),
                )),
                Ok(Some(_)) => panic!("only what can be repeated is sorted"),
                Ok(None) => return Ok(lines),
                Err(_) => panic!("a line is read again as it was"),
            }
        }
    }

    #[test]
    fn lines_are_in_the_order_of_time_whatever_the_size_of_the_parts() {
        let shuffled: Vec<u64> = (0..500).map(|line| line * 30 % 499).collect();
        let mut expected: Vec<_> =
            shuffled.iter().enumerate().map(|(line, second)| (*second, line)).collect();
        expected.sort_unstable();
        let expected: Vec<_> =
            expected.into_iter().map(|(second, line)| (second, line.to_string())).collect();
        for part_bytes in [1_000, 7_000, PART_BYTES] {
            assert!(sorted_lines(&[&shuffled], part_bytes).unwrap() == expected, "{part_bytes}");
        }
        assert!(sorted_lines(&[&[], &[]], 1_000).unwrap().is_empty());
    }

    #[test]
    fn at_one_time_the_newest_line_is_last_and_the_log_that_starts_first_precedes() {
        // Two lines a second, newest first: the last line of the file is the oldest.
        let descending: Vec<u64> = (0..200).rev().map(|half| half / 2).collect();
        let lines = sorted_lines(&[&descending], 500).unwrap();
        assert!(
            lines.iter().map(|(_, line)| line).eq((0..200)
                .rev()
                .map(|line| line.to_string())
                .collect::<Vec<_>>()
                .iter())
        );
        let lines = sorted_lines(&[&[5, 6, 5], &[4, 5]], 1_000).unwrap();
        let expected = [(4, "0"), (5, "1"), (5, "0"), (5, "2"), (6, "1")];
        assert_eq!(lines, expected.map(|(second, line)| (second, line.to_owned())));
    }

    #[test]
    fn more_parts_than_may_be_open_are_refused_with_the_remedy() {
        let error = sorted_lines(&[&vec![1; PARTS_MAX + 1]], 1).unwrap_err();
        assert!(
            error.contains("more than the 0 GiB that can be sorted; sort them, or replay them in parts"),
            "{error}"
        );
    }
}
