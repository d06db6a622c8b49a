//! Requests of access logs: JSON lines, CSV, or text in the format of a server. A mapping makes descriptors from fields, as the
//! `rate_limits` of a route of Envoy do: a descriptor with an absent field is left out.
//!
//! [`AccessLog`] reads the lines of a log. Its [`Layout`] finds the fields, and the [`Mapping`] makes a request from them.

mod address;
mod csv;
mod element;
mod json;
mod mapping;
mod missing;
#[cfg(test)]
mod tests;
mod text;
mod time;

pub use csv::Columns;
pub use mapping::{Mapping, MappingError};
pub use missing::{FieldsSeen, UnknownField};
pub use text::{
    APACHE_COMBINED, ENVOY_DEFAULT, FormatError, ISTIO_DEFAULT, NGINX_COMBINED, Notation, TextFormat,
};
pub(crate) use time::FORMS as TIME_FORMS;

use super::{Event, EventDescriptor, LineContent, LineError, Step, line::ANY_SIZE};
use csv::CsvFields;
use json::JsonPath;
use mapping::{MappedEntry, MappedValue, Texts};
use serde_json::Value;
use smol_str::SmolStr;
use std::{num::NonZeroU64, sync::Arc};
use text::BoundFormat;
use tidegate_core::limit::{Code, Hits};

/// How the fields of a line are found.
#[derive(Clone, Debug)]
pub enum Layout {
    /// A JSON object. A field is found by its name, or by the names of nested objects joined by periods.
    Json,
    /// A record of CSV.
    Csv(Columns),
    /// Text that a server writes by a format.
    Text(Arc<TextFormat>),
}

/// Reads the lines of an access log.
#[derive(Clone)]
pub struct AccessLog {
    mapping: Arc<Mapping>,
    fields: Fields,
}

/// The positions of the mapping's fields, by their index.
#[derive(Clone)]
enum Fields {
    Json(Vec<JsonPath>),
    Csv(CsvFields),
    Text(BoundFormat),
}

impl AccessLog {
    /// A reader of lines in this layout. CSV and text must have all fields of the mapping.
    pub fn new(mapping: Arc<Mapping>, layout: Layout) -> Result<Self, UnknownField> {
        let fields = match layout {
            Layout::Json => Fields::Json(mapping.fields.iter().map(|name| JsonPath::parse(name)).collect()),
            Layout::Csv(columns) => Fields::Csv(columns.bind(&mapping)?),
            Layout::Text(format) => Fields::Text(BoundFormat::new(format, &mapping)?),
        };
        Ok(Self { mapping, fields })
    }

    /// Reads one line, with or without its line feed.
    pub fn parse(&self, line: &[u8], seen: &mut FieldsSeen) -> Result<LineContent, LineError> {
        let object: Value;
        let texts: Texts<'_> = match &self.fields {
            Fields::Json(paths) => {
                object = json::parse(line)?;
                seen.note_names(&object);
                paths.iter().map(|path| path.text(&object)).collect()
            }
            Fields::Csv(fields) => fields.texts(line)?,
            Fields::Text(format) => format.texts(line)?,
        };
        seen.note_line(&texts);
        self.request(&texts, seen)
    }

    /// The mapping.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    fn request(&self, texts: &Texts<'_>, seen: &mut FieldsSeen) -> Result<LineContent, LineError> {
        let mapping = &*self.mapping;
        let text = |field: usize| texts[field].as_deref();
        let required =
            |field: usize| text(field).ok_or_else(|| LineError::Missing(mapping.fields[field].clone()));
        let of_time = required(mapping.time)?;
        let by_format = || match &self.fields {
            Fields::Text(format) => time::formatted_time(format.time_format.as_deref()?, of_time),
            Fields::Json(_) | Fields::Csv(_) => None,
        };
        let time = time::log_time(of_time).or_else(by_format);
        let time = time.ok_or_else(|| LineError::AccessTime(of_time.into()))?;
        let hits = match mapping.hits {
            None => Hits::ONE,
            Some(field) => {
                let text = required(field)?;
                let hits = text.parse::<u64>().map_err(|_| LineError::Number {
                    field: mapping.fields[field].clone(),
                    text: text.into(),
                })?;
                NonZeroU64::new(hits).map_or(Hits::Peek, Hits::Take)
            }
        };
        seen.note_request();
        let is_denied = |(field, value): &(usize, SmolStr)| text(*field) == Some(value.as_str());
        let code = if mapping.denied.as_ref().is_some_and(is_denied) { Code::OverLimit } else { Code::Ok };
        let mut descriptors = Vec::with_capacity(mapping.descriptors.len());
        for entries in &mapping.descriptors {
            let entries = entries.iter().map(|entry| mapped(entry, texts, seen));
            if let Some(entries) = entries.collect::<Option<Vec<_>>>() {
                descriptors.push(EventDescriptor { entries, hits, own_limit: None, recorded: None });
            }
        }
        if descriptors.is_empty() {
            return Ok(LineContent::WithoutDescriptors);
        }
        let event = Event {
            time,
            place: None,
            is_report: false,
            domain: mapping.domain.clone(),
            descriptors,
            code,
            sample: 1.0,
            is_hashed: false,
            ticket: None,
        };
        event.request().check(&ANY_SIZE)?;
        Ok(LineContent::Step(Step::Decision(event)))
    }
}

/// The entry, if the line has its field.
fn mapped(entry: &MappedEntry, texts: &Texts<'_>, seen: &mut FieldsSeen) -> Option<(SmolStr, SmolStr)> {
    let value = match &entry.value {
        MappedValue::Constant(value) => value.clone(),
        MappedValue::Field(field, reading) => {
            let text = texts[*field].as_deref()?;
            reading.value(text).unwrap_or_else(|| {
                seen.note_no_address(text);
                text.into()
            })
        }
    };
    Some((entry.key.clone(), value))
}
