//! Flags of `serve` for optional parts of responses. With `--compat reference` the environment variables of the reference
//! server for the same apply too.

use crate::cli::Failure;
use clap::{Args, ValueEnum};
use http::HeaderName;
use tidegate_service::{PlainHeaders, ReferenceHeaders, ResponseHeaders, RetryAfter, StructuredHeaders};

/// Optional parts of responses.
#[derive(Args)]
pub(super) struct ResponseOptions {
    /// Add dynamic metadata to every response: the request, the limits that are over, and their resets.
    #[arg(long)]
    dynamic_metadata: bool,
    /// Rate limit headers that Envoy adds to responses to the client; a list separated by commas.
    ///
    /// Envoy has such headers of its own (`enable_x_ratelimit_headers`, `enable_retry_after_header`): enable one or the other.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    response_headers: Vec<HeadersChoice>,
    /// Longest time that is added at random to the waits that headers of denials state (`Retry-After` and plain headers).
    ///
    /// Clients that are denied together then do not return together. No stated wait is shorter than the exact wait; resets in statuses stay exact.
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = jitter)]
    retry_jitter: u32,
}

/// Whole seconds up to an hour.
fn jitter(text: &str) -> Result<u32, String> {
    let remedy = "write whole seconds up to an hour, such as 5s";
    let duration = humantime::parse_duration(text).map_err(|error| format!("{error}; {remedy}"))?;
    let is_valid = duration.subsec_nanos() == 0 && duration.as_secs() <= 3_600;
    u32::try_from(duration.as_secs()).ok().filter(|_| is_valid).ok_or_else(|| remedy.to_owned())
}

/// Headers for the client.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum HeadersChoice {
    /// `RateLimit` and `RateLimit-Policy`, structured fields of version 11 of the IETF draft: `t` is the effective window.
    Draft11,
    /// The same of version 10: `t` is the time until the quota resets.
    Draft10,
    /// `RateLimit-Limit`, `RateLimit-Remaining`, `RateLimit-Reset`: the draft up to version 06.
    Draft06,
    /// `X-RateLimit-Limit`, `X-RateLimit-Remaining`, `X-RateLimit-Reset`, which preceded the draft.
    X,
    /// The same with the time of the reset, in seconds since 1970, instead of the seconds until then.
    XUnix,
    /// The same names as Limitador sends them with DRAFT_VERSION_03: `X-RateLimit-Limit` lists all limits.
    Draft03,
    /// `Retry-After`, with denials: seconds.
    RetryAfter,
    /// `Retry-After`, with denials: an HTTP date.
    RetryAfterDate,
}

impl HeadersChoice {
    /// Its name in the flag.
    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl ResponseOptions {
    /// Options from the flags and, with `--compat reference`, from the variables of the reference server.
    pub(super) fn options(
        &self,
        is_reference: bool,
        quota_mode: bool,
    ) -> Result<tidegate_service::ResponseOptions, Failure> {
        let headers = self.headers()?;
        let mut options =
            tidegate_service::ResponseOptions { dynamic_metadata: self.dynamic_metadata, headers };
        if is_reference {
            add_variables(&mut options, quota_mode, |name| std::env::var(name).ok())?;
        }
        Ok(options)
    }

    fn headers(&self) -> Result<ResponseHeaders, Failure> {
        let has = |choice| self.response_headers.contains(&choice);
        let plain = [
            (HeadersChoice::Draft06, PlainHeaders::DRAFT_06),
            (HeadersChoice::X, PlainHeaders::X),
            (HeadersChoice::XUnix, PlainHeaders::X_UNIX),
        ];
        let of_one_name = [
            [HeadersChoice::Draft10, HeadersChoice::Draft11],
            [HeadersChoice::X, HeadersChoice::Draft03],
            [HeadersChoice::X, HeadersChoice::XUnix],
            [HeadersChoice::XUnix, HeadersChoice::Draft03],
            [HeadersChoice::RetryAfter, HeadersChoice::RetryAfterDate],
        ];
        if let Some(both) = of_one_name.into_iter().find(|[one, other]| has(*one) && has(*other)) {
            let names = both.map(HeadersChoice::name).join(" and ");
            return Err(Failure(format!(
                "--response-headers has {names}, which use the same headers; remove one"
            )));
        }
        let structured = has(HeadersChoice::Draft10).then_some(StructuredHeaders::Draft10);
        let structured = structured.or(has(HeadersChoice::Draft11).then_some(StructuredHeaders::Draft11));
        let retry_after = has(HeadersChoice::RetryAfter).then_some(RetryAfter::Seconds);
        let retry_after = retry_after.or(has(HeadersChoice::RetryAfterDate).then_some(RetryAfter::Date));
        if self.retry_jitter > 0 && retry_after.is_none() && !plain.iter().any(|(choice, _)| has(*choice)) {
            let message = "--retry-jitter has no effect without a header that states a wait: add retry-after (or retry-after-date, x, x-unix, draft06) to --response-headers";
            return Err(Failure(message.into()));
        }
        Ok(ResponseHeaders {
            structured,
            limitador: has(HeadersChoice::Draft03),
            plain: plain.into_iter().filter(|(choice, _)| has(*choice)).map(|(_, names)| names).collect(),
            retry_after,
            jitter_seconds: self.retry_jitter,
            reference: None,
        })
    }
}

/// Sets what the environment variables of the reference server switch on.
fn add_variables(
    options: &mut tidegate_service::ResponseOptions,
    quota_mode: bool,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<(), Failure> {
    let is_on = |name| boolean(name, variable(name).as_deref());
    options.dynamic_metadata |= is_on("RESPONSE_DYNAMIC_METADATA")?;
    if is_on("LIMIT_RESPONSE_HEADERS_ENABLED")? {
        let ReferenceHeaders { limit, remaining, reset, .. } = ReferenceHeaders::default();
        let name = |variable_name: &str, default| match variable(variable_name)
            .filter(|name| !name.is_empty())
        {
            None => Ok(default),
            Some(name) => {
                HeaderName::from_bytes(name.as_bytes()).map(|_| name.as_str().into()).map_err(|_| {
                    Failure(format!("the variable {variable_name} is {name:?}, which is not a header name"))
                })
            }
        };
        options.headers.reference = Some(ReferenceHeaders {
            limit: name("LIMIT_LIMIT_HEADER", limit)?,
            remaining: name("LIMIT_REMAINING_HEADER", remaining)?,
            reset: name("LIMIT_RESET_HEADER", reset)?,
            quota_mode,
        });
    }
    match options.headers.sent_twice() {
        None => Ok(()),
        Some(name) => Err(Failure(format!(
            "responses would have the header {name} twice, from --response-headers and from LIMIT_RESPONSE_HEADERS_ENABLED; remove its \
             set from --response-headers, or name another header in LIMIT_LIMIT_HEADER, LIMIT_REMAINING_HEADER or LIMIT_RESET_HEADER"
        ))),
    }
}

/// A boolean as the reference server parses it.
pub(super) fn boolean(name: &str, value: Option<&str>) -> Result<bool, Failure> {
    match value {
        None | Some("" | "0" | "f" | "F" | "false" | "False" | "FALSE") => Ok(false),
        Some("1" | "t" | "T" | "true" | "True" | "TRUE") => Ok(true),
        Some(other) => Err(Failure(format!("the variable {name} is {other:?}; write true or false"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(variables: &[(&str, &str)]) -> Result<tidegate_service::ResponseOptions, String> {
        let variable = |name: &str| Some(variables.iter().find(|(known, _)| *known == name)?.1.to_owned());
        let mut options = tidegate_service::ResponseOptions::default();
        add_variables(&mut options, false, variable).map_err(|failure| failure.to_string())?;
        Ok(options)
    }

    #[test]
    fn the_variables_of_the_reference_server_have_their_effect_there() {
        assert_eq!(options(&[]), Ok(tidegate_service::ResponseOptions::default()));
        assert_eq!(
            options(&[("RESPONSE_DYNAMIC_METADATA", "T")]),
            Ok(tidegate_service::ResponseOptions {
                dynamic_metadata: true,
                ..tidegate_service::ResponseOptions::default()
            })
        );
        assert_eq!(
            options(&[("RESPONSE_DYNAMIC_METADATA", "yes")]),
            Err("the variable RESPONSE_DYNAMIC_METADATA is \"yes\"; write true or false".to_owned())
        );
        let named = |variables: &[(&str, &str)]| Ok::<_, String>(options(variables)?.headers.reference);
        let on = ("LIMIT_RESPONSE_HEADERS_ENABLED", "true");
        assert_eq!(named(&[("LIMIT_LIMIT_HEADER", "x-limit")]), Ok(None), "names alone switch nothing on");
        assert_eq!(named(&[on]), Ok(Some(ReferenceHeaders::default())));
        let own = ReferenceHeaders { limit: "X-Limit".into(), ..ReferenceHeaders::default() };
        assert_eq!(
            named(&[on, ("LIMIT_LIMIT_HEADER", "X-Limit")]),
            Ok(Some(own)),
            "in the case as configured"
        );
        assert!(
            named(&[on, ("LIMIT_RESET_HEADER", "re set")])
                .is_err_and(|error| error.contains("LIMIT_RESET_HEADER"))
        );
    }
    /// Responses had both, with different numbers.
    #[test]
    fn headers_of_the_reference_server_with_names_of_another_set_are_refused() {
        let plain = |names| ResponseHeaders { plain: vec![names], ..ResponseHeaders::default() };
        let limitador = ResponseHeaders { limitador: true, ..ResponseHeaders::default() };
        let retry_after = Some(RetryAfter::Seconds);
        let retry_after = ResponseHeaders { retry_after, ..ResponseHeaders::default() };
        let structured = Some(StructuredHeaders::Draft11);
        let structured = ResponseHeaders { structured, ..ResponseHeaders::default() };
        for (headers, variable, refused) in [
            (plain(PlainHeaders::DRAFT_06), None, Some("RateLimit-Limit")),
            (plain(PlainHeaders::X), None, None),
            (plain(PlainHeaders::X), Some("X-RATELIMIT-LIMIT"), Some("X-RATELIMIT-LIMIT")),
            (plain(PlainHeaders::X_UNIX), Some("x-ratelimit-reset"), Some("x-ratelimit-reset")),
            (limitador, Some("X-RateLimit-Limit"), Some("X-RateLimit-Limit")),
            (retry_after, Some("Retry-After"), Some("Retry-After")),
            (structured.clone(), Some("RateLimit"), Some("RateLimit")),
            (structured, None, None),
        ] {
            let mut options = tidegate_service::ResponseOptions { headers, ..Default::default() };
            let variables = |name: &str| match name {
                "LIMIT_RESPONSE_HEADERS_ENABLED" => Some("true".to_owned()),
                "LIMIT_RESET_HEADER" => variable.map(str::to_owned),
                _ => None,
            };
            let error = add_variables(&mut options, false, variables).err().map(|error| error.to_string());
            let begins = refused.map(|name| format!("responses would have the header {name} twice"));
            let is_as_expected = match (&error, &begins) {
                (Some(error), Some(begins)) => error.starts_with(begins),
                (None, None) => true,
                _ => false,
            };
            assert!(is_as_expected, "{error:?}, {begins:?}");
        }
    }
}
