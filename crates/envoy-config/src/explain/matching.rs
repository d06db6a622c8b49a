//! The match of a route.

use super::request::Routed;
use crate::{
    actions::{HeaderMatch, QueryMatch, TextMatch},
    configuration::{Configuration, Runtime, Share},
    node::{Node, Problems},
    part::Part,
    schema::{HEADER_MATCHER, Message, QUERY_PARAMETER_MATCHER, REGEX_MATCHER},
};

/// Whether a route matches a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Match {
    Yes,
    No,
    /// Depends on this.
    Unknown(String),
}

impl From<bool> for Match {
    fn from(is_match: bool) -> Self {
        if is_match { Self::Yes } else { Self::No }
    }
}

/// Whether the `match` of a route matches: all of its fields.
pub(super) fn matches(matched: Part<'_>, request: &Routed<'_>, configuration: &Configuration<'_>) -> Match {
    all(matched.fields().map(|(name, part)| field(matched, name, part, request, configuration)))
}

fn field(
    matched: Part<'_>,
    name: &str,
    part: Part<'_>,
    request: &Routed<'_>,
    configuration: &Configuration<'_>,
) -> Match {
    let is = |field: &str| crate::node::is_called(field, name);
    let path = request.request.plain_path();
    let ignores_case = matched.get("case_sensitive").is_some_and(|flag| flag.as_text() == "false");
    let cased = |text: &str| if ignores_case { text.to_ascii_lowercase() } else { text.to_owned() };
    let own = || cased(part.as_text());
    let path = || cased(path);
    match () {
        () if is("prefix") => path().starts_with(&own()).into(),
        () if is("path") => (path() == own()).into(),
        () if is("path_separated_prefix") => {
            let (path, own) = (path(), own());
            (path.strip_prefix(&own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))).into()
        }
        () if is("safe_regex") => checked(part, &REGEX_MATCHER, |node, problems| {
            Some(TextMatch::regex(node, problems)?.matches(request.request.plain_path().as_bytes()))
        }),
        () if is("case_sensitive") => Match::Yes,
        () if is("connect_matcher") => (request.request.method == "CONNECT").into(),
        () if is("grpc") => {
            let kind = request.request.values("content-type").next().unwrap_or_default();
            (kind == "application/grpc" || kind.starts_with("application/grpc+")).into()
        }
        () if is("headers") => all(part.items().map(|part| {
            checked(part, &HEADER_MATCHER, |node, problems| {
                Some(HeaderMatch::read(node, &configuration.envoy, problems)?.matches(request))
            })
        })),
        () if is("query_parameters") => all(part.items().map(|part| {
            checked(part, &QUERY_PARAMETER_MATCHER, |node, problems| {
                Some(QueryMatch::read(node, problems)?.matches_undecoded(request.request.path.as_bytes()))
            })
        })),
        () if is("runtime_fraction") => fraction(part, &configuration.runtime),
        () => Match::Unknown(format!("{name} at {}", part.origin())),
    }
}

/// Whether all of these match.
fn all(matches: impl Iterator<Item = Match>) -> Match {
    let mut unknown = Match::Yes;
    for one in matches {
        match one {
            Match::Yes => {}
            Match::No => return Match::No,
            other => unknown = other,
        }
    }
    unknown
}

/// The result of a matcher; unknown if it cannot be read.
fn checked(part: Part<'_>, message: &Message, matches: impl Fn(&Node, &Problems) -> Option<bool>) -> Match {
    let problems = Problems::default();
    let Some(node) = part.node(message, &problems) else {
        return Match::Unknown(format!("the value at {}", part.origin()));
    };
    let is_match = matches(&node, &problems);
    match (is_match, &*problems.into_lines()) {
        (Some(is_match), []) => is_match.into(),
        (_, lines) => Match::Unknown(format!("{}: {}", part.origin(), lines.join("; "))),
    }
}

/// The share of the runtime, if a static layer has the key; else the default.
fn fraction(part: Part<'_>, runtime: &Runtime<'_>) -> Match {
    let of_runtime = runtime.share(part.text("runtime_key")).map(|(_, share)| share);
    let share = of_runtime.unwrap_or_else(|| Share::of_default(part));
    match share.is_all() || share.is_none() {
        true => share.is_all().into(),
        false => Match::Unknown(format!("chance: {share} requests, at {}", part.origin())),
    }
}
