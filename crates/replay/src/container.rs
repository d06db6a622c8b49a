//! Lines that a container runtime has wrapped: CRI, as containerd and CRI-O write it, and Docker's `json-file`.

use super::LineError;
use serde::Deserialize;
use std::borrow::Cow;

/// A line of `json-file`.
#[derive(Deserialize)]
struct DockerLine<'l> {
    #[serde(borrow)]
    log: Cow<'l, str>,
    #[serde(borrow)]
    stream: Cow<'l, str>,
}

/// The line that the program wrote. It is the given line, unless that is in the form of a container runtime. `buffer` is for lines that
/// have to be copied.
pub fn without_container_prefix<'l>(line: &'l [u8], buffer: &'l mut Vec<u8>) -> Result<&'l [u8], LineError> {
    if line.starts_with(b"{\"log\":\"") {
        return docker(line, buffer);
    }
    let after_time = || memchr::memchr(b' ', &line[..line.len().min(40)]).map(|space| &line[space + 1..]);
    match after_time() {
        Some(rest) if line[0].is_ascii_digit() => cri(rest).unwrap_or(Ok(line)),
        _ => Ok(line),
    }
}

/// `stdout F text` after the time; none for other lines. The tag may have more parts after a colon.
fn cri(rest: &[u8]) -> Option<Result<&[u8], LineError>> {
    let rest = [&b"stdout "[..], b"stderr "].iter().find_map(|stream| rest.strip_prefix(*stream))?;
    let (tag, text) = rest.split_at(memchr::memchr(b' ', rest)?);
    let is_tag = |of: &[u8]| tag.strip_prefix(of).is_some_and(|more| more.is_empty() || more[0] == b':');
    if is_tag(b"P") {
        return Some(Err(LineError::Split));
    }
    is_tag(b"F").then_some(Ok(&text[1..]))
}

fn docker<'l>(line: &'l [u8], buffer: &'l mut Vec<u8>) -> Result<&'l [u8], LineError> {
    match serde_json::from_slice(line) {
        Ok(DockerLine { log, stream }) if matches!(&*stream, "stdout" | "stderr") => {
            if !log.ends_with('\n') {
                return Err(LineError::Split);
            }
            buffer.clear();
            buffer.extend_from_slice(log.as_bytes());
            Ok(buffer)
        }
        _ => Ok(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_program_is_read_from_that_of_the_runtime() {
        let time = "2026-03-01T12:00:00.000000001Z";
        for (line, expected) in [
            (format!("{time} stdout F {{\"a\":1}}\n"), "{\"a\":1}\n"),
            (format!("{time} stderr F:x  a b\n"), " a b\n"),
            (
                format!(
                    r#"{{"log":"[x] \"GET\" \u003cé\n","stream":"stdout","attrs":{{"a":"b"}},"time":"{time}"}}"#
                ),
                "[x] \"GET\" <é\n",
            ),
        ] {
            assert_eq!(
                without_container_prefix(line.as_bytes(), &mut Vec::new()).unwrap(),
                expected.as_bytes()
            );
        }
    }

    #[test]
    fn other_lines_stay_and_parts_of_lines_are_refused() {
        for line in [
            "",
            " ",
            "10.0.0.1 - stdout F",
            "1 stdout G a",
            "{\"log\":\"a\",\"user\":1}",
            "{\"log\":\"a",
            "{\"log\":\"a\\n\",\"stream\":\"x\"}",
        ] {
            assert_eq!(without_container_prefix(line.as_bytes(), &mut Vec::new()).unwrap(), line.as_bytes());
        }
        for line in [
            "2026-03-01T12:00:00Z stdout P {\"a\"",
            "{\"log\":\"{\\\"a\",\"stream\":\"stdout\",\"time\":\"\"}",
        ] {
            let error = without_container_prefix(line.as_bytes(), &mut Vec::new()).unwrap_err().to_string();
            assert!(error.contains("split this line"), "{error}");
        }
    }
}
