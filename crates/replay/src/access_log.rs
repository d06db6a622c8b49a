//! Requests of access logs: JSON lines such as Envoy's, or CSV. A mapping makes descriptors of fields, as the `rate_limits` of a
//! route of Envoy do: a descriptor with an absent field is left out.

use super::{
    Event, EventDescriptor, LineContent, LineError,
    line::{ANY_SIZE, syntax, time},
};
use serde_json::Value;
use smol_str::SmolStr;
use std::{borrow::Cow, num::NonZeroU64};
use tidegate_core::limit::{Code, Hits, Timestamp};

/// How requests are made of the fields of a log.
#[derive(Clone, PartialEq, Debug)]
pub struct Mapping {
    /// The domain of all requests.
    pub domain: SmolStr,
    /// The field with the time: RFC 3339, or seconds since 1970 with or without a fraction.
    pub time: SmolStr,
    /// The field with the number of hits; each request is one hit without it.
    pub hits: Option<SmolStr>,
    /// The field and its value in requests that were denied; all count as admitted without it.
    pub denied: Option<(SmolStr, SmolStr)>,
    /// Entries of each descriptor.
    descriptors: Vec<Vec<MappedEntry>>,
}

#[derive(Clone, PartialEq, Debug)]
struct MappedEntry {
    key: SmolStr,
    value: MappedValue,
}

#[derive(Clone, PartialEq, Debug)]
enum MappedValue {
    Field(SmolStr),
    Constant(SmolStr),
}

/// A descriptor of a mapping cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is not a list of KEY=FIELD or KEY=\"VALUE\", separated by commas")]
pub struct MappingError(String);

/// The fields of one request.
trait Fields {
    /// The text of a field; none if it is absent, empty or `-`.
    fn field(&self, name: &str) -> Option<Cow<'_, str>>;
}

impl Mapping {
    /// A mapping without descriptors, hits and denials.
    pub fn new(domain: SmolStr, time: SmolStr) -> Self {
        Self { domain, time, hits: None, denied: None, descriptors: Vec::new() }
    }

    /// Adds a descriptor: `user=x_user_id,generic_key="login"`.
    pub fn add_descriptor(&mut self, text: &str) -> Result<(), MappingError> {
        let entries = text.split(',').map(|entry| {
            let (key, value) =
                entry.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty())?;
            let constant = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            let value = match constant {
                Some(constant) => MappedValue::Constant(constant.into()),
                None => MappedValue::Field(value.into()),
            };
            Some(MappedEntry { key: key.into(), value })
        });
        let entries = entries.collect::<Option<Vec<_>>>().ok_or_else(|| MappingError(text.to_owned()))?;
        self.descriptors.push(entries);
        Ok(())
    }

    /// Reads one JSON line. A field is found by its name, or by the names of nested objects joined by periods.
    pub fn json_line(&self, line: &[u8]) -> Result<LineContent, LineError> {
        let object: Value = serde_json::from_slice(line).map_err(|error| syntax(&error))?;
        self.line(&object)
    }

    /// Reads one record of CSV.
    pub fn csv_line(&self, columns: &Columns, line: &[u8]) -> Result<LineContent, LineError> {
        let fields = csv_fields(line)?;
        if fields.len() != columns.0.len() {
            return Err(LineError::Columns(fields.len(), columns.0.len()));
        }
        self.line(&Record { columns, fields })
    }

    /// Fields of this mapping that a CSV file does not have.
    pub fn missing<'m>(&'m self, columns: &Columns) -> Vec<&'m str> {
        let of_entries = self.descriptors.iter().flatten().filter_map(|entry| match &entry.value {
            MappedValue::Field(name) => Some(name),
            MappedValue::Constant(_) => None,
        });
        let of_request =
            [&self.time].into_iter().chain(&self.hits).chain(self.denied.iter().map(|(name, _)| name));
        let names = of_request.chain(of_entries).map(|name| &**name);
        names.filter(|name| !columns.0.iter().any(|column| column == name)).collect()
    }

    fn line(&self, fields: &impl Fields) -> Result<LineContent, LineError> {
        let time = fields.field(&self.time).ok_or_else(|| LineError::Missing(self.time.clone()))?;
        let time = log_time(&time).ok_or_else(|| LineError::Time((&*time).into()))?;
        let hits = match &self.hits {
            None => Hits::ONE,
            Some(name) => {
                let text = fields.field(name).ok_or_else(|| LineError::Missing(name.clone()))?;
                let hits = text.parse::<u64>();
                let hits =
                    hits.map_err(|_| LineError::Number { field: name.clone(), text: (&*text).into() })?;
                NonZeroU64::new(hits).map_or(Hits::Peek, Hits::Take)
            }
        };
        let is_denied =
            |(name, value): &(SmolStr, SmolStr)| fields.field(name).is_some_and(|text| *text == **value);
        let code = if self.denied.as_ref().is_some_and(is_denied) { Code::OverLimit } else { Code::Ok };
        let entry = |entry: &MappedEntry| {
            let value = match &entry.value {
                MappedValue::Constant(value) => value.clone(),
                MappedValue::Field(name) => fields.field(name)?.into(),
            };
            Some((entry.key.clone(), value))
        };
        let descriptors = self.descriptors.iter().filter_map(|entries| {
            let entries = entries.iter().map(entry).collect::<Option<Vec<_>>>()?;
            Some(EventDescriptor { entries, hits, own_limit: None, recorded: None })
        });
        let descriptors: Vec<_> = descriptors.collect();
        if descriptors.is_empty() {
            return Ok(LineContent::WithoutDescriptors);
        }
        let domain = self.domain.clone();
        let event = Event {
            time,
            place: None,
            is_report: false,
            domain,
            descriptors,
            code,
            sample: 1.0,
            is_hashed: false,
            ticket: None,
        };
        event.request().check(&ANY_SIZE)?;
        Ok(LineContent::Decision(event))
    }
}

/// A time in RFC 3339, or seconds since 1970.
fn log_time(text: &str) -> Option<Timestamp> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    if !seconds.bytes().all(|byte| byte.is_ascii_digit()) || seconds.is_empty() {
        return time(text);
    }
    if fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos: u64 = format!("{fraction:0<9}").parse().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(nanos).map(Timestamp::from_nanos)
}

fn present(text: Cow<'_, str>) -> Option<Cow<'_, str>> {
    // Envoy writes a hyphen for a field that a request does not have.
    (!matches!(&*text, "" | "-")).then_some(text)
}

impl Fields for Value {
    fn field(&self, name: &str) -> Option<Cow<'_, str>> {
        let nested = || name.split('.').try_fold(self, |object, part| object.get(part));
        present(match self.get(name).or_else(nested)? {
            Value::String(text) => Cow::Borrowed(text),
            Value::Number(number) => Cow::Owned(number.to_string()),
            Value::Bool(bool) => Cow::Owned(bool.to_string()),
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        })
    }
}

/// The names of the columns of a CSV file, in its first line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Columns(Vec<String>);

impl Columns {
    /// Reads the first line.
    pub fn parse(line: &[u8]) -> Result<Self, LineError> {
        let fields = csv_fields(line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line))?;
        Ok(Self(fields.into_iter().map(|field| field.trim().to_owned()).collect()))
    }
}

struct Record<'l> {
    columns: &'l Columns,
    fields: Vec<Cow<'l, str>>,
}

impl Fields for Record<'_> {
    fn field(&self, name: &str) -> Option<Cow<'_, str>> {
        let at = self.columns.0.iter().position(|column| column == name)?;
        present(Cow::Borrowed(self.fields.get(at)?))
    }
}

/// The fields of a line of RFC 4180. A record is one line: quoted fields have no line feeds.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn mapping() -> Mapping {
        let mut mapping = Mapping::new("edge".into(), "start_time".into());
        mapping.denied = Some(("response_code".into(), "429".into()));
        mapping.add_descriptor("user=headers.x-user").expect("a descriptor");
        mapping.add_descriptor("generic_key=\"login\",remote_address=client").expect("a descriptor");
        mapping
    }

    fn event(line: Result<LineContent, LineError>) -> Event {
        match line {
            Ok(LineContent::Decision(event)) => event,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn fields_of_an_access_log_of_envoy_become_descriptors() {
        let line = br#"{"start_time":"2026-03-01T12:00:00.250Z","headers":{"x-user":"ada"},"client":null,"response_code":429}"#;
        let denied = event(mapping().json_line(line));
        assert_eq!((denied.code, denied.descriptors.len()), (Code::OverLimit, 1), "without `client`");
        assert_eq!(denied.descriptors[0].entries, [("user".into(), "ada".into())]);
        let line = br#"{"start_time":"1772366400.25","client":"10.0.0.7","response_code":200}"#;
        let admitted = event(mapping().json_line(line));
        assert_eq!((admitted.code, admitted.time), (Code::Ok, denied.time));
        let login = [("generic_key".into(), "login".into()), ("remote_address".into(), "10.0.0.7".into())];
        assert_eq!(admitted.descriptors[0].entries, login);
        let nothing = mapping().json_line(br#"{"start_time":1772366400,"client":"-"}"#);
        assert_eq!(nothing.expect("a line"), LineContent::WithoutDescriptors);
    }

    #[test]
    fn records_of_csv_may_quote_commas_and_quotes() {
        let columns =
            Columns::parse("\u{feff}start_time,headers.x-user,client,response_code\r\n".as_bytes()).unwrap();
        assert!(mapping().missing(&columns).is_empty());
        let line = "1772366400,\"a,\"\"b\"\"\",é,200\r\n";
        let event = event(mapping().csv_line(&columns, line.as_bytes()));
        let values: Vec<&str> =
            event.descriptors.iter().map(|of| &*of.entries[of.entries.len() - 1].1).collect();
        assert_eq!(values, ["a,\"b\"", "é"]);
        let error = |line: &str| mapping().csv_line(&columns, line.as_bytes()).unwrap_err().to_string();
        assert_eq!(error("1,2\n"), "2 fields; the header has 4");
        assert_eq!(error("1,\"2,3,4\n"), "a quoted field is not closed");
        assert_eq!(error(",a,b,c\n"), "the field `start_time` is missing");
        assert!(error("noon,a,b,c\n").starts_with("time is \"noon\""));
        let other = Columns::parse(b"start_time,user").unwrap();
        assert_eq!(mapping().missing(&other), ["response_code", "headers.x-user", "client"]);
    }

    #[test]
    fn hits_are_read_from_their_field() {
        let with_hits = Mapping { hits: Some("cost".into()), ..mapping() };
        let hits = |cost: &str| {
            let line = format!(r#"{{"start_time":1,"client":"c","cost":{cost}}}"#);
            with_hits.json_line(line.as_bytes()).map(|line| event(Ok(line)).descriptors[0].hits)
        };
        assert_eq!(hits("3").unwrap(), Hits::Take(NonZeroU64::new(3).unwrap()));
        assert_eq!(hits("\"0\"").unwrap(), Hits::Peek);
        assert_eq!(
            hits("-3").unwrap_err().to_string(),
            "the field `cost` is \"-3\"; it must be a whole number"
        );
    }

    #[test]
    fn a_descriptor_of_a_mapping_has_keys_and_fields() {
        for text in ["", "user", "=field", "user=", "user=a,"] {
            assert!(mapping().add_descriptor(text).is_err(), "{text:?}");
        }
    }
}
