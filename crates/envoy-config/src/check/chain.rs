//! The chain of filters of a connection manager.

use super::finding::{Findings, Kind};
use crate::{
    configuration::{FilterKind, Manager, PerRoute, RouteConfig},
    part::Part,
};

/// Whether the chain has filters whose configuration is not shown.
pub(super) fn has_unknown(manager: &Manager<'_>) -> bool {
    manager.filters.iter().any(|filter| match filter.kind {
        FilterKind::Unknown => true,
        FilterKind::Other(message) => {
            message.contains("ExtensionWithMatcher") || message.contains("Composite")
        }
        FilterKind::RateLimit(_) | FilterKind::Router => false,
    })
}

pub(super) fn check(manager: &Manager<'_>, config: Option<&RouteConfig<'_>>, findings: &mut Findings) {
    let router = manager.filters.iter().position(|filter| matches!(filter.kind, FilterKind::Router));
    for (index, filter) in manager.filters.iter().enumerate() {
        match &filter.kind {
            FilterKind::RateLimit(settings) => {
                if router.is_some_and(|router| router < index) {
                    let message = "this filter is after the router, which ends the chain: it is never asked; move it before envoy.filters.http.router";
                    findings.add(Kind::FilterAfterRouter, filter.part, &manager.name, message);
                }
                let is_enabled = || config.is_none_or(|config| is_enabled_somewhere(config, filter.name));
                if filter.is_disabled() && !is_enabled() {
                    let message = format!(
                        "this filter is disabled, and no route enables it; remove `disabled`, or give routes a typed_per_filter_config {:?}",
                        filter.name
                    );
                    findings.add(Kind::FilterDisabled, filter.part.at("disabled"), &manager.name, message);
                }
                check_settings(settings.settings, &manager.name, findings);
            }
            FilterKind::Unknown if !manager.is_patched => {
                let message = format!("the configuration of {:?} is not in the files", filter.name);
                findings.add(Kind::NotEvaluated, filter.part, &manager.name, message);
            }
            FilterKind::Other(message) if message.contains("ExtensionWithMatcher") => {
                let message = "only Envoy knows which requests this matcher gives to its filter";
                findings.add(Kind::NotEvaluated, filter.part, &manager.name, message);
            }
            _ => {}
        }
    }
    if let Some(config) = config {
        check_names(manager, config, findings);
    }
}

fn is_enabled_somewhere(config: &RouteConfig<'_>, filter: &str) -> bool {
    let hosts = config.hosts.iter();
    let parts = hosts
        .flat_map(|host| host.routes.iter().map(|route| route.part).chain([host.part]))
        .chain([config.part]);
    parts.into_iter().any(|part| PerRoute::of(part, filter).is_some_and(|own| !own.is_disabled))
}

/// Settings by which a filter limits only some requests.
fn check_settings(settings: Part<'_>, place: &str, findings: &mut Findings) {
    for name in ["filter_enabled", "filter_enforced"] {
        let Some(percent) = settings.get(name) else { continue };
        let numerator = percent.get("default_value").and_then(|value| value.number("numerator")).unwrap_or(0);
        let whole = match percent.get("default_value").map_or("", |value| value.text("denominator")) {
            "TEN_THOUSAND" => 10_000,
            "MILLION" => 1_000_000,
            _ => 100,
        };
        if numerator < whole {
            let message = format!("{name} is {numerator} of {whole}: other requests are not limited");
            findings.add(Kind::FilterPartly, percent, place, message);
        }
    }
    let origin = settings.text("request_type");
    if ["internal", "external"].contains(&origin) {
        let message = format!("this filter limits {origin} requests only; others are not limited");
        findings.add(Kind::OtherOrigin, settings.at("request_type"), place, message);
    }
    for entry in settings.list("rate_limits").filter(|entry| entry.has("stage") || entry.has("disable_key")) {
        let message = "Envoy refuses stage and disable_key here; remove them";
        findings.add(Kind::StageNotSupported, entry, place, message);
    }
}

/// Whether what routes configure for the filter has the name of a filter.
fn check_names(manager: &Manager<'_>, config: &RouteConfig<'_>, findings: &mut Findings) {
    if manager.is_patched || has_unknown(manager) {
        return;
    }
    let names: Vec<&str> = manager.filters.iter().map(|filter| filter.name).collect();
    let hosts = config.hosts.iter();
    let parts = hosts
        .flat_map(|host| host.routes.iter().map(|route| route.part).chain([host.part]))
        .chain([config.part]);
    for part in parts {
        let other = PerRoute::all(part).filter(|(name, own)| own.settings.is_some() && !names.contains(name));
        for (name, own) in other {
            let own_names: Vec<&str> = manager.rate_limits().map(|(filter, _)| filter.name).collect();
            let remedy = match &*own_names {
                [] => "the listener has no ratelimit filter".to_owned(),
                all => format!("write {}", all.join(" or ")),
            };
            let message =
                format!("no filter is called {name:?}, so Envoy ignores this configuration; {remedy}");
            findings.add(Kind::FilterOtherName, own.part, &manager.name, message);
        }
    }
}
