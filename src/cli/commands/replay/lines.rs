//! The lines of a file, in place: only lines that cross the end of the buffer are copied.

use memchr::memchr;
use std::io::{self, ErrorKind, Read};

/// Bytes of a line. The line of rules has the texts of all rule files; lines of requests are much shorter.
pub(super) const LINE_BYTES_MAX: usize = 64 << 20;

/// Bytes of the buffer; more while it has a longer line. Twice as many would not fit the cache of a core beside the counters.
const BUFFER_BYTES: usize = 256 << 10;

/// A line as it is in the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ReadLine<'b> {
    Whole(&'b [u8]),
    /// At the end of the file, without a line feed: a server may be about to write the rest.
    Unfinished(&'b [u8]),
    TooLong,
}

/// Reads lines.
pub(super) struct LineReader<R> {
    input: R,
    /// Longer lines are not read.
    line_bytes_max: usize,
    buffer: Vec<u8>,
    /// The bytes of the buffer that were read from the file, and not returned yet.
    unread: std::ops::Range<usize>,
}

impl<R: Read> LineReader<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, line_bytes_max: LINE_BYTES_MAX, buffer: vec![0; BUFFER_BYTES], unread: 0..0 }
    }

    /// The next line, with its line feed; none at the end.
    pub(super) fn next(&mut self) -> io::Result<Option<ReadLine<'_>>> {
        let mut searched = 0;
        loop {
            let unread = &self.buffer[self.unread.clone()];
            let window = &unread[searched..unread.len().min(self.line_bytes_max)];
            if let Some(at) = memchr(b'\n', window) {
                return Ok(Some(ReadLine::Whole(self.take(searched + at + 1))));
            }
            if unread.len() >= self.line_bytes_max {
                self.skip_line()?;
                return Ok(Some(ReadLine::TooLong));
            }
            searched = unread.len();
            if !self.read_more()? {
                return Ok((searched > 0).then(|| ReadLine::Unfinished(self.take(searched))));
            }
        }
    }

    fn take(&mut self, bytes: usize) -> &[u8] {
        let start = self.unread.start;
        self.unread.start += bytes;
        &self.buffer[start..start + bytes]
    }

    /// Skips up to the next line feed.
    fn skip_line(&mut self) -> io::Result<()> {
        loop {
            let unread = &self.buffer[self.unread.clone()];
            if let Some(at) = memchr(b'\n', unread) {
                self.unread.start += at + 1;
                return Ok(());
            }
            self.unread = 0..0;
            if !self.read_more()? {
                return Ok(());
            }
        }
    }

    /// Reads once, after the bytes that are not returned yet; false at the end of the file.
    fn read_more(&mut self) -> io::Result<bool> {
        self.buffer.copy_within(self.unread.clone(), 0);
        self.unread = 0..self.unread.len();
        if self.unread.end == self.buffer.len() {
            self.buffer.resize(2 * self.buffer.len(), 0);
        }
        loop {
            match self.input.read(&mut self.buffer[self.unread.end..]) {
                Ok(bytes) => {
                    self.unread.end += bytes;
                    return Ok(bytes > 0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns at most this many bytes at once.
    struct Pieces<'t>(&'t [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let bytes = self.0.len().min(self.1).min(buffer.len());
            let (now, later) = self.0.split_at(bytes);
            buffer[..bytes].copy_from_slice(now);
            self.0 = later;
            Ok(bytes)
        }
    }

    /// Bytes of a line in tests.
    const LONGEST: usize = 1 << 20;

    /// The lines of a text, each as its bytes, `...` after those of an unfinished one, and `too long`.
    fn lines(text: &[u8], piece: usize) -> Vec<Vec<u8>> {
        let (mut lines, mut read) = (LineReader::new(Pieces(text, piece)), Vec::new());
        lines.line_bytes_max = LONGEST;
        while let Some(line) = lines.next().expect("memory is read") {
            read.push(match line {
                ReadLine::Whole(line) => line.to_vec(),
                ReadLine::Unfinished(line) => [line, b"..."].concat(),
                ReadLine::TooLong => b"too long".to_vec(),
            });
        }
        assert_eq!(lines.next().expect("memory is read"), None, "the end stays the end");
        read
    }

    #[test]
    fn lines_are_whole_wherever_reads_end() {
        for piece in [1, 2, 3, 7, 100] {
            assert_eq!(lines(b"one\n\ntwo\nthr", piece), [&b"one\n"[..], b"\n", b"two\n", b"thr..."]);
            assert_eq!(lines(b"one\n", piece), [b"one\n"]);
            assert!(lines(b"", piece).is_empty());
        }
    }

    #[test]
    fn lines_that_cross_the_end_of_the_buffer_are_whole() {
        let line =
            |index: usize| [&vec![b'a' + (index % 26) as u8; 1 + index * 37 % 1_000], &b"\n"[..]].concat();
        let expected: Vec<Vec<u8>> = (0..2_000).map(line).collect();
        assert!(expected.concat().len() > 3 * BUFFER_BYTES);
        for piece in [1_000, 65_536, usize::MAX] {
            assert!(lines(&expected.concat(), piece) == expected);
        }
    }

    #[test]
    fn a_line_of_the_greatest_length_is_read_and_one_byte_more_is_skipped() {
        let of = |bytes: usize| [&vec![b'x'; bytes - 1], &b"\n"[..]].concat();
        let (longest, longer, longest_of_all) = (of(LONGEST), of(LONGEST + 1), of(3 * LONGEST));
        let text = [&longest[..], &longer, b"next\n", &longest_of_all, b"last\n"].concat();
        for piece in [100_000, usize::MAX] {
            let expected = [&longest[..], b"too long", b"next\n", b"too long", b"last\n"];
            assert!(lines(&text, piece) == expected);
        }
        // At the end of the file too.
        assert!(lines(&vec![b'x'; LONGEST], usize::MAX) == [b"too long"]);
        let unfinished = vec![b'x'; LONGEST - 1];
        assert!(lines(&unfinished, usize::MAX) == [[&unfinished[..], b"..."].concat()]);
    }
}
