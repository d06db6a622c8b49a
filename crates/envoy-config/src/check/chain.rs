//! The chain of filters of a connection manager.

use super::finding::{Findings, Kind};
use crate::{
    configuration::{FilterKind, Manager, PerRoute, RateLimitFilter, RouteConfig, Share},
    part::Part,
};

/// Whether the chain has filters whose configuration is not shown.
pub(super) fn has_unknown(manager: &Manager<'_>) -> bool {
    manager.filters.iter().any(|filter| match filter.kind {
        FilterKind::Unknown | FilterKind::Unread(_) => true,
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
            FilterKind::Unread(message) => {
                let message = format!(
                    "the configuration of {:?} is in a {message} that is not read here, so its descriptors are unknown; write the message of \
                     the filter, or for a module a google.protobuf.Struct with `value`",
                    filter.name
                );
                findings.add(Kind::NotEvaluated, filter.part, &manager.name, message);
            }
            FilterKind::Other(message) if message.contains("ExtensionWithMatcher") => {
                let message = "only Envoy knows which requests this matcher gives to its filter";
                findings.add(Kind::NotEvaluated, filter.part, &manager.name, message);
            }
            _ => {}
        }
    }
    check_upgrades(manager, findings);
    if let Some(config) = config {
        check_names(manager, config, findings);
    }
}

fn is_enabled_somewhere(config: &RouteConfig<'_>, filter: &str) -> bool {
    config.configuring().any(|part| PerRoute::of(part, filter).is_some_and(|own| !own.is_disabled))
}

/// Checks upgrades, such as to WebSocket, that pass filters of their own instead of `http_filters`.
fn check_upgrades(manager: &Manager<'_>, findings: &mut Findings) {
    let Some((limiting, _)) = manager.rate_limits().next() else { return };
    let is_refused = |upgrade: Part<'_>| upgrade.get("enabled").is_some_and(|flag| flag.as_text() == "false");
    for upgrade in manager.part.list("upgrade_configs").filter(|upgrade| !is_refused(*upgrade)) {
        let configs: Vec<Part<'_>> =
            upgrade.list("filters").map(|filter| filter.at("typed_config")).collect();
        if !configs.is_empty() && !configs.iter().any(|config| RateLimitFilter::may_be_one(*config)) {
            let message = format!(
                "upgrades to {} pass these filters instead of http_filters, and none of them limits requests; add {} before the router here",
                upgrade.text("upgrade_type"),
                limiting.name
            );
            findings.add(Kind::UpgradeWithoutFilter, upgrade, &manager.name, message);
        }
    }
}

/// Checks settings that limit only some requests.
fn check_settings(settings: Part<'_>, place: &str, findings: &mut Findings) {
    for name in ["filter_enabled", "filter_enforced"] {
        let Some(percent) = settings.get(name) else { continue };
        let share = Share::of_default(percent);
        if !share.is_all() {
            let message = format!("{name} is {share}: other requests are not limited");
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

/// Checks that what routes configure for the filter has the name of a filter.
fn check_names(manager: &Manager<'_>, config: &RouteConfig<'_>, findings: &mut Findings) {
    if manager.is_patched || has_unknown(manager) {
        return;
    }
    let names: Vec<&str> = manager.filters.iter().map(|filter| filter.name).collect();
    for part in config.configuring() {
        let other =
            PerRoute::all(part).filter(|(name, own)| own.settings().is_some() && !names.contains(name));
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
