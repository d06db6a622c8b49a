//! The virtual host of a request.

use crate::{
    configuration::{RouteConfig, VirtualHost},
    part::Part,
};

/// The virtual host of an authority: with the exact name, else with the longest `*.name`, else with the longest `name.*`, else with `*`.
pub(super) fn find<'c, 'd>(config: &'c RouteConfig<'d>, authority: &str) -> Option<&'c VirtualHost<'d>> {
    let authority = authority.to_ascii_lowercase();
    let host = match config.part.flag("ignore_port_in_host_matching") {
        true => without_port(&authority),
        false => &authority,
    };
    let all = || {
        config
            .hosts
            .iter()
            .flat_map(|host| host.domains().map(move |domain| (host, domain.to_ascii_lowercase())))
    };
    if let Some((found, _)) = all().find(|(_, domain)| domain == host && domain != "*") {
        return Some(found);
    }
    let longest = |part: fn(&str) -> Option<&str>, has: fn(&str, &str) -> bool| {
        let matching = all().filter_map(|(own, domain)| {
            let fixed = part(&domain)
                .filter(|fixed| !fixed.is_empty() && fixed.len() < host.len() && has(host, fixed))?;
            Some((fixed.len(), own))
        });
        matching.max_by_key(|(length, _)| *length).map(|(_, own)| own)
    };
    longest(|domain| domain.strip_prefix('*'), |host, suffix| host.ends_with(suffix))
        .or_else(|| longest(|domain| domain.strip_suffix('*'), |host, prefix| host.starts_with(prefix)))
        .or_else(|| all().find(|(_, domain)| domain == "*").map(|(own, _)| own))
}

/// The authority after the options of a connection manager, which change the header before routes and filters read it.
pub(super) fn stripped(manager: Part<'_>, authority: &str) -> String {
    let (host, port) = authority.split_at(without_port(authority).len());
    let host =
        if manager.flag("strip_trailing_host_dot") { host.strip_suffix('.').unwrap_or(host) } else { host };
    let port = if manager.flag("strip_any_host_port") { "" } else { port };
    format!("{host}{port}")
}

pub(super) fn without_port(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}
