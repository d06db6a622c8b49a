//! HTTP/2 frames (RFC 9113, section 4): nine bytes of header, then a payload.

use super::{ConnectionError, steps};

/// The client's connection preface.
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const ACK: u8 = 0x1;
pub(crate) const END_STREAM: u8 = 0x1;
pub(crate) const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
/// On HEADERS: a priority precedes the block.
const PRIORITIZED: u8 = 0x20;

/// Identifiers of settings.
pub(crate) mod setting {
    pub(crate) const HEADER_TABLE_SIZE: u16 = 1;
    pub(crate) const ENABLE_PUSH: u16 = 2;
    pub(crate) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;
    pub(crate) const MAX_FRAME_SIZE: u16 = 5;
    pub(crate) const MAX_HEADER_LIST_SIZE: u16 = 6;
}

/// The default of SETTINGS_MAX_FRAME_SIZE; both halves keep it.
pub(crate) const PAYLOAD_MAX: usize = 16_384;
pub(super) const HEADER: usize = 9;
/// The highest stream id.
pub(crate) const STREAM_MAX: u32 = 0x7fff_ffff;

/// One frame, borrowed from the bytes read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Frame<'a> {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    /// Zero for the connection itself.
    pub(crate) stream: u32,
    pub(crate) payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Takes the first frame off `bytes`; none while it is incomplete.
    #[inline(always)]
    pub(crate) fn take(bytes: &mut &'a [u8]) -> Result<Option<Self>, ConnectionError> {
        let Some((&[l0, l1, l2, kind, flags, s0, s1, s2, s3], rest)) = bytes.split_first_chunk::<HEADER>()
        else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([0, l0, l1, l2]) as usize;
        if length > PAYLOAD_MAX {
            return Err(ConnectionError::frame_size("frame larger than SETTINGS_MAX_FRAME_SIZE"));
        }
        let Some((payload, rest)) = rest.split_at_checked(length) else {
            return Ok(None);
        };
        *bytes = rest;
        Ok(Some(Self { kind, flags, stream: u32::from_be_bytes([s0 & 0x7f, s1, s2, s3]), payload }))
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The payload of a DATA or HEADERS frame without padding and priority.
    #[inline(always)]
    pub(crate) fn content(&self) -> Result<&'a [u8], ConnectionError> {
        let mut content = self.payload;
        if self.has(PADDED) {
            let padding = content.split_off_first().map(|&length| usize::from(length));
            let kept = padding.and_then(|padding| content.len().checked_sub(padding));
            content = &content[..kept.ok_or(ConnectionError::protocol("padding longer than the frame"))?];
        }
        if self.kind == HEADERS && self.has(PRIORITIZED) {
            content = content
                .get(5..)
                .ok_or(ConnectionError::protocol("HEADERS frame too short for its priority"))?;
        }
        Ok(content)
    }

    /// Whether the priority of a HEADERS or PRIORITY frame names the frame's own stream.
    pub(crate) fn depends_on_itself(&self) -> bool {
        let start = match self.kind {
            PRIORITY => 0,
            HEADERS if self.has(PRIORITIZED) => usize::from(self.has(PADDED)),
            _ => return false,
        };
        let on = self.payload.get(start..).and_then(<[u8]>::first_chunk);
        on.is_some_and(|&[o0, o1, o2, o3]| u32::from_be_bytes([o0 & 0x7f, o1, o2, o3]) == self.stream)
    }

    /// Identifiers and values of SETTINGS; none if the frame is an acknowledgement.
    pub(crate) fn settings(
        &self,
    ) -> Result<Option<impl Iterator<Item = (u16, u32)> + use<'a>>, ConnectionError> {
        if self.stream != 0 {
            return Err(ConnectionError::protocol("SETTINGS on a stream"));
        }
        let (settings, []) = self.payload.as_chunks::<6>() else {
            return Err(ConnectionError::frame_size("wrong length of SETTINGS"));
        };
        if self.has(ACK) {
            return if settings.is_empty() {
                Ok(None)
            } else {
                Err(ConnectionError::frame_size("SETTINGS acknowledgement with settings"))
            };
        }
        let setting = |&[n0, n1, v0, v1, v2, v3]: &[u8; 6]| {
            (u16::from_be_bytes([n0, n1]), u32::from_be_bytes([v0, v1, v2, v3]))
        };
        Ok(Some(settings.iter().map(setting)))
    }

    /// The payload of a PING or its acknowledgement.
    pub(crate) fn ping(&self) -> Result<&'a [u8; 8], ConnectionError> {
        if self.stream != 0 {
            return Err(ConnectionError::protocol("PING on a stream"));
        }
        self.payload.try_into().map_err(|_| ConnectionError::frame_size("wrong length of PING"))
    }

    /// The payload of a frame with a single 32-bit number.
    pub(crate) fn number(&self) -> Result<u32, ConnectionError> {
        let bytes =
            self.payload.try_into().map_err(|_| ConnectionError::frame_size("wrong length of a frame"))?;
        Ok(u32::from_be_bytes(bytes))
    }
}

/// Appends the header of a frame; the payload follows.
pub(crate) fn write_header(length: usize, kind: u8, flags: u8, stream: u32, out: &mut Vec<u8>) {
    debug_assert!(length <= PAYLOAD_MAX);
    steps::add(steps::FRAME + steps::of_bytes(length));
    let [_, l0, l1, l2] = (length as u32).to_be_bytes();
    let [s0, s1, s2, s3] = stream.to_be_bytes();
    out.extend_from_slice(&[l0, l1, l2, kind, flags, s0, s1, s2, s3]);
}

/// Appends a whole frame.
pub(crate) fn write(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Vec<u8>) {
    write_header(payload.len(), kind, flags, stream, out);
    out.extend_from_slice(payload);
}

/// Appends a SETTINGS frame.
pub(crate) fn write_settings(settings: &[(u16, u32)], out: &mut Vec<u8>) {
    write_header(6 * settings.len(), SETTINGS, 0, 0, out);
    for (number, value) in settings {
        out.extend_from_slice(&number.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Appends WINDOW_UPDATE; stream 0 means the connection.
pub(crate) fn write_window_update(stream: u32, increment: u32, out: &mut Vec<u8>) {
    write(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes(), out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_frames_are_taken() {
        let mut bytes = Vec::new();
        write(DATA, END_STREAM, 7, b"hello", &mut bytes);
        for cut in 0..bytes.len() {
            let mut part = &bytes[..cut];
            assert_eq!(Frame::take(&mut part), Ok(None), "{cut} bytes");
            assert_eq!(part.len(), cut, "nothing is consumed");
        }
        bytes.push(0xaa);
        let mut whole = &bytes[..];
        let frame = Frame::take(&mut whole).expect("a good frame").expect("a whole frame");
        assert_eq!(frame, Frame { kind: DATA, flags: END_STREAM, stream: 7, payload: b"hello" });
        assert_eq!(whole, [0xaa]);
    }

    #[test]
    fn a_frame_too_large_is_an_error_before_it_is_complete() {
        let mut bytes = &b"\x00\x40\x01\x00\x00\x00\x00\x00\x01"[..];
        assert!(Frame::take(&mut bytes).is_err());
    }

    #[test]
    fn settings_are_decoded_as_encoded() {
        let settings = [(setting::ENABLE_PUSH, 0), (setting::INITIAL_WINDOW_SIZE, 1 << 24)];
        let mut bytes = Vec::new();
        write_settings(&settings, &mut bytes);
        let frame = Frame::take(&mut &bytes[..]).expect("a good frame").expect("a whole frame");
        let read = frame.settings().expect("good settings").expect("no acknowledgement");
        assert_eq!(read.collect::<Vec<_>>(), settings);

        let settings = |flags, stream, payload| {
            let frame = Frame { kind: SETTINGS, flags, stream, payload };
            frame.settings().map(|settings| settings.map(Iterator::count))
        };
        assert_eq!(settings(0, 0, b""), Ok(Some(0)));
        assert_eq!(settings(ACK, 0, b""), Ok(None));
        for (flags, stream, payload) in [(ACK, 0, &b"\0\x01\0\0\0\0"[..]), (0, 0, b"\0\x01\0"), (0, 1, b"")] {
            assert!(settings(flags, stream, payload).is_err(), "{flags} {stream} {payload:?}");
        }
    }

    #[test]
    fn content_excludes_padding_and_priority() {
        let frame = |kind, flags, payload| Frame { kind, flags, stream: 1, payload };
        assert_eq!(frame(DATA, PADDED, b"\x02abc\0\0").content(), Ok(&b"abc"[..]));
        assert_eq!(frame(HEADERS, PADDED | PRIORITIZED, b"\x01.....abc\0").content(), Ok(&b"abc"[..]));
        assert_eq!(frame(DATA, PRIORITIZED, b"abc").content(), Ok(&b"abc"[..]), "DATA has no priority");
        assert!(frame(DATA, PADDED, b"\x04abc").content().is_err());
        assert!(frame(DATA, PADDED, b"").content().is_err());
        assert!(frame(HEADERS, PRIORITIZED, b"abc").content().is_err());
    }
}
