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
use element::Line;
use json::JsonPath;
use mapping::{MappedEntry, MappedValue};
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
        match &self.fields {
            Fields::Json(paths) => {
                let object: Value = json::parse(line)?;
                seen.note_names(&object);
                self.request(&(paths, &object), seen)
            }
            Fields::Csv(fields) => self.request(&fields.record(line)?, seen),
            Fields::Text(format) => self.request(&format.line(line)?, seen),
        }
    }

    /// The mapping.
    pub fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    fn request(&self, line: &impl Line, seen: &mut FieldsSeen) -> Result<LineContent, LineError> {
        let mapping = &*self.mapping;
        let required =
            |field: usize| line.text(field).ok_or_else(|| LineError::Missing(mapping.fields[field].clone()));
        seen.note_line(mapping.fields.len());
        let text = required(mapping.time)?;
        seen.note_field(mapping.time);
        let by_format = || line.time_format().and_then(|format| time::formatted_time(format, &text));
        let time = time::log_time(&text).or_else(by_format);
        let time = time.ok_or_else(|| LineError::AccessTime((&*text).into()))?;
        let hits = match mapping.hits {
            None => Hits::ONE,
            Some(field) => {
                let text = required(field)?;
                seen.note_field(field);
                let hits = text.parse::<u64>().map_err(|_| LineError::Number {
                    field: mapping.fields[field].clone(),
                    text: (&*text).into(),
                })?;
                NonZeroU64::new(hits).map_or(Hits::Peek, Hits::Take)
            }
        };
        seen.note_request();
        let mut code = Code::Ok;
        if let Some((field, value)) = &mapping.denied
            && let Some(text) = line.text(*field)
        {
            seen.note_field(*field);
            code = if *text == **value { Code::OverLimit } else { Code::Ok };
        }
        let mut descriptors = Vec::with_capacity(mapping.descriptors.len());
        for entries in &mapping.descriptors {
            // Reads every entry, even after an absent one, so that a field that no line has is noticed.
            let entries: Vec<_> = entries.iter().map(|entry| mapped(entry, line, seen)).collect();
            if let Some(entries) = entries.into_iter().collect::<Option<Vec<_>>>() {
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
fn mapped(entry: &MappedEntry, line: &impl Line, seen: &mut FieldsSeen) -> Option<(SmolStr, SmolStr)> {
    let value = match &entry.value {
        MappedValue::Constant(value) => value.clone(),
        MappedValue::Field(field, reading) => {
            let text = line.text(*field)?;
            seen.note_field(*field);
            reading.value(text).unwrap_or_else(|text| {
                seen.note_no_address(&text);
                SmolStr::from(&*text)
            })
        }
    };
    Some((entry.key.clone(), value))
}
