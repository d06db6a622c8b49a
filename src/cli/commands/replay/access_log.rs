//! Flags for access logs: the format, and how requests are made of its fields.

use super::input::Format;
use crate::cli::Failure;
use clap::{Args, ValueEnum};
use std::sync::Arc;
use tidegate_core::rules::{RuleSet, nearest_name};
use tidegate_replay::{
    APACHE_COMBINED, AccessLog, ENVOY_DEFAULT, ISTIO_DEFAULT, Layout, Mapping, NGINX_COMBINED, Notation,
    TextFormat,
};

/// The formats whose requests a mapping makes, as conditions of flags.
pub(super) fn mapped() -> [(&'static str, &'static str); 7] {
    ["json", "csv", "envoy", "istio", "nginx", "apache", "text"].map(|format| ("format", format))
}

/// Formats of logs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum LogFormat {
    /// The decision log.
    Decisions,
    /// JSON lines, such as the access log of Envoy with json_format.
    Json,
    /// CSV with the names of the columns in the first line.
    Csv,
    /// Text of Envoy, by default in its default format.
    Envoy,
    /// Text of Envoy in Istio's default format.
    Istio,
    /// Text of nginx, by default in the format combined.
    Nginx,
    /// Text of Apache, by default in the format combined.
    Apache,
    /// Text by --log-format, whose notation is recognized.
    Text,
}

/// How requests are made of the fields of an access log.
#[derive(Args)]
pub(super) struct AccessLogFlags {
    /// Format of the logs.
    #[arg(long, value_enum, default_value_t = LogFormat::Decisions)]
    format: LogFormat,
    /// Format string of the lines, as the server has it: `%START_TIME% %REQ(X-USER)%` (Envoy), `$remote_addr $status` (nginx) or
    /// `%h %>s` (Apache).
    #[arg(long, value_name = "STRING", required_if_eq("format", "text"))]
    log_format: Option<String>,
    /// Domain of the requests of an access log.
    #[arg(long, value_name = "NAME", required_if_eq_any = mapped())]
    domain: Option<String>,
    /// A descriptor, as KEY=FIELD or KEY="VALUE", separated by commas; repeat for more. It is left out of requests without the field.
    /// KEY=address(FIELD) takes the port off an address, KEY=FIELD[-1] takes the last element of a list.
    #[arg(long = "descriptor", value_name = "ENTRIES", required_if_eq_any = mapped())]
    descriptors: Vec<String>,
    /// Field with the time; by default the time of the format, or start_time.
    #[arg(long, value_name = "FIELD")]
    time_field: Option<String>,
    /// Field with the number of hits; without it each request is one hit.
    #[arg(long, value_name = "FIELD")]
    hits_field: Option<String>,
    /// Field and value of requests that were denied; by default the status 429. `=` if all were admitted.
    #[arg(long, value_name = "FIELD=VALUE")]
    denied: Option<String>,
}

impl AccessLogFlags {
    /// The format of the logs; `proposed` are the rules, which must have the domain.
    pub(super) fn format(&self, proposed: Option<&RuleSet>) -> Result<Format, Failure> {
        let text = self.text_format()?;
        if self.format == LogFormat::Decisions {
            return Ok(Format::Decisions);
        }
        let domain = self.domain.as_deref().unwrap_or_default();
        if let Some(rules) = proposed {
            check_domain(domain, rules)?;
        }
        let mapping = Arc::new(self.mapping(domain, text.as_ref())?);
        let layout = match (self.format, text) {
            (LogFormat::Csv, _) => return Ok(Format::Csv(mapping)),
            (_, Some(format)) => Layout::Text(Arc::new(format)),
            (_, None) => Layout::Json,
        };
        let log = AccessLog::new(mapping, layout);
        Ok(Format::Access(log.map_err(|error| Failure(format!("the format of the lines: {error}")))?))
    }

    /// The format of lines of text; none of other logs.
    fn text_format(&self) -> Result<Option<TextFormat>, Failure> {
        let (notation, by_default) = match self.format {
            LogFormat::Decisions | LogFormat::Json | LogFormat::Csv => {
                return match &self.log_format {
                    None => Ok(None),
                    Some(_) => Err(Failure(
                        "--log-format is for lines of text; add --format envoy, nginx, apache or text".into(),
                    )),
                };
            }
            LogFormat::Envoy => (Some(Notation::Envoy), ENVOY_DEFAULT),
            LogFormat::Istio => (Some(Notation::Envoy), ISTIO_DEFAULT),
            LogFormat::Nginx => (Some(Notation::Nginx), NGINX_COMBINED),
            LogFormat::Apache => (Some(Notation::Apache), APACHE_COMBINED),
            LogFormat::Text => (None, ""),
        };
        let format = self.log_format.as_deref().unwrap_or(by_default);
        // Without fields the text has no notation, and any notation finds none.
        let notation = notation.or_else(|| Notation::of(format)).unwrap_or(Notation::Envoy);
        let parsed = TextFormat::parse(format, notation);
        parsed.map(Some).map_err(|error| Failure(format!("--log-format: {error}")))
    }

    fn mapping(&self, domain: &str, text: Option<&TextFormat>) -> Result<Mapping, Failure> {
        let time = match (&self.time_field, text) {
            (Some(field), _) => field,
            (None, Some(format)) => format.time_field().ok_or_else(|| {
                Failure("the format has no field with the time; name one with --time-field".into())
            })?,
            (None, None) => "start_time",
        };
        let mut mapping = Mapping::new(domain.into(), time);
        if let Some(field) = &self.hits_field {
            mapping.set_hits(field);
        }
        if let Some((field, value)) = self.denied(text)? {
            mapping.set_denied(field, value);
        }
        for descriptor in &self.descriptors {
            mapping.add_descriptor(descriptor).map_err(|error| Failure(format!("--descriptor {error}")))?;
        }
        Ok(mapping)
    }

    /// The field, and its value in requests that were denied.
    fn denied<'s>(&'s self, text: Option<&'s TextFormat>) -> Result<Option<(&'s str, &'s str)>, Failure> {
        let Some(denied) = &self.denied else {
            const TOO_MANY_REQUESTS: &str = "429";
            let field = match text {
                None => "response_code",
                Some(format) => format.status_field().ok_or_else(|| {
                    Failure(
                        "the format has no field with the status; name the denied requests with --denied FIELD=VALUE, or state \
                         that none was with --denied ="
                            .into(),
                    )
                })?,
            };
            return Ok(Some((field, TOO_MANY_REQUESTS)));
        };
        let (field, value) = denied
            .rsplit_once('=')
            .ok_or_else(|| Failure(format!("--denied {denied:?} is not FIELD=VALUE")))?;
        Ok((!field.is_empty()).then_some((field, value)))
    }
}

/// Nothing could be limited in a domain without rules.
fn check_domain(domain: &str, rules: &RuleSet) -> Result<(), Failure> {
    if rules.domain(domain).is_some() {
        return Ok(());
    }
    let names: Vec<&str> = rules.domains().map(|domain| domain.name()).collect();
    let known = match nearest_name(domain, &names) {
        Some(near) => format!("the nearest is {near:?}"),
        None => format!("they have {}", names.join(", ")),
    };
    Err(Failure(format!("--domain {domain:?}: the proposed rules have no such domain; {known}")))
}
