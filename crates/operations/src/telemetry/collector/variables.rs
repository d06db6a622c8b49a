//! The environment variables of OpenTelemetry that all signals share: those of the exporter, for one signal or for all, and the name of the
//! service. OpenTelemetry's crates read the other variables of the resource.

use percent_encoding::percent_decode_str;
use std::{fmt, path::PathBuf};
use tidegate_shared::without_userinfo;
use tidegate_transport::TlsClient;
use tonic::metadata::MetadataMap;

/// The environment configures an export in a way that is not supported.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{name}={value}: {remedy}")]
pub struct OtlpVariableError {
    /// The variable.
    pub name: String,
    /// Its value, without user and password.
    pub value: String,
    /// The supported values.
    pub remedy: &'static str,
}

impl OtlpVariableError {
    pub(in crate::telemetry) fn new(
        name: impl Into<String>,
        value: impl Into<String>,
        remedy: &'static str,
    ) -> Self {
        Self { name: name.into(), value: without_userinfo(&value.into()), remedy }
    }
}

/// A kind of exported data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::telemetry) enum Signal {
    Traces,
    Metrics,
}

impl Signal {
    /// The signal's name in variables.
    fn name(self) -> &'static str {
        match self {
            Self::Traces => "TRACES",
            Self::Metrics => "METRICS",
        }
    }
}

/// A transport of OTLP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::telemetry) enum Protocol {
    Grpc,
    Http,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Grpc => "grpc",
            Self::Http => "http/protobuf",
        })
    }
}

/// Settings of an export that is on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::telemetry) struct Export {
    pub(in crate::telemetry) protocol: Protocol,
    pub(in crate::telemetry) endpoint: String,
    /// Whether the endpoint is only for this signal. By HTTP, the signal's path has to be appended to an endpoint for all signals.
    pub(in crate::telemetry) is_own_endpoint: bool,
    /// Certificates of a connection with TLS, if the endpoint is `https`.
    pub(in crate::telemetry) tls: Option<TlsClient>,
    /// Headers of every request, with names in lower case.
    pub(in crate::telemetry) headers: Vec<(String, String)>,
    /// Whether the environment names the service.
    pub(in crate::telemetry) has_service_name: bool,
    /// Whether the variables contain an id of the process.
    pub(in crate::telemetry) has_instance_id: bool,
}

/// The variables of one signal. An empty variable counts as not set.
pub(in crate::telemetry) struct Environment<F> {
    variable: F,
    signal: Signal,
}

impl Export {
    /// The headers, for calls by gRPC.
    pub(in crate::telemetry) fn metadata(&self) -> Result<MetadataMap, http::Error> {
        let headers = self.headers.iter().map(|(name, value)| Ok((name.parse()?, value.parse()?)));
        Ok(MetadataMap::from_headers(headers.collect::<Result<http::HeaderMap, http::Error>>()?))
    }

    /// The text of a library's error, which may contain the endpoint, without user and password.
    pub(in crate::telemetry) fn without_userinfo(&self, error: &dyn fmt::Display) -> String {
        error.to_string().replace(&self.endpoint, &without_userinfo(&self.endpoint))
    }
}

impl<F: Fn(&str) -> Option<String>> Environment<F> {
    pub(in crate::telemetry) fn new(signal: Signal, variable: F) -> Self {
        Self { variable, signal }
    }

    pub(in crate::telemetry) fn value(&self, name: &str) -> Option<String> {
        (self.variable)(name).filter(|value| !value.is_empty())
    }

    /// `OTEL_EXPORTER_OTLP_<SIGNAL>_<suffix>` or, without it, `OTEL_EXPORTER_OTLP_<suffix>`: its name and its value.
    pub(in crate::telemetry) fn of_exporter(&self, suffix: &str) -> Option<(String, String)> {
        [self.own_name(suffix), format!("OTEL_EXPORTER_OTLP_{suffix}")]
            .into_iter()
            .find_map(|name| self.value(&name).map(|value| (name, value)))
    }

    fn own_name(&self, suffix: &str) -> String {
        format!("OTEL_EXPORTER_OTLP_{}_{suffix}", self.signal.name())
    }

    /// The settings of the export; none if it is off.
    pub(in crate::telemetry) fn export(&self) -> Result<Option<Export>, OtlpVariableError> {
        let is_disabled =
            self.value("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let Some((name, endpoint)) = self.of_exporter("ENDPOINT").filter(|_| !is_disabled) else {
            return Ok(None);
        };
        let exporter = format!("OTEL_{}_EXPORTER", self.signal.name());
        match self.value(&exporter).as_deref() {
            None | Some("otlp") => {}
            Some("none") => return Ok(None),
            Some(other) => return Err(OtlpVariableError::new(exporter, other, "write otlp or none")),
        }
        if !(endpoint.starts_with("http://") || endpoint.starts_with("https://")) {
            return Err(OtlpVariableError::new(
                name,
                endpoint,
                "write http://host:port or https://host:port",
            ));
        }
        let protocol = match self.of_exporter("PROTOCOL") {
            None => Protocol::Http,
            Some((_, value)) if value == "http/protobuf" => Protocol::Http,
            Some((_, value)) if value == "grpc" => Protocol::Grpc,
            Some((name, value)) => {
                return Err(OtlpVariableError::new(name, value, "write grpc or http/protobuf"));
            }
        };
        let tls = endpoint.starts_with("https:").then(|| self.tls());
        let is_own_endpoint = name == self.own_name("ENDPOINT");
        let has_service_name =
            self.value("OTEL_SERVICE_NAME").is_some() || self.has_attribute("service.name=");
        let has_instance_id = self.has_attribute("service.instance.id=");
        let headers = self.of_exporter("HEADERS").map(headers).transpose()?.unwrap_or_default();
        Ok(Some(Export {
            protocol,
            endpoint,
            is_own_endpoint,
            tls,
            headers,
            has_service_name,
            has_instance_id,
        }))
    }

    fn tls(&self) -> TlsClient {
        let file = |suffix| self.of_exporter(suffix).map(|(_, path)| PathBuf::from(path));
        TlsClient {
            ca: file("CERTIFICATE"),
            cert_and_key: file("CLIENT_CERTIFICATE").zip(file("CLIENT_KEY")),
            ..TlsClient::default()
        }
    }

    fn has_attribute(&self, begin: &str) -> bool {
        let has = |text: String| text.split(',').any(|pair| pair.trim().starts_with(begin));
        self.value("OTEL_RESOURCE_ATTRIBUTES").is_some_and(has)
    }
}

/// `name=value` pairs, separated by commas, with percent-encoded values as in W3C Baggage. A `%` without two digits after it stays.
fn headers((name, text): (String, String)) -> Result<Vec<(String, String)>, OtlpVariableError> {
    let pairs = text.split(',').filter(|pair| !pair.trim().is_empty());
    let pair = |pair: &str| {
        let (header, value) = pair.split_once('=')?;
        let (header, value) = (header.trim().to_ascii_lowercase(), percent_decode_str(value.trim()));
        let value = value.decode_utf8().ok()?.into_owned();
        let is_valid =
            http::HeaderName::try_from(&header).is_ok() && http::HeaderValue::try_from(&value).is_ok();
        is_valid.then_some((header, value))
    };
    let pairs: Option<Vec<_>> = pairs.map(pair).collect();
    pairs.ok_or_else(|| {
        let remedy = "write name=value pairs of HTTP headers, percent-encoded and separated by commas";
        // The value may contain secrets.
        OtlpVariableError::new(name, "…", remedy)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNALS: [Signal; 2] = [Signal::Traces, Signal::Metrics];
    const ENDPOINT: (&str, &str) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318");

    fn export(signal: Signal, set: &[(&str, &str)]) -> Result<Option<Export>, String> {
        let value =
            |name: &str| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        Environment::new(signal, value).export().map_err(|error| error.to_string())
    }

    fn own(signal: Signal, suffix: &str) -> String {
        format!("OTEL_EXPORTER_OTLP_{}_{suffix}", signal.name())
    }

    #[test]
    fn without_an_endpoint_nothing_is_exported() {
        for signal in SIGNALS {
            let exporter = format!("OTEL_{}_EXPORTER", signal.name());
            for set in [
                &[][..],
                &[("OTEL_EXPORTER_OTLP_ENDPOINT", "")],
                &[ENDPOINT, ("OTEL_SDK_DISABLED", "TRUE")],
                &[ENDPOINT, (&exporter, "none")],
            ] {
                assert_eq!(export(signal, set), Ok(None), "{signal:?}, {set:?}");
            }
        }
    }

    #[test]
    fn variables_of_a_signal_precede_those_of_all_signals() {
        for signal in SIGNALS {
            let found = export(signal, &[ENDPOINT]);
            let expected = Export {
                protocol: Protocol::Http,
                endpoint: ENDPOINT.1.into(),
                is_own_endpoint: false,
                tls: None,
                headers: Vec::new(),
                has_service_name: false,
                has_instance_id: false,
            };
            assert_eq!(found, Ok(Some(expected)));
            let found = export(
                signal,
                &[
                    ENDPOINT,
                    (&own(signal, "ENDPOINT"), "http://own:4317"),
                    ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"),
                    (&own(signal, "PROTOCOL"), "grpc"),
                    ("OTEL_RESOURCE_ATTRIBUTES", "zone=b, service.name=limits, service.instance.id=a"),
                ],
            );
            let expected = Export {
                protocol: Protocol::Grpc,
                endpoint: "http://own:4317".into(),
                is_own_endpoint: true,
                tls: None,
                headers: Vec::new(),
                has_service_name: true,
                has_instance_id: true,
            };
            assert_eq!(found, Ok(Some(expected)));
        }
    }

    #[test]
    fn an_https_endpoint_has_the_certificates_of_the_environment() {
        for signal in SIGNALS {
            let tls = export(
                signal,
                &[
                    ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://localhost:4318"),
                    ("OTEL_EXPORTER_OTLP_CERTIFICATE", "all.crt"),
                    (&own(signal, "CERTIFICATE"), "own.crt"),
                    ("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", "client.crt"),
                    ("OTEL_EXPORTER_OTLP_CLIENT_KEY", "client.key"),
                ],
            );
            let tls = tls.expect("valid").expect("an endpoint").tls.expect("TLS");
            assert_eq!(tls.ca, Some("own.crt".into()));
            assert_eq!(tls.cert_and_key, Some(("client.crt".into(), "client.key".into())));
        }
    }

    /// Headers in the form of the specification were refused.
    #[test]
    fn headers_are_percent_decoded() {
        let of = |text| export(Signal::Metrics, &[ENDPOINT, ("OTEL_EXPORTER_OTLP_HEADERS", text)]);
        for (text, value) in [
            ("authorization=Bearer%20X", "Bearer X"),
            ("authorization=Basic%20YTpi%3D%3d%2C", "Basic YTpi==,"),
            ("Authorization=100%", "100%"),
            ("authorization=a%zzb%2", "a%zzb%2"),
            ("authorization=%25%32%30", "%20"),
        ] {
            let found = of(text).expect("valid").expect("on").headers;
            assert_eq!(found, [("authorization".to_owned(), value.to_owned())], "{text}");
        }
        for refused in ["authorization=a%0Ab", "authorization=a%ff"] {
            let error = of(refused).expect_err(refused);
            assert!(error.contains("percent-encoded") && !error.contains("a%"), "{error}");
        }
    }

    #[test]
    fn headers_are_pairs_and_an_empty_variable_of_a_signal_counts_as_unset() {
        for signal in SIGNALS {
            let all = ("OTEL_EXPORTER_OTLP_HEADERS", "Authorization=Bearer x, tenant=a");
            let of = |own_headers| {
                let set = [ENDPOINT, all, (&own(signal, "HEADERS"), own_headers)];
                export(signal, &set).map(|export| export.expect("on").headers)
            };
            let expected = [("authorization", "Bearer x"), ("tenant", "a")];
            assert_eq!(of(""), Ok(expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into()));
            assert_eq!(of("k=v"), Ok(vec![("k".to_owned(), "v".to_owned())]));
            let error = of("secret").expect_err("no pair");
            assert!(!error.contains("secret"), "{error}");
        }
    }

    #[test]
    fn values_that_are_not_supported_are_errors() {
        for signal in SIGNALS {
            for (name, value) in [
                (format!("OTEL_{}_EXPORTER", signal.name()), "zipkin"),
                ("OTEL_EXPORTER_OTLP_PROTOCOL".to_owned(), "http/json"),
                (own(signal, "ENDPOINT"), "collector:4317"),
            ] {
                let error = export(signal, &[ENDPOINT, (&name, value)]).expect_err(value);
                assert!(error.starts_with(&format!("{name}={value}: ")), "{error}");
            }
        }
    }

    #[test]
    fn errors_show_no_password_of_an_endpoint() {
        let (name, value) = ("OTEL_EXPORTER_OTLP_ENDPOINT", "ftp://u:PW@collector:4318");
        let error = export(Signal::Traces, &[(name, value)]).expect_err("not HTTP");
        assert!(error.starts_with(&format!("{name}=ftp://…@collector:4318: ")), "{error}");
        let set = [(name, "http://u:PW@collector:4318")];
        let export = export(Signal::Traces, &set).expect("valid").expect("on");
        let of_library = format!("invalid URI {}", export.endpoint);
        assert_eq!(export.without_userinfo(&of_library), "invalid URI http://…@collector:4318");
    }
}
