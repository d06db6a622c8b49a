//! Fields of CSV records.

use super::{
    element::{element, places},
    mapping::{Mapping, Texts},
    missing::UnknownField,
};
use crate::LineError;
use std::borrow::Cow;

/// The names of the columns of a CSV file, in its first line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Columns(Vec<String>);

/// The columns of the fields of a mapping.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CsvFields {
    /// Number of columns.
    width: usize,
    /// The column of each field, and the index of an element if the column has a list.
    places: Vec<(usize, Option<i64>)>,
}

impl Columns {
    /// Reads the first line.
    pub fn parse(line: &[u8]) -> Result<Self, LineError> {
        Ok(Self(csv_fields(line)?.into_iter().map(|field| field.trim().to_owned()).collect()))
    }

    pub(super) fn bind(&self, mapping: &Mapping) -> Result<CsvFields, UnknownField> {
        let known = || self.0.iter().map(|name| &**name);
        let column = |name: &str| self.0.iter().position(|column| column == name);
        Ok(CsvFields { width: self.0.len(), places: places(mapping, "column", known, column)? })
    }
}

impl CsvFields {
    pub(super) fn texts<'l>(&self, line: &'l [u8]) -> Result<Texts<'l>, LineError> {
        let fields = csv_fields(line)?;
        if fields.len() != self.width {
            return Err(LineError::Columns(fields.len(), self.width));
        }
        Ok(self.places.iter().map(|(column, index)| element(fields[*column].clone(), *index)).collect())
    }
}

/// The fields of a line of RFC 4180. A record is one line: quoted fields contain no line feeds.
fn csv_fields(line: &[u8]) -> Result<Vec<Cow<'_, str>>, LineError> {
    let line = std::str::from_utf8(line).map_err(|_| LineError::NotUtf8)?;
    let mut rest = line.trim_end_matches(['\n', '\r']);
    let mut fields = Vec::new();
    loop {
        let (field, after) = match rest.strip_prefix('"') {
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                (Cow::Borrowed(&rest[..end]), &rest[end..])
            }
            Some(quoted) => quoted_field(quoted)?,
        };
        fields.push(field);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None if after.is_empty() => return Ok(fields),
            None => return Err(LineError::OpenQuote),
        }
    }
}

/// The field after its first quote, and the text after its last one. Two quotes stand for one.
fn quoted_field(text: &str) -> Result<(Cow<'_, str>, &str), LineError> {
    let mut from = 0;
    loop {
        let quote = from + text[from..].find('"').ok_or(LineError::OpenQuote)?;
        if !text[quote + 1..].starts_with('"') {
            let field = &text[..quote];
            let field = if field.contains('"') { field.replace("\"\"", "\"").into() } else { field.into() };
            return Ok((field, &text[quote + 1..]));
        }
        from = quote + 2;
    }
}
