//! Reads the fields of a protobuf message, each where it is. Everything that the format forbids, and groups, is [`Unsupported`].

use prost::encoding::{WireType, decode_key, decode_varint};

/// A form that the fast path does not decode. The router gets the request, and reports any error to the caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::api) struct Unsupported;

pub(super) type Decoded<T> = Result<T, Unsupported>;

/// Part of a message: bytes, or bytes that are known to be UTF-8.
pub(super) trait Piece<'m>: Copy {
    fn bytes(self) -> &'m [u8];
    /// None beyond the end, and none within a character.
    fn split(self, at: usize) -> Option<(Self, Self)>;
    /// None if it is not UTF-8.
    fn text(self) -> Option<&'m str>;
}

impl<'m> Piece<'m> for &'m str {
    #[inline]
    fn bytes(self) -> &'m [u8] {
        self.as_bytes()
    }

    #[inline]
    fn split(self, at: usize) -> Option<(Self, Self)> {
        self.split_at_checked(at)
    }

    #[inline]
    fn text(self) -> Option<&'m str> {
        Some(self)
    }
}

impl<'m> Piece<'m> for &'m [u8] {
    #[inline]
    fn bytes(self) -> &'m [u8] {
        self
    }

    #[inline]
    fn split(self, at: usize) -> Option<(Self, Self)> {
        self.split_at_checked(at)
    }

    #[inline]
    fn text(self) -> Option<&'m str> {
        str::from_utf8(self).ok()
    }
}

/// The fields of a message that are not decoded yet.
pub(super) struct Fields<P> {
    rest: P,
}

/// The value of a field, by wire type.
#[derive(Clone, Copy)]
pub(super) enum Value<P> {
    Number(u64),
    Bytes(P),
    /// Four or eight bytes; no known field has them.
    Fixed,
}

impl<'m, P: Piece<'m>> Fields<P> {
    #[inline]
    pub(super) fn of(message: P) -> Self {
        Self { rest: message }
    }

    /// The next field's tag and value; none at the end.
    #[inline]
    pub(super) fn next(&mut self) -> Decoded<Option<(u32, Value<P>)>> {
        match *self.rest.bytes() {
            [] => Ok(None),
            // Most fields: a tag below 16 and a length below 128, each in one byte.
            [key @ ..0x80, length @ ..0x80, ..] if key & 7 == WireType::LengthDelimited as u8 && key >= 8 => {
                let (_, rest) = self.rest.split(2).ok_or(Unsupported)?;
                let (value, rest) = rest.split(length.into()).ok_or(Unsupported)?;
                self.rest = rest;
                Ok(Some((u32::from(key >> 3), Value::Bytes(value))))
            }
            _ => self.any().map(Some),
        }
    }

    /// The next field, of any form.
    fn any(&mut self) -> Decoded<(u32, Value<P>)> {
        let mut bytes = self.rest.bytes();
        let (tag, wire_type) = decode_key(&mut bytes).map_err(|_| Unsupported)?;
        self.skip_to(bytes)?;
        let value = match wire_type {
            WireType::Varint => Value::Number(self.varint()?),
            WireType::LengthDelimited => {
                let length = self.varint()?;
                Value::Bytes(self.take(usize::try_from(length).map_err(|_| Unsupported)?)?)
            }
            WireType::ThirtyTwoBit => self.take(4).map(|_| Value::Fixed)?,
            WireType::SixtyFourBit => self.take(8).map(|_| Value::Fixed)?,
            WireType::StartGroup | WireType::EndGroup => return Err(Unsupported),
        };
        Ok((tag, value))
    }

    /// Continues at `bytes`, a suffix of the rest.
    fn skip_to(&mut self, bytes: &[u8]) -> Decoded<()> {
        self.take(self.rest.bytes().len() - bytes.len()).map(drop)
    }

    fn varint(&mut self) -> Decoded<u64> {
        let mut bytes = self.rest.bytes();
        let number = decode_varint(&mut bytes).map_err(|_| Unsupported)?;
        self.skip_to(bytes)?;
        Ok(number)
    }

    fn take(&mut self, length: usize) -> Decoded<P> {
        let (taken, rest) = self.rest.split(length).ok_or(Unsupported)?;
        self.rest = rest;
        Ok(taken)
    }
}

impl<'m, P: Piece<'m>> Value<P> {
    #[inline]
    pub(super) fn number(self) -> Decoded<u64> {
        if let Self::Number(number) = self { Ok(number) } else { Err(Unsupported) }
    }

    #[inline]
    pub(super) fn message(self) -> Decoded<P> {
        if let Self::Bytes(piece) = self { Ok(piece) } else { Err(Unsupported) }
    }

    #[inline]
    pub(super) fn text(self) -> Decoded<&'m str> {
        self.message()?.text().ok_or(Unsupported)
    }
}
