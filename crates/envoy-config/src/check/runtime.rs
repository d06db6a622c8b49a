//! Disabling by the runtime.

use super::finding::{Findings, Kind};
use crate::configuration::{Configuration, Manager, RouteConfig};
use std::collections::BTreeSet;

/// Reports the filters, denials and entries that a static layer of the runtime disables, for all requests or for some.
pub(super) fn check(configuration: &Configuration<'_>, findings: &mut Findings) {
    let mut keys = BTreeSet::new();
    for manager in &configuration.managers {
        of_manager(manager, configuration.routes_of(manager), &mut keys);
    }
    if !configuration.network_filters.is_empty() {
        keys.insert(("filter of connections", "ratelimit.tcp_filter_enabled".to_owned()));
        keys.insert(("denials of the filter of connections", "ratelimit.tcp_filter_enforcing".to_owned()));
    }
    for (what, key) in keys {
        let share = configuration.runtime.share(&key).filter(|(_, share)| !share.is_all());
        let Some((part, share)) = share else { continue };
        let message = format!(
            "{key} is {share}: other requests pass without the {what}; remove this key, or write 100"
        );
        findings.add(Kind::RuntimeDisables, part, "", message);
    }
}

fn of_manager(
    manager: &Manager<'_>,
    config: Option<&RouteConfig<'_>>,
    keys: &mut BTreeSet<(&'static str, String)>,
) {
    for (_, filter) in manager.rate_limits() {
        let of_filter = [
            ("ratelimit filter", "filter_enabled", "ratelimit.http_filter_enabled"),
            ("denials of the ratelimit filter", "filter_enforced", "ratelimit.http_filter_enforcing"),
        ];
        for (what, setting, default) in of_filter {
            let own = filter.settings.get(setting).map(|percent| percent.text("runtime_key"));
            keys.insert((what, own.unwrap_or(default).to_owned()));
        }
        let entries = config.into_iter().flat_map(|config| &config.hosts).flat_map(|host| {
            let of_routes = host.routes.iter().flat_map(|route| &route.entries);
            of_routes.chain(&host.entries)
        });
        for key in entries.map(|entry| entry.part.text("disable_key")).filter(|key| !key.is_empty()) {
            keys.insert(("entry with this disable_key", format!("ratelimit.{key}.http_filter_enabled")));
        }
    }
}
