//! `tidegate envoy explain`: what a configuration of Envoy and rules do with one request.

use super::inputs::Inputs;
use crate::cli::{
    Failure,
    commands::explain::{descriptor_to_json, entries, show},
    output::table::print_line,
};
use clap::Args;
use serde_json::{Value, json};
use std::{net::IpAddr, process::ExitCode};
use tidegate_core::{
    limit::{Descriptor, DescriptorText, Hits, RequestLimit},
    rules::{Applied, RuleSet},
};
use tidegate_envoy_config::{
    configuration::{Configuration, FailureMode, Level},
    explain::{EntryHits, Explained, ExplainedEntry, ExplainedFilter, HttpRequest, Made, Responses, explain},
};

/// Shows what an Envoy configuration and rules do with one request: its route, its descriptors, their limits, and the response.
///
/// No request is sent, and no counter is read. What depends on something that the files do not show, such as other filters, is listed.
///
/// Exit code 0: a limit can deny the request. 1: none can.
#[derive(Args)]
pub(in crate::cli) struct Explain {
    #[command(flatten)]
    inputs: Inputs,
    /// The request: a method and a URL.
    #[arg(long, value_name = "METHOD URL")]
    request: HttpRequest,
    /// A header of the request; repeat for more.
    #[arg(short = 'H', long = "header", value_name = "NAME: VALUE", value_parser = header)]
    headers: Vec<(String, String)>,
    /// The address that connects to Envoy.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    from: IpAddr,
    /// The listener, if several limit such a request.
    #[arg(long, value_name = "NAME")]
    listener: Option<String>,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
}

/// Parses `x-api-key: a`.
fn header(text: &str) -> Result<(String, String), &'static str> {
    match text.split_once(':') {
        Some((name, value)) if !name.trim().is_empty() => {
            Ok((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        }
        _ => Err("write a name and a value, such as 'x-api-key: a'"),
    }
}

/// The call of a filter, and how the rules apply to it.
struct Call<'r> {
    descriptors: Vec<DescriptorText>,
    /// None if the rules do not have the domain.
    applied: Option<Vec<Applied<'r>>>,
    /// Whether a limit can deny the request.
    is_limited: bool,
}

impl Explain {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let rules = self.inputs.rules()?;
        let files = self.inputs.files()?;
        let configuration = Configuration::of(&files);
        let request = HttpRequest { headers: self.headers, from: self.from, ..self.request };
        let explained = explain(&configuration, self.listener.as_deref(), &request);
        if explained.is_empty() {
            let names: Vec<&str> = configuration.managers.iter().map(|manager| &*manager.name).collect();
            return Err(Failure(match (self.listener, &*names) {
                (Some(listener), [_, ..]) => {
                    format!("there is no listener {listener}; listeners: {}", names.join(", "))
                }
                _ => "no listener with http_filters is in these files".to_owned(),
            }));
        }
        let calls: Vec<Vec<Call<'_>>> = explained.iter().map(|one| calls(one, &rules)).collect();
        if self.json {
            let all = explained.iter().zip(&calls).map(|(explained, calls)| to_json(explained, calls));
            print_line(json!({"limited": is_limited(&calls), "listeners": all.collect::<Vec<_>>()}));
        } else {
            for (number, (explained, calls)) in explained.iter().zip(&calls).enumerate() {
                if number > 0 {
                    print_line("");
                }
                show_listener(explained, calls);
            }
        }
        Ok(if is_limited(&calls) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn is_limited(calls: &[Vec<Call<'_>>]) -> bool {
    calls.iter().flatten().any(|call| call.is_limited)
}

/// The calls of the filters of a listener at the beginning of the request.
fn calls<'r>(explained: &Explained<'_>, rules: &'r RuleSet) -> Vec<Call<'r>> {
    explained.filters.iter().map(|filter| call(filter, rules)).collect()
}

fn call<'r>(filter: &ExplainedFilter<'_>, rules: &'r RuleSet) -> Call<'r> {
    let at_start = filter.applied.iter().filter(|entry| !entry.is_at_end);
    let (descriptors, numbers): (Vec<DescriptorText>, Vec<(Hits, Option<RequestLimit>)>) = at_start
        .filter_map(|entry| match (&entry.made, &entry.hits) {
            (Made::Descriptor(entries), Some(EntryHits::Known(hits))) => {
                Some((DescriptorText(entries.clone()), (*hits, entry.limit)))
            }
            _ => None,
        })
        .unzip();
    let applied = rules.domain(filter.domain).map(|domain| {
        let texts = descriptors.iter().zip(&numbers);
        let all: Vec<_> = texts
            .map(|(text, (hits, limit))| Descriptor {
                entries: entries(text).into(),
                limit: *limit,
                hits: *hits,
            })
            .collect();
        domain.explain_request(&all)
    });
    // Limits in shadow mode deny nothing, and hits that are given back are never denied.
    let can_deny = |(applied, (hits, _)): (&Applied<'_>, &(Hits, _))| {
        applied.is_limited() && !applied.is_shadow() && !matches!(hits, Hits::GiveBack(_))
    };
    let is_limited = !filter.responses.enforced.is_none()
        && applied.as_ref().is_some_and(|all| all.iter().zip(&numbers).any(can_deny));
    Call { descriptors, applied, is_limited }
}

fn show_listener(explained: &Explained<'_>, calls: &[Call<'_>]) {
    print_line(format!("listener      {}", explained.listener));
    match &explained.host {
        Some((name, at)) => print_line(format!("virtual host  {name}  ({at})")),
        None => print_line("virtual host  none"),
    }
    if let Some((title, at)) = &explained.route {
        print_line(format!("route         {title}  ({at})"));
    }
    print_line(format!("target        {}", explained.target));
    print_line(format!("client        {}", explained.client));
    for reason in &explained.unknown {
        print_line(format!("unknown       {reason}"));
    }
    if explained.filters.is_empty() && explained.route.is_some() {
        print_line("\nno rate limit filter: nothing limits the request");
    }
    for (filter, call) in explained.filters.iter().zip(calls) {
        show_filter(filter, call, &explained.target);
    }
}

fn show_filter(filter: &ExplainedFilter<'_>, call: &Call<'_>, target: &str) {
    print_line(format!("\nfilter {}, domain {}", filter.name, filter.domain));
    for entry in &filter.applied {
        print_line(format!("  applies     {} of {}: {}", entry.at, level(entry.level), made_text(entry)));
    }
    for (at, of, why) in &filter.left_out {
        print_line(format!("  left out    {at} of {}: {why}", level(*of)));
    }
    match (&call.applied, &*call.descriptors) {
        (_, []) => print_line("  no descriptor, so the server is not called: nothing limits the request"),
        (None, _) => {
            print_line(format!("  the rules have no domain {}: nothing limits the request", filter.domain))
        }
        (Some(applied), descriptors) => {
            descriptors.iter().zip(applied).for_each(|(descriptor, applied)| show(descriptor, applied));
        }
    }
    response_lines(&filter.responses, call, target).iter().for_each(|line| print_line(format!("  {line}")));
}

fn level(level: Level) -> &'static str {
    match level {
        Level::Route => "the route",
        Level::VirtualHost => "the virtual host",
        Level::Filter => "the filter",
        Level::PerRoute => "the RateLimitPerRoute",
    }
}

fn made_text(entry: &ExplainedEntry) -> String {
    let made = match &entry.made {
        Made::Descriptor(entries) if entries.is_empty() => "a descriptor without entries".to_owned(),
        Made::Descriptor(entries) => DescriptorText(entries.clone()).to_string(),
        Made::Nothing(what) => {
            format!("no descriptor, since the request has no {what}, or does not match it")
        }
        Made::Unknown(why) => format!("unknown: {why}"),
    };
    let hits = match &entry.hits {
        Some(EntryHits::Known(Hits::Peek)) => ", 0 hits: a peek, which charges nothing".to_owned(),
        Some(EntryHits::Known(Hits::GiveBack(hits))) => format!(", gives {hits} hits back"),
        hits => hits.as_ref().and_then(number_text).map_or_else(String::new, |hits| format!(", {hits} hits")),
    };
    let at_end = if entry.is_at_end { ", at the end of the request" } else { "" };
    format!("{made}{hits}{at_end}")
}

/// The hits, unless they are one.
fn number_text(hits: &EntryHits) -> Option<String> {
    match hits {
        EntryHits::Known(Hits::ONE) => None,
        EntryHits::Known(Hits::Take(hits)) => Some(hits.to_string()),
        EntryHits::Known(Hits::Peek) => Some("0".to_owned()),
        EntryHits::Known(Hits::GiveBack(hits)) => Some(format!("-{hits}")),
        EntryHits::Format(format) => Some(format.clone()),
    }
}

/// Lines about the response to the request.
fn response_lines(responses: &Responses, call: &Call<'_>, target: &str) -> Vec<String> {
    if !call.is_limited {
        let unenforced = Some(responses.enforced).filter(|enforced| enforced.is_none());
        let why = unenforced.map_or_else(String::new, |enforced| {
            format!(" (denials are enforced for {enforced} requests: filter_enforced, or runtime)")
        });
        return vec![format!("response    always: {target}{why}")];
    }
    let x = if responses.x_ratelimit { ", with x-ratelimit-limit, -remaining and -reset" } else { "" };
    let retry = if responses.retry_after { ", retry-after" } else { "" };
    let failed = failed_text(responses);
    vec![
        format!("response    within the limits: {target}{x}"),
        format!("            over a limit: {} with x-envoy-ratelimited{retry}{x}", responses.denied),
        format!("            without a decision in time: {failed}"),
    ]
}

/// The response to a request that could not be decided.
fn failed_text(responses: &Responses) -> String {
    let FailureMode { refused, has_percent } = responses.failure;
    let reason = match has_percent {
        true => format!("failure_mode_deny_percent is {refused}"),
        false => "failure_mode_deny is false".to_owned(),
    };
    match (refused.is_all(), refused.is_none()) {
        (true, _) => responses.failed.to_string(),
        (_, true) => format!("admitted without a limit ({reason})"),
        _ => format!("{}, or admitted without a limit ({reason})", responses.failed),
    }
}

fn to_json(explained: &Explained<'_>, calls: &[Call<'_>]) -> Value {
    let named = |name: &str, at: &tidegate_core::rules::Origin| json!({"name": name, "at": at.to_string()});
    json!({
        "listener": explained.listener,
        "virtual_host": explained.host.as_ref().map(|(name, at)| named(name, at)),
        "route": explained.route.as_ref().map(|(title, at)| named(title, at)),
        "target": explained.target,
        "client": explained.client,
        "unknown": explained.unknown,
        "filters": explained.filters.iter().zip(calls).map(|(filter, call)| filter_to_json(filter, call)).collect::<Vec<_>>(),
    })
}

fn filter_to_json(filter: &ExplainedFilter<'_>, call: &Call<'_>) -> Value {
    let entry = |entry: &ExplainedEntry| {
        json!({
            "at": entry.at.to_string(),
            "of": level(entry.level),
            "at_end": entry.is_at_end,
            "hits": entry.hits.as_ref().and_then(number_text),
            "descriptor": match &entry.made {
                Made::Descriptor(entries) => Some(DescriptorText(entries.clone()).to_string()),
                _ => None,
            },
            "reason": match &entry.made {
                Made::Descriptor(_) => None,
                Made::Nothing(_) | Made::Unknown(_) => Some(made_text(entry)),
            },
        })
    };
    let applied = call.applied.iter().flatten();
    let descriptors = call
        .descriptors
        .iter()
        .zip(applied)
        .map(|(descriptor, applied)| descriptor_to_json(descriptor, applied));
    let left_out = filter
        .left_out
        .iter()
        .map(|(at, of, why)| json!({"at": at.to_string(), "of": level(*of), "reason": why.to_string()}));
    json!({
        "name": filter.name,
        "domain": filter.domain,
        "has_rules": call.applied.is_some(),
        "applied": filter.applied.iter().map(entry).collect::<Vec<_>>(),
        "left_out": left_out.collect::<Vec<_>>(),
        "descriptors": descriptors.collect::<Vec<_>>(),
        "over_limit_status": Some(filter.responses.denied).filter(|_| call.is_limited),
        "undecided_status": Some(filter.responses.failed).filter(|_| filter.responses.failure.refused.is_all()),
        "undecided_refused": filter.responses.failure.refused.to_string(),
    })
}
