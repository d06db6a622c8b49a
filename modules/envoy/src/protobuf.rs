//! The encoding of protobuf: fields of a message, read and written one by one (docs/decisions/0017-the-module-reads-protobuf-itself.md).

/// A value as the wire has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wire<'b> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'b [u8]),
    /// A value of a type that no field here has.
    Fixed32,
}

/// The bytes are not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

/// The next field; none if the bytes are not well-formed.
fn next<'b>(bytes: &mut &'b [u8]) -> Option<(u32, Wire<'b>)> {
    let tag = varint(bytes)?;
    let number = u32::try_from(tag >> 3).ok()?;
    let wire = match tag & 7 {
        0 => Wire::Varint(varint(bytes)?),
        1 => Wire::Fixed64(u64::from_le_bytes(bytes.split_off(..8)?.try_into().ok()?)),
        2 => {
            let length = usize::try_from(varint(bytes)?).ok()?;
            Wire::Bytes(bytes.split_off(..length)?)
        }
        5 => bytes.split_off(..4).map(|_| Wire::Fixed32)?,
        _ => return None,
    };
    Some((number, wire))
}

/// The fields of a message with their numbers, up to the first that is not well-formed.
pub(crate) fn fields(mut bytes: &[u8]) -> impl Iterator<Item = Result<(u32, Wire<'_>), Malformed>> {
    std::iter::from_fn(move || {
        let field = (!bytes.is_empty()).then(|| next(&mut bytes).ok_or(Malformed))?;
        bytes = if field.is_ok() { bytes } else { &[] };
        Some(field)
    })
}

/// The bytes of a field, if the message has it; with several values, the last.
pub(crate) fn bytes_of(message: &[u8], number: u32) -> Result<Option<&[u8]>, Malformed> {
    let mut found = None;
    for field in fields(message) {
        match field? {
            (own, Wire::Bytes(bytes)) if own == number => found = Some(bytes),
            _ => {}
        }
    }
    Ok(found)
}

/// The numbers of fields 1 to N.
pub(crate) fn numbers<const N: usize>(bytes: &[u8]) -> Result<[u64; N], Malformed> {
    let mut numbers = [0; N];
    for field in fields(bytes) {
        let (field, wire) = field?;
        let place = (field as usize).checked_sub(1).and_then(|index| numbers.get_mut(index));
        if let (Some(place), Wire::Varint(number)) = (place, wire) {
            *place = number;
        }
    }
    Ok(numbers)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.split_off_first()?;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

/// Writes a message. Scalars with their default value are left out.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    /// The message.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn number(&mut self, field: u32, number: u64) {
        if number != 0 {
            self.varint(u64::from(field) << 3);
            self.varint(number);
        }
    }

    pub(crate) fn fixed64(&mut self, field: u32, number: u64) {
        if number != 0 {
            self.varint(u64::from(field) << 3 | 1);
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }

    pub(crate) fn text(&mut self, field: u32, text: &str) {
        if !text.is_empty() {
            self.bytes(field, text.as_bytes());
        }
    }

    /// Bytes or a message, also if they are empty.
    pub(crate) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Fields that are encoded already.
    pub(crate) fn encoded(&mut self, fields: &[u8]) {
        self.0.extend_from_slice(fields);
    }

    /// A message that `write` writes.
    pub(crate) fn message(&mut self, field: u32, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    fn varint(&mut self, number: u64) {
        self.0.extend(tidegate_core::varint::bytes(number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_as_they_were_written() {
        let mut writer = Writer::default();
        writer.number(1, 0);
        writer.number(2, u64::MAX);
        writer.fixed64(3, 7);
        writer.text(4, "");
        writer.message(16, |inner| inner.text(1, "é"));
        let bytes = writer.into_bytes();
        let read = fields(&bytes).collect::<Result<Vec<_>, _>>().unwrap();
        let inner = [10, 2, 0xc3, 0xa9];
        assert_eq!(read, [(2, Wire::Varint(u64::MAX)), (3, Wire::Fixed64(7)), (16, Wire::Bytes(&inner))]);
    }

    #[test]
    fn truncated_messages_are_malformed() {
        let mut writer = Writer::default();
        writer.text(1, "text");
        writer.fixed64(2, 1);
        let bytes = writer.into_bytes();
        for end in (1..bytes.len()).filter(|&end| end != 6) {
            assert_eq!(fields(&bytes[..end]).last(), Some(Err(Malformed)), "{end}");
        }
    }
}
